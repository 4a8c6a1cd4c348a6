"""The buckets of a slice: the value of each and of the run, its share of the gap and of the tokens, and N."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.metrics.grading.limits import Limit
from ratioscope.metrics.metric import Metric

from ..presentation.digits import count, percent
from ..presentation.escape import plotly as escaped
from ..presentation.run_names import told_apart
from ..presentation.theme import LIGHT, MARKS, Theme, faded
from ..presentation.value_text import limit_words, value_with_error
from .drawing.bands import ERRORS, NO_ERROR, interval
from .drawing.canvas import canvas, saying
from .drawing.definition import definition
from .drawing.floats import floats
from .drawing.overlay import Overlay, lay_over, on_paper, vertical_line, words
from .drawing.plot import Plot, Trace
from .drawing.plotly_objects import go
from .drawing.scale import Scale, padded, suitable

ROW = 25
LABEL = 26
"""The most characters of a bucket's name, from both its ends; the hover has more."""
FLOOR = "floor"
"""The word over the line of a noise floor; the notes name it."""
LEFT, RIGHT = (0.0, 0.59), (0.67, 1.0)
APART = 10
"""Pixels between the column of the shares of the gap and the column of N."""
CHOSEN = "▶ "
"""The mark of the bucket that is the filter of pages."""


def slice_bars(
    parts: pl.DataFrame,
    metric: Metric,
    gap: str,
    title: str,
    *,
    overall: float | None = None,
    limits: Sequence[Limit] = (),
    notes: Sequence[str] = (),
    chosen: Sequence[str] = (),
    theme: Theme = LIGHT,
) -> go.Figure:
    """parts: as slice_parts returns them. overall: the value of the whole run. chosen: the keys in the filter.

    The customdata of a point that can be clicked is its words and its key; the key is "" for several buckets together.
    """
    height = 153 + ROW * max(3, len(parts))
    if parts.is_empty() or not np.isfinite(floats(parts, "value")).any():
        return saying(canvas(title, notes, theme=theme, height=height), _why_empty(parts, metric, gap), theme)
    several = int(parts["buckets"].sum())
    shown = f"showing {len(parts) - 1:,} of {several:,}, the rest together" if several > len(parts) else ""
    value = floats(parts, "value")
    scale = suitable(value)
    size = f"N = {count(float(parts['tokens'].sum()), 'token')}"
    known = parts["error"].is_not_null()
    where = "" if known.all() else " where known"
    whiskers = f"whiskers ±{ERRORS:g} standard errors{where}" if known.any() else NO_ERROR
    low, high = _range(parts, scale, overall, metric)
    share = "right: bar ▬ share of the gap, tick │ of the tokens"
    drawn = [limit for limit in limits if limit.severity or limit.is_floor]
    near = [limit for limit in drawn if low <= float(scale.place(limit.at)) <= high]
    graded = " ".join(limit_words(limit) for limit in drawn if limit.is_floor or limit in near)
    figure = canvas(
        title,
        (share, shown, *notes, scale.word),
        theme=theme,
        height=height,
        lines=3,
        made=(metric.weighting, size, whiskers),
        key=(graded,),
        about=definition(metric),
    )
    colours = [theme.primary if key in chosen else theme.of_gap(gap) for key in parts["key"]]
    facts = [[_words(row, metric), row["key"] or ""] for row in parts.iter_rows(named=True)]
    bars = _Bars(parts, np.arange(len(parts), 0, -1, dtype=np.float64), colours, facts)
    plot = Plot(figure, scale, (low, high), theme)
    _add_column(plot, bars, metric.bounds)
    _add_shares(figure, bars, theme)
    _lay_out(figure, bars, chosen, theme)
    unit = f" · {metric.unit}" if metric.unit != "1" else ""
    figure.update_xaxes(title_text=f"{metric.title}{unit}", selector={"anchor": "y"}, **scale.axis(low, high))
    _add_marks(plot, overall, near)
    return figure


