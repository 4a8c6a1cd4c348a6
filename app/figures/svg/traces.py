"""The traces of a figure as SVG: lines, filled areas, marks, bars and heat maps.

The marks of points as SVG, by their names in Plotly.
A heat map as two small pictures, one in the colours of each theme.
"""

import base64
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Floats, Integers

from ...presentation.theme import channels
from ..drawing.hover import EXTRA
from .axis import Axis
from .texts import paint, plain, shades, short

Trace = dict[str, Any]
DASHES = {"dot": "1.5 3", "dash": "6 4", "dashdot": "6 3 1.5 3", "longdash": "10 4", "longdashdot": "10 3 1.5 3"}
FEW = 80
"""The most points of a trace that have a title each: more would weigh more than the chart."""

FORMS: dict[str, tuple[tuple[float, float], ...]] = {
    "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    "triangle-up": ((0, -1.2), (1.15, 0.8), (-1.15, 0.8)),
    "triangle-down": ((0, 1.2), (1.15, -0.8), (-1.15, -0.8)),
    "triangle-right": ((1.2, 0), (-0.8, 1.15), (-0.8, -1.15)),
    "triangle-left": ((-1.2, 0), (0.8, 1.15), (0.8, -1.15)),
    "pentagon": ((0, -1.1), (1.05, -0.34), (0.65, 0.89), (-0.65, 0.89), (-1.05, -0.34)),
    "hexagon": ((0, -1.1), (0.95, -0.55), (0.95, 0.55), (0, 1.1), (-0.95, 0.55), (-0.95, -0.55)),
    "star": (
        (0, -1.4), (0.32, -0.44), (1.33, -0.43), (0.51, 0.17), (0.82, 1.13), (0, 0.54), (-0.82, 1.13), (-0.51, 0.17),
        (-1.33, -0.43), (-0.32, -0.44),
    ),
    "cross": (
        (-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4), (0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4),
        (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4),
    ),
    "x": (
        (0, -0.57), (0.57, -1.13), (1.13, -0.57), (0.57, 0), (1.13, 0.57), (0.57, 1.13), (0, 0.57), (-0.57, 1.13),
        (-1.13, 0.57), (-0.57, 0), (-1.13, -0.57), (-0.57, -1.13),
    ),
}  # fmt: skip
"""Name -> corners, in halves of the mark's size."""

LEVELS = 96
"""Colours of a picture, from few to many; one more is clear."""
FINE = 2
"""Rows of the picture for a pixel of the chart: cells differ in height, the rows of a picture do not."""
THEMES = ("light", "dark")


@dataclass(frozen=True)
class TraceMarkup:
    """A trace as SVG."""

    clipped: str = ""
    """The part that the edges of the plot area cut off."""
    free: str = ""
    """The part that may stand over the edges, such as marks of events."""


def trace_markup(trace: Trace, x: Axis, y: Axis) -> TraceMarkup:
    """ValueError for a kind of trace that has no drawing here."""
    kind = trace.get("type", "scatter")
    if kind not in KINDS:
        raise ValueError(f"trace of type {kind!r}: wanted {', '.join(KINDS)}")
    return KINDS[kind](trace, x, y)


def _scatter(trace: Trace, x: Axis, y: Axis) -> TraceMarkup:
    across, up = x.place(trace["x"]), y.place(trace["y"])
    parts = (trace.get("mode") or "lines").split("+")
    line = _line(trace, across, up) if "lines" in parts else ""
    marks = _marks(trace, across, up) if "markers" in parts else ""
    return TraceMarkup(line, marks) if trace.get("cliponaxis") is False else TraceMarkup(line + marks)


def _line(trace: Trace, across: Floats, up: Floats) -> str:
    closed = trace.get("fill") == "toself"
    known = np.isfinite(across) & np.isfinite(up)
    points = zip(known.tolist(), across.tolist(), up.tolist(), strict=True)
    parts = []
    for there, stretch in groupby(points, key=lambda point: point[0]):
        corners = [f"{short(px)} {short(py)}" for _, px, py in stretch] if there else []
        if len(corners) > 1:
            parts.append(f"M{'L'.join(corners)}{'z' if closed else ''}")
    path = "".join(parts)
    if not path:
        return ""
    style = trace.get("line") or {}
    fill = _fill(trace.get("fillcolor")) if trace.get("fill") == "toself" else ' fill="none"'
    return f'<path d="{path}"{fill}{stroke(style)}/>'


