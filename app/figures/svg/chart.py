"""A figure as one SVG element.

The lines, bands and words over a figure as SVG.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...presentation.escape import html as escaped
from ..drawing.plotly_objects import go
from .axis import Axis, axis_of
from .texts import lines, paint, plain, short, text
from .traces import Trace, stroke, swatch, trace_markup

TITLE, NOTES = 14, 11
NOTE_LINE = 15
TITLE_BASE, LEFT = 22.0, 4.0
LETTER = 5.6
"""Pixels of a letter in a legend, on average."""
MARGIN = {"l": 56, "r": 16, "t": 58, "b": 36}
ASCENT, DESCENT = 0.8, 0.2
"""Heights of letters above and below their line, as shares of the size."""
LEADING = 1.3


@dataclass(frozen=True)
class _Sheet:
    """A figure with the size of its plot area."""

    layout: Mapping[str, Any]
    """Plotly's layout of the figure."""
    traces: tuple[Trace, ...]
    width: float
    """Pixels of the plot area."""
    height: float
    """Pixels of the plot area."""
    margin: Mapping[str, float]
    """Side (l, r, t or b) -> pixels between the plot area and the edge."""

    @property
    def inner(self) -> tuple[float, float]:
        """Width and height of the plot area."""
        own = self.margin
        return self.width - own["l"] - own["r"], self.height - own["t"] - own["b"]


def svg_chart(figure: go.Figure, label: str, *, width: float, kind: str = "") -> str:
    """The figure, drawn in the theme of names (see paint), with a label for screen readers. kind: a class of the element.

    Its layout is that of the live chart: margins, ticks, limits and words. ValueError for a trace, a mark, a shape or a colour
    that has no drawing here.
    """
    layout = figure.layout.to_plotly_json()
    every: Any = figure.data
    traces = tuple(trace.to_plotly_json() for trace in every)
    own = {**MARGIN, **(layout.get("margin") or {})}
    names = (layout.get("yaxis") or {}).get("ticktext")
    longest = max((len(str(name)) for name in names), default=0) if names is not None else 0
    sheet = _Sheet(layout, traces, width, float(layout["height"]), {**own, "l": max(own["l"], LETTER * longest + 16)})
    body = "".join(_parts(sheet))
    box = f"0 0 {short(width)} {short(sheet.height)}"
    return (
        f'<svg class="chart{kind and f" {kind}"}" viewBox="{box}" role="img" aria-label="{escaped(label)}">{body}</svg>'
    )


def _parts(sheet: _Sheet) -> Iterator[str]:
    wide, tall = sheet.inner
    x = _axis(sheet, "xaxis", wide)
    y = _axis(sheet, "yaxis", tall)
    shapes = sheet.layout.get("shapes") or ()
    done = [
        trace_markup(trace, x, _axis(sheet, "yaxis2", tall) if trace.get("yaxis") == "y2" else y)
        for trace in sheet.traces
    ]
    title = sheet.layout.get("title") or {}
    yield text(title.get("text") or "", LEFT, TITLE_BASE, size=TITLE).replace("<text ", '<text class="title" ', 1)
    notes = (title.get("subtitle") or {}).get("text") or ""
    if notes.strip():
        yield text(notes, LEFT, TITLE_BASE + NOTE_LINE + 1, size=NOTES, leading=NOTE_LINE)
    yield f'<g transform="translate({short(sheet.margin["l"])} {short(sheet.margin["t"])})">'
    yield from _grid(x, y)
    yield f'<svg width="{short(wide)}" height="{short(tall)}">'
    yield from (shape(item, x, y) for item in shapes if item.get("layer") == "below")
    yield from (each.clipped for each in done)
    yield from (shape(item, x, y) for item in shapes if item.get("layer") != "below")
    yield "</svg>"
    yield from (each.free for each in done)
    yield from _ticks(x, y)
    yield from (annotation(item, x, y) for item in sheet.layout.get("annotations") or ())
    yield from _legend(sheet, tall)
    yield "</g>"


def _axis(sheet: _Sheet, name: str, length: float) -> Axis:
    across = name.startswith("x")
    own = [trace["x" if across else "y"] for trace in sheet.traces if trace.get("yaxis", "y") == "y"]
    return axis_of(sheet.layout.get(name) or {}, length, own, across=across)