@dataclass(frozen=True)
class _Bars:
    """The buckets as both panels draw them."""

    parts: pl.DataFrame
    rows: Floats
    """The height of each bucket."""
    colours: Sequence[str]
    """The colour of each bucket, as CSS has it."""
    facts: Sequence[Sequence[str]]
    """The words and the key of each bucket."""

    @property
    def clickable(self) -> Trace:
        """Options of a trace whose points a reader can click."""
        words = {"customdata": self.facts, "hovertemplate": "%{customdata[0]}<extra></extra>"}
        return {"y": self.rows, **words, "unselected": {"marker": {"opacity": 1}}}

    def bar(self, opacity: float) -> Trace:
        """Options of bars in these colours."""
        colours = [faded(colour, opacity) for colour in self.colours]
        return {"orientation": "h", "width": 0.62, "marker": {"color": colours, "line": {"width": 0}}, **self.clickable}

    @property
    def end(self) -> float:
        """The end of the axis of shares, in percent: the longest bar leaves room for a column of numbers."""
        longest = max(np.nan_to_num(floats(self.parts, "share_of_gap")).max(), self.parts["share_of_tokens"].max() or 0)
        return float(1.8 * 100 * longest)


def _why_empty(parts: pl.DataFrame, metric: Metric, gap: str) -> str:
    if parts.is_empty():
        return f"not available, because no token of {gap} is in this slice"
    infinite = np.isinf(floats(parts, "value")).any()
    return f"{metric.title} is infinite in every bucket" if infinite else f"not available, because {metric.absent}"


def _add_column(plot: Plot, bars: _Bars, bounds: tuple[float, float]) -> None:
    """Adds a faint bar up to the value, and a dot with whiskers at it. A bar on a logarithmic axis has no zero to begin at and
    therefore no meaning: it is transparent and only takes clicks. A whisker that reaches to zero or beyond leaves that axis."""
    value, error = floats(bars.parts, "value"), floats(bars.parts, "error")
    (first, last), place = plot.shown, plot.scale.place(value)
    base = first if plot.scale.logarithmic else min(max(first, 0.0), last)
    length = np.clip(place, first, last) - base
    plot.figure.add_bar(x=length, base=base, **bars.bar(0.0 if plot.scale.logarithmic else 0.22))
    below, above = (plot.scale.place(end) for end in interval(value, error, bounds))
    below = np.where(np.isfinite(error) & ~np.isfinite(below), first - 1, below)
    whiskers = {"array": above - place, "arrayminus": place - below, "thickness": 1.2, "width": 3}
    symbols = ["diamond" if math.isinf(v) else "circle" for v in value]
    plot.figure.add_scatter(
        x=np.where(np.isfinite(value), place, np.where(np.isposinf(value), last, np.nan)),
        mode="markers",
        marker={"size": 8, "color": list(bars.colours), "symbol": symbols},
        error_x={"type": "data", "symmetric": False, "color": bars.colours[-1], **whiskers},
        cliponaxis=True,
        **bars.clickable,
    )


def _add_shares(figure: go.Figure, bars: _Bars, theme: Theme) -> None:
    """Adds a bar for the share of the gap and a stroke for the share of the tokens: a longer bar is worse than average.

    The shares of the gap have a column of numbers of their own: a number beside a stroke would seem to be that of the stroke.
    """
    share, right = floats(bars.parts, "share_of_gap"), {"xaxis": "x2", "yaxis": "y2"}
    figure.add_bar(x=100 * np.nan_to_num(share), **right, **bars.bar(0.55))
    figure.add_scatter(
        x=np.full(len(share), bars.end),
        y=bars.rows,
        **right,
        mode="text",
        text=[_percent(part) for part in share],
        textposition="middle left",
        textfont={"size": 11, "color": theme.muted},
        cliponaxis=False,
        hoverinfo="skip",
        unselected={"textfont": {"color": theme.muted}},
    )
    stroke = {"symbol": "line-ns", "size": 13, "line": {"width": 2, "color": theme.text}}
    tokens = 100 * floats(bars.parts, "share_of_tokens")
    figure.add_scatter(x=tokens, **right, mode="markers", marker=stroke, **bars.clickable)


def _lay_out(figure: go.Figure, bars: _Bars, chosen: Sequence[str], theme: Theme) -> None:
    """Two panels that share their rows: names on the left, N on the right."""
    named = zip(bars.parts["key"], short_labels(bars.parts["label"].to_list()), strict=True)
    labels = [f"{CHOSEN if key in chosen else ''}{name}" for key, name in named]
    sizes, ends = [short(tokens) for tokens in bars.parts["tokens"]], [0.4, len(labels) + 0.6]
    side = {"range": ends, "tickvals": bars.rows, "fixedrange": True, "showgrid": False, "zeroline": False}
    figure.update_layout(
        bargap=0,
        dragmode=False,
        xaxis={"domain": LEFT, "anchor": "y", "fixedrange": True, "nticks": 5, "tickangle": 0},
        xaxis2={
            "domain": RIGHT, "anchor": "y2", "range": [0, bars.end], "fixedrange": True, "ticksuffix": "%",
            "nticks": 3, "tickangle": 0, "title": {"text": "gap ▬ tokens │"},
        },
        yaxis={**side, "ticktext": labels, "ticklabelstandoff": 4},
        yaxis2={
            **side, "ticktext": sizes, "anchor": "x2", "side": "right", "automargin": True, "ticks": "", "showline": False,
            "ticklabelstandoff": APART,
        },
        margin={"r": 8, "b": 40},
    )  # fmt: skip
    heads = (("N", on_paper(1, "left", 1, "bottom", xshift=6 + APART)), ("gap", on_paper(1, "right", 1, "bottom")))
    lay_over(figure, texts=[words(text, theme.muted, **place) for text, place in heads])


