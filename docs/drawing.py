"""Boxes, arrows and texts as SVG that follows the reader's light or dark theme and names no font that must be fetched."""

from collections.abc import Iterable, Iterator
from html import escape

ROW = 26
"""Height of a box with one line."""
GAP = 8
_LETTER = 7.3
"""Width of a letter at 13 pixels, with some room: fonts differ by reader."""

_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.head { font-weight: 600; font-size: 15px; }
.small { font-size: 12px; fill: #59636e; }
.paper { fill: #ffffff; }
.room { fill: #f3f5f8; stroke: #c5ccd6; }
.folder { fill: #dbe8fb; stroke: #6d95d1; }
.file { fill: #ffffff; stroke: #9aa6b5; }
.arrow { fill: none; stroke: #59636e; stroke-width: 1.5; marker-end: url(#tip); }
#tip path { fill: #59636e; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .small { fill: #9aa6b5; }
  .paper { fill: #0f1319; }
  .room { fill: #171d26; stroke: #3a4452; }
  .folder { fill: #1d3557; stroke: #5b86c4; }
  .file { fill: #0f1319; stroke: #5a6675; }
  .arrow { stroke: #9aa6b5; }
  #tip path { fill: #9aa6b5; }
}
"""
_TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z"/></marker>'
)


def width_of(text: str) -> int:
    """Width of a box that holds this text."""
    return round(len(text) * _LETTER) + 18


def svg(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """A picture with a background of its own, so that it can be read on any page."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style><defs>{_TIP}</defs>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def box(x: int, y: int, width: int, height: int, kind: str, *, hover: str = "") -> str:
    """A rounded rectangle; hover: the text that a browser shows under the pointer."""
    shape = f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"'
    return f"{shape}><title>{escape(hover)}</title></rect>" if hover else f"{shape}/>"


def text(x: int, y: int, line: str, kind: str = "", *, anchor: str = "middle") -> str:
    """One line of text; y is its base line."""
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(line)}</text>'


def labelled(x: int, y: int, width: int, lines: tuple[str, ...], kind: str, *, hover: str = "") -> Iterator[str]:
    """A box with a line in the ordinary size and smaller lines below it."""
    yield box(x, y, width, ROW + 16 * (len(lines) - 1), kind, hover=hover)
    for number, line in enumerate(lines):
        yield text(x + width // 2, y + 18 + 16 * number, line, "small" if number else "")


def arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    """A straight arrow."""
    return f'<path class="arrow" d="M{x1} {y1}L{x2} {y2}"/>'