def _marks(trace: Trace, across: Floats, up: Floats) -> str:
    """The marks, neighbours of one look in a group. A mark without size is silent: it only serves the hover of a live chart."""
    style = trace.get("marker") or {}
    if style.get("opacity") == 0:
        return ""
    own = len(across)
    sizes, symbols, colours, widths = (
        _each(value, own)
        for value in (
            style.get("size", 6), style.get("symbol", "circle"), style.get("color"), (style.get("line") or {}).get("width", 0),
        )
    )  # fmt: skip
    points = [
        (at, px, py)
        for at, (px, py) in enumerate(zip(across.tolist(), up.tolist(), strict=True))
        if np.isfinite(px) and np.isfinite(py) and sizes[at] > 0
    ]
    titles = _titles(trace) if len(points) <= FEW else None

    def look(point: tuple[int, float, float]) -> tuple[str, str, float]:
        return symbols[point[0]], colours[point[0]], widths[point[0]]

    groups = []
    for (symbol, colour, width), group in groupby(points, key=look):
        body = "".join(
            mark(symbol, px, py, sizes[at] - (width if is_open(symbol) else 0), title(titles[at]) if titles else "")
            for at, px, py in group
        )
        groups.append(f"<g{_mark_paint(symbol, colour, width)}>{body}</g>")
    return "".join(groups)


def _mark_paint(symbol: str, colour: str, width: float) -> str:
    if is_open(symbol):
        return f' class="open"{stroke({"color": colour, "width": width or 1.2})}'
    return _fill(colour)


def _bar(trace: Trace, x: Axis, y: Axis) -> TraceMarkup:
    """Upright bars. The width of each is given in units of its axis."""
    if trace.get("orientation") == "h":
        raise ValueError("bars that lie: wanted upright ones")
    middle, width = np.asarray(trace["x"], np.float64), np.asarray(trace["width"], np.float64)
    base = np.asarray(trace.get("base", 0.0), np.float64)
    left, right = x.place(middle - width / 2), x.place(middle + width / 2)
    top, foot = y.place(base + np.asarray(trace["y"], np.float64)), y.place(base + np.zeros(len(middle)))
    colours = _each((trace.get("marker") or {}).get("color"), len(middle))
    titles = _titles(trace) if len(middle) <= FEW else None
    boxes = (
        _box(*ends, title(titles[at]) if titles else "") if ends[3] > ends[2] else ""
        for at, ends in enumerate(zip(left.tolist(), right.tolist(), top.tolist(), foot.tolist(), strict=True))
    )
    groups = groupby(zip(colours, boxes, strict=True), key=lambda box: box[0])
    return TraceMarkup("".join(f"<g{_fill(colour)}>{''.join(box for _, box in group)}</g>" for colour, group in groups))


def _box(left: float, right: float, top: float, foot: float, inside: str) -> str:
    size = f'width="{right - left:.2f}" height="{short(foot - top)}"'
    return element("rect", f'x="{left:.2f}" y="{short(top)}" {size}', inside)


def _heat(trace: Trace, x: Axis, y: Axis) -> TraceMarkup:
    return TraceMarkup(heat(trace, x, y))


def _titles(trace: Trace) -> Sequence[str] | None:
    """The words of each point, as its hover has them in a live chart; None if it has none."""
    if trace.get("hoverinfo") == "skip":
        return None
    words = trace.get("hovertext")
    words = trace.get("customdata") if words is None else words
    if words is not None and len(words):
        return [str(each) if isinstance(each, str) else str(each[0]) for each in words]
    fixed = (trace.get("hovertemplate") or "").removesuffix(EXTRA)
    return [fixed] * len(trace["x"]) if fixed else None


def title(words: str) -> str:
    """The words of a point, which a browser shows below the pointer."""
    return f"<title>{'&#10;'.join(plain(words))}</title>" if words else ""


def stroke(line: Trace) -> str:
    """The attributes of a line."""
    width = 2.0 if line.get("width") is None else float(line["width"])
    if width == 0:
        return ""
    colour, opacity = paint(line.get("color"))
    faint = "" if opacity == 1 else f' stroke-opacity="{opacity:g}"'
    dash = DASHES.get(line.get("dash") or "", "")
    return f' stroke="{colour}" stroke-width="{width:g}"{faint}' + (f' stroke-dasharray="{dash}"' if dash else "")


def _fill(colour: str | None) -> str:
    shown, opacity = paint(colour)
    return f' fill="{shown}"' + ("" if opacity == 1 else f' fill-opacity="{opacity:g}"')