def _add_marks(plot: Plot, overall: float | None, limits: Sequence[Limit]) -> None:
    """Adds the run's own value, and the limits and the noise floor of the metric, which lie on the axis."""
    lines: list[Overlay] = []
    texts: list[Overlay] = []
    theme, (low, high) = plot.theme, plot.shown
    marks = [
        (limit.at, theme.severity[limit.severity], MARKS[limit.severity], "dash") for limit in limits if limit.severity
    ]
    marks += [(limit.at, theme.muted, FLOOR, "dot") for limit in limits if limit.is_floor]
    if overall is not None and math.isfinite(overall):
        marks.append((overall, theme.text, "run", "solid"))
    for at, colour, word, dash in marks:
        place = float(plot.scale.place(at))
        if low <= place <= high:
            lines.append(vertical_line(place, colour, width=1, dash=dash))
            beside = (14 if len(word) == 1 else 24) * _side(plot, place, overall) if word != "run" else 0
            texts.append(words(word, theme.muted, size=10, x=place, y=1, yref="paper", yanchor="bottom", xshift=beside))
    lay_over(plot.figure, lines, texts)


def _side(plot: Plot, place: float, overall: float | None) -> int:
    """The side, 1 or -1, of a mark that is too near to the word over the run's own line; else 0."""
    run = math.nan if overall is None else float(plot.scale.place(overall))
    apart = (place - run) / (plot.shown[1] - plot.shown[0])
    return 0 if math.isnan(apart) or abs(apart) > 0.07 else 1 if apart >= 0 else -1


def _range(parts: pl.DataFrame, scale: Scale, overall: float | None, metric: Metric) -> tuple[float, float]:
    """Ends of the value axis. It contains zero if bars can begin there, unless policies that agree have the value 1."""
    value, error = floats(parts, "value"), np.nan_to_num(floats(parts, "error"))
    reach = [*interval(value, error, metric.bounds), np.array([math.nan if overall is None else overall])]
    reach[0] = np.where(reach[0] > 0, reach[0], value) if scale.logarithmic else reach[0]
    places = scale.place(np.concatenate(reach))
    places = places[np.isfinite(places)]
    low, high = float(places.min()), float(places.max())
    if scale.logarithmic:
        return low - 0.15, high + 0.08
    if metric.neutral == 1 or low < 0 < high:
        return padded(low, high)
    return (0.0, padded(0.0, high)[1]) if high > 0 else (padded(low, 0.0)[0], 0.0)


def _words(row: dict[str, object], metric: Metric) -> str:
    """The words about a bucket, with foreign text escaped."""
    value, error, tokens = (row[name] for name in ("value", "error", "tokens"))
    assert isinstance(tokens, float)
    shares = [
        f"{_percent(share)} of the {whole}"
        for share, whole in ((row["share_of_gap"], "gap"), (row["share_of_tokens"], "tokens"))
        if isinstance(share, float)
    ]
    value_text = value_with_error(metric, value, error)  # type: ignore[arg-type]
    return "<br>".join(
        (
            escaped(str(row["label"]), 80),
            f"{metric.title} {value_text}",
            " · ".join(shares),
            f"N = {count(tokens, 'token')}",
        )
    )


def short_labels(names: Sequence[str]) -> list[str]:
    """The names for an axis, escaped; long names are cut where they are equal."""
    return [escaped(name or "(empty)") for name in told_apart(names, LABEL)]


def short(number: float) -> str:
    """A count in few characters.

    >>> short(950), short(12345), short(2_500_000)
    ('950', '12.3k', '2.5M')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.0f}"


def _percent(share: float) -> str:
    """A share in two digits; < 0.1% for a share whose bar is too short to be visible."""
    if not math.isfinite(share) or share == 0:
        return percent(share)
    return percent(float(f"{share:.2g}")) if share >= 1e-3 else "< 0.1%"