def _grid(x: Axis, y: Axis) -> Iterator[str]:
    """Lines across at the ticks of the value axis, and the line of the steps."""
    if y.shown and y.settings.get("showgrid", True):
        paths = "".join(f"M0 {short(at)}h{short(x.length)}" for at, _ in y.ticks())
        yield f'<path class="grid" d="{paths}"/>' if paths else ""
    if x.shown:
        ticks = "".join(f"M{short(at)} {short(y.length)}v3" for at, _ in x.ticks())
        yield f'<path class="axis" d="M0 {short(y.length)}h{short(x.length)}{ticks}"/>'


def _ticks(x: Axis, y: Axis) -> Iterator[str]:
    if x.shown:
        yield from (text(word, at, y.length + 15, anchor="center") for at, word in x.ticks())
        if words := (x.settings.get("title") or {}).get("text"):
            yield text(words, x.length / 2, y.length + 30, anchor="center")
    if y.shown:
        size = (y.settings.get("tickfont") or {}).get("size", NOTES)
        yield from (text(word, -6, at + 0.35 * size, size=size, anchor="right") for at, word in y.ticks())


def _legend(sheet: _Sheet, tall: float) -> Iterator[str]:
    """The names of the lines in a row below the steps."""
    if not sheet.layout.get("showlegend"):
        return
    x, y = 0.0, tall + 34 + (14 if _has_words_below(sheet) else 0)
    for trace in sheet.traces:
        if trace.get("showlegend") is not False and trace.get("name"):
            yield swatch(trace, x, y)
            yield text(trace["name"], x + 24, y + 4)
            x += 24 + LETTER * max(map(len, plain(trace["name"]))) + 16


def _has_words_below(sheet: _Sheet) -> bool:
    """True if words already stand below the steps, such as the names of the marks of events."""
    return any(
        item.get("yref") == "paper" and item.get("y") == 0 and item.get("yanchor") == "top"
        for item in sheet.layout.get("annotations") or ()
    )


Overlay = Mapping[str, Any]


def shape(item: Overlay, x: Axis, y: Axis) -> str:
    """A line or a rectangle. ValueError for another shape."""
    left, right = (_place(item[end], item.get("xref", "x"), x) for end in ("x0", "x1"))
    first, last = (_place(item[end], item.get("yref", "y"), y) for end in ("y0", "y1"))
    if item["type"] == "line":
        return f'<path d="M{short(left)} {short(first)}L{short(right)} {short(last)}"{stroke(item.get("line") or {})}/>'
    if item["type"] != "rect":
        raise ValueError(f"shape of type {item['type']!r}: wanted line, rect")
    fill, opacity = paint(item.get("fillcolor"))
    box = f'x="{short(min(left, right))}" y="{short(min(first, last))}"'
    size = f'width="{short(abs(right - left))}" height="{short(abs(last - first))}"'
    return f'<rect {box} {size} fill="{fill}" fill-opacity="{opacity:g}"/>'


def annotation(item: Overlay, x: Axis, y: Axis) -> str:
    """Words at their place."""
    font = item.get("font") or {}
    size = float(font.get("size", 12))
    across = _place(item["x"], item.get("xref", "x"), x) + float(item.get("xshift") or 0)
    up = _place(item["y"], item.get("yref", "y"), y) - float(item.get("yshift") or 0)
    tall = size * LEADING * (len(lines(item["text"])) - 1)
    baseline = {
        "top": up + size * ASCENT + 2,
        "bottom": up - tall - size * DESCENT - 2,
        "middle": up - tall / 2 + size * (ASCENT - DESCENT) / 2,
    }[_anchor(item, "yanchor", "yref", "y", ("bottom", "middle", "top"))]
    anchor = _anchor(item, "xanchor", "xref", "x", ("left", "center", "right"))
    words = text(
        item["text"], across, baseline, size=size, anchor=anchor, colour=font.get("color", ""), leading=size * LEADING
    )
    return words.replace("<text ", '<text class="halo" ', 1) if item.get("bgcolor") else words


def _place(value: float, ref: str, axis: Axis) -> float:
    """The pixel of a place on the axis, or of a share of the plot area."""
    if ref == "paper":
        return float(value) * axis.length if axis.across else (1 - float(value)) * axis.length
    return float(axis.place(value))


def _anchor(item: Overlay, name: str, ref: str, at: str, sides: tuple[str, str, str]) -> str:
    """The side of the words that lies at their place. Plotly's own choice: by thirds on paper, else the middle."""
    own = item.get(name)
    if own and own != "auto":
        return str(own)
    share = float(item[at]) if item.get(ref) == "paper" else 0.5
    return sides[0] if share < 1 / 3 else sides[2] if share > 2 / 3 else sides[1]