def _each(value: Any, count: int) -> list[Any]:
    """A value for each point. Any: sizes, names and colours."""
    if value is None or isinstance(value, str | int | float):
        return [value] * count
    return [each.item() if isinstance(each, np.generic) else each for each in value]


def swatch(trace: Trace, x: float, y: float) -> str:
    """The look of a trace as a short piece of it, for a legend; x: its left end."""
    parts: Iterator[str] = iter((trace.get("mode") or "lines").split("+"))
    pieces = {
        "lines": lambda: f'<path d="M{short(x)} {short(y)}h18" fill="none"{stroke(trace.get("line") or {})}/>',
        "markers": lambda: _marks({**trace, "hoverinfo": "skip"}, np.array([x + 9]), np.array([y])),
    }
    return "".join(pieces[part]() for part in parts)


KINDS: dict[str, Callable[[Trace, Axis, Axis], TraceMarkup]] = {"scatter": _scatter, "bar": _bar, "heatmap": _heat}


def is_open(symbol: str) -> bool:
    """True if the mark is an outline."""
    return symbol.endswith("-open")


def mark(symbol: str, x: float, y: float, size: float, inside: str = "") -> str:
    """One mark, without colour. inside: SVG within it, such as its title."""
    name = symbol.removesuffix("-open")
    if name == "circle":
        return element("circle", f'cx="{short(x)}" cy="{short(y)}" r="{short(size / 2)}"', inside)
    if name not in FORMS:
        raise ValueError(f"mark {symbol!r}: wanted circle, {', '.join(FORMS)}")
    corners = "L".join(f"{short(x + dx * size / 2)} {short(y + dy * size / 2)}" for dx, dy in FORMS[name])
    return element("path", f'd="M{corners}z"', inside)


def element(tag: str, attributes: str, inside: str = "") -> str:
    """An SVG element. inside: SVG within it."""
    return f"<{tag} {attributes}>{inside}</{tag}>" if inside else f"<{tag} {attributes}/>"


def heat(trace: dict[str, Any], x: Axis, y: Axis) -> str:
    """The images of a heat map whose x and y are the edges of its cells. The columns must be equally wide."""
    across, up = (np.asarray(trace[name], np.float64) for name in ("x", "y"))
    left, right = (float(end) for end in x.place(across[[0, -1]]))
    bottom, top = (float(end) for end in y.place(up[[0, -1]]))
    z = np.asarray(trace["z"], np.float64)
    low = trace["zmin"]
    with np.errstate(invalid="ignore"):
        share = np.clip((z - low) / ((trace["zmax"] - low) or 1.0), 0.0, 1.0)
        levels = 1 + np.rint(share * (LEVELS - 1))
    count = max(1, round(FINE * (bottom - top)))
    middles = up[-1] - (np.arange(count) + 0.5) / count * (up[-1] - up[0])
    cells: Integers = np.searchsorted(up, middles, side="right").astype(np.int64) - 1
    rows = np.clip(cells, 0, len(up) - 2)  # the cell of each row of the picture, from the top
    pixels = np.where(np.isfinite(z), levels, 0).astype(np.uint8)[rows]  # 0 is clear
    box = f'x="{short(left)}" y="{short(top)}" width="{short(right - left)}" height="{short(bottom - top)}"'
    return "".join(
        f'<image class="{theme}" {box} preserveAspectRatio="none" href="data:image/png;base64,{_png(pixels, palette)}"/>'
        for theme, palette in zip(THEMES, _palettes(trace["colorscale"]), strict=True)
    )


def _palettes(stops: Sequence[tuple[float, str]]) -> Iterator[bytes]:
    """The colours of the levels in light and in dark, the clear one first."""
    places = [stop for stop, _ in stops]
    at = np.linspace(0.0, 1.0, LEVELS)
    for theme in range(len(THEMES)):
        parts = np.array([channels(shades(colour)[theme]) for _, colour in stops])
        mixed = np.column_stack([np.interp(at, places, parts[:, part]) for part in range(3)])
        yield bytes(3) + np.rint(255 * mixed).astype(np.uint8).tobytes()


def _png(pixels: npt.NDArray[np.uint8], palette: bytes) -> str:
    """A PNG of palette colours, in base64. Each row is stored as the difference to the row above, because most are equal."""
    height, width = pixels.shape
    above = np.vstack([np.zeros((1, width), np.uint8), pixels[:-1]])
    rows = np.column_stack([np.full(height, 2, np.uint8), pixels - above])  # filter 2: up
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette),
        (b"tRNS", b"\0"),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    data = b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + data).decode()
