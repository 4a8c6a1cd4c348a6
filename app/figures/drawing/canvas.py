"""The empty figure that every chart begins with: a template per theme, a title, and notes on the data and their estimate."""

import re
from collections.abc import Sequence
from functools import cache
from html import unescape
from textwrap import wrap
from typing import Any

from ...presentation.theme import FONT, NARROW, THEMES, Theme, ThemeName
from .definition import question_mark
from .overlay import lay_over
from .overlay import words as middle
from .plotly_objects import go

MARGIN = {"l": 56, "r": 16, "t": 58, "b": 36}
LINE = 15


def canvas(
    title: str,
    notes: Sequence[str] = (),
    *,
    theme: Theme,
    height: int,
    lines: int = 1,
    made: Sequence[str] = (),
    key: Sequence[str] = (),
    about: Sequence[str] = (),
) -> go.Figure:
    """An empty figure with a title and one muted line of notes under it; the other facts stand behind a ?.

    notes: what a reader must know, the first the most: those that do not fit into the line stand behind the ?. made:
    estimator, weighting, N and uncertainty. about: the definition of the metric. key: names of colours, in lines of their own.
    A picture has no ?: notes and made stand under its title. All but `about` must come escaped (`escape.plotly`) if they contain
    foreign text; empty texts are left out. lines: the least number of lines to keep room for: charts
    beside each other align, and marks at the upper edge stand apart from the notes.
    """
    said, facts = ([text for text in texts if text] for texts in (notes, made))
    shown, behind = _one_line(said, theme.columns) if theme.live else ([*said, *facts], [])
    broken, tall = _lines(shown, theme.columns) + _lines([text for text in key if text], theme.columns), 0
    behind = [_TAG.sub("", note) for note in (*behind, *(facts if theme.live else ()))]
    if theme in NARROW.values():
        broken = [part for line in broken for part in _wrapped(line, theme.columns)]
        tall = LINE * max(0, len(broken) - lines)
    broken += [" "] * (lines - len(broken))
    top = MARGIN["t"] + LINE * max(0, len(broken) - 1)
    mark = question_mark(behind, about, top, theme) if theme.live and (behind or about) else None
    return go.Figure(
        layout={  # a go.Layout would be validated and copied twice
            "template": template(theme) if theme.live else _plain(),
            "height": height + tall,
            "margin": {**MARGIN, "t": top},
            "annotations": [] if mark is None else [mark],
            "title": {"text": title, "subtitle": {"text": "<br>".join(broken)}},
            "uirevision": "keep",  # a refresh with more steps must not undo the reader's zoom
        }
    )


def coloured(text: str, colour: str) -> str:
    """The text in this colour, for notes and labels. The text must come escaped."""
    return f'<span style="color:{colour}">{text}</span>'


def tell_nearest(figure: go.Figure) -> None:
    """Shows the hover of the x nearest to the pointer, wherever the pointer is. Not for bars: Plotly finds the wrong bar."""
    figure.update_layout(hovermode="x unified", hoverdistance=-1)


def saying(figure: go.Figure, words: str, theme: Theme) -> go.Figure:
    """The figure without axes. The words in its middle are the reason why the chart is empty."""
    figure.update_xaxes(visible=False).update_yaxes(visible=False)
    lines = "<br>".join(wrap(words, theme.columns - 16))
    return lay_over(figure, texts=[middle(lines, theme.muted, x=0.5, y=0.5, xref="paper", yref="paper")])


def _one_line(notes: Sequence[str], columns: int) -> tuple[list[str], list[str]]:
    """The notes that fit into one line, at least the first, and the others."""
    kept = max((end for end in range(1, len(notes) + 1) if len(_lines(notes[:end], columns)) == 1), default=0)
    return list(notes[:kept]), list(notes[kept:])


def _lines(notes: Sequence[str], columns: int) -> list[str]:
    lines: list[str] = []
    used = columns
    for note in notes:
        if used + 3 + _shown(note) <= columns:
            lines[-1] += f" · {note}"
            used += 3 + _shown(note)
        else:
            lines.append(note)
            used = _shown(note)
    return lines


def _shown(text: str) -> int:
    """Number of characters that take room: a tag takes none."""
    return len(unescape(_TAG.sub("", text)))


def _wrapped(line: str, columns: int) -> list[str]:
    """The line, broken between words if it is too long. A tag is part of a word and takes no room."""
    lines: list[str] = []
    used = columns
    for word in _WORD.findall(line):
        long = _shown(word)
        if used + 1 + long > columns:
            lines.append(word)
            used = long
        else:
            lines[-1] += f" {word}"
            used += 1 + long
    return lines


_TAG = re.compile(r"<[^>]*>")
_WORD = re.compile(r"(?:<[^>]*>|[^\s<])+")


@cache
def _plain() -> go.layout.Template:
    """The template of pictures, which have their own style: copying that of live charts takes most of an empty figure's time."""
    return go.layout.Template()


def template(theme: Theme) -> go.layout.Template:
    """Thin lines, a faint horizontal grid, no frame, no legend unless asked for."""
    return _template(theme.name)


@cache
def _template(name: ThemeName) -> go.layout.Template:
    theme = THEMES[name]
    axis = _axis(theme)
    return go.layout.Template(
        layout=go.Layout(
            font={"family": FONT, "size": 12, "color": theme.text},
            paper_bgcolor=theme.background,
            plot_bgcolor=theme.background,
            colorway=list(theme.gaps.values()),
            showlegend=False,
            title=_title(theme),
            xaxis=axis,
            yaxis={**axis, "showgrid": True, "gridcolor": theme.grid, "showline": False, "ticks": ""},
            hovermode="closest",
            hoverlabel={
                "bgcolor": theme.panel,
                "bordercolor": theme.border,
                "font": {"family": FONT, "size": 12, "color": theme.text},
                "align": "left",
                "namelength": -1,
            },
            legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom", "font": {"size": 11}},
            modebar={"bgcolor": "rgba(0,0,0,0)", "color": theme.muted, "activecolor": theme.text, "orientation": "h"},
            dragmode="zoom",
        )
    )


def _axis(theme: Theme) -> dict[str, Any]:
    return {
        "showgrid": False,
        "zeroline": False,
        "showline": True,
        "linecolor": theme.border,
        "ticks": "outside",
        "ticklen": 3,
        "tickcolor": theme.border,
        "tickfont": {"color": theme.muted, "size": 11},
        "title": {"font": {"color": theme.muted, "size": 11}, "standoff": 6},
        "exponentformat": "power",
        "minexponent": 4,
        "automargin": True,
    }


def _title(theme: Theme) -> dict[str, Any]:
    """The style of the title: at the left end of the figure, above the subtitle."""
    return {
        "x": 0,
        "xref": "container",
        "xanchor": "left",
        "y": 1,
        "yref": "container",
        "yanchor": "top",
        "pad": {"t": 10, "l": 4},
        "font": {"size": 14, "color": theme.text},
        "subtitle": {"font": {"size": 11, "color": theme.muted}},
    }
