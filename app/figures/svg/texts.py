"""The texts of a figure: Plotly's few tags as parts of an SVG text, in lines; and colours as SVG has them."""

import re
from collections.abc import Iterator
from html import unescape

from ...presentation.escape import html as escaped
from ...presentation.theme import DARK, LIGHT, NAMES, variables

_COLOUR = re.compile(r"#[0-9a-f]{6}|rgba?\((\d+), ?(\d+), ?(\d+)(?:, ?([\d.e-]+))?\)")
CLEAR = ("none", 1.0)


def paint(colour: str | None) -> tuple[str, float]:
    """(value of an SVG attribute, opacity) of a colour of a figure that was drawn in the theme of names.

    ValueError for a colour that is none of the theme: it would be the same in light and in dark.
    """
    if not colour:
        return CLEAR
    match = _COLOUR.fullmatch(colour)
    if match is None:
        raise ValueError(f"colour {colour!r}: wanted #rrggbb or rgba(r, g, b, opacity)")
    if match[1] is None:
        return f"var(--{_name(int(colour[1:], 16), colour)})", 1.0
    opacity = 1.0 if match[4] is None else float(match[4])
    number = int(match[1]) << 16 | int(match[2]) << 8 | int(match[3])
    return CLEAR if opacity == 0 else (f"var(--{_name(number, colour)})", opacity)


def shades(colour: str) -> tuple[str, str]:
    """The colour of the theme of names in light and in dark."""
    name = _name(int(colour[1:], 16), colour)
    return _LIGHT[name], _DARK[name]


def _name(number: int, colour: str) -> str:
    if not 1 <= number <= len(NAMES):
        raise ValueError(f"colour {colour!r}: wanted a colour of the theme that the figure is drawn in")
    return NAMES[number - 1]


_LIGHT, _DARK = variables(LIGHT), variables(DARK)


_TAG = re.compile(r"(<[^>]*>)")
_SPAN = re.compile(r'<span style="color:([^"]+)">')
_OPEN = {"<i>": '<tspan class="i">', "<b>": '<tspan class="b">'}
ANCHORS = {"left": "start", "center": "middle", "right": "end"}


def text(
    words: str, x: float, y: float, *, size: float = 11, anchor: str = "left", colour: str = "", leading: float = 15
) -> str:
    """An SVG text whose first baseline lies at y. words: as Plotly takes them, foreign text in it escaped for Plotly."""
    fill = f' fill="{paint(colour)[0]}"' if colour else ""
    first, *others = lines(words)
    rest = "".join(f'<tspan x="{short(x)}" dy="{short(leading)}">{line}</tspan>' for line in others)
    at = "" if anchor == "left" else f' text-anchor="{ANCHORS[anchor]}"'
    sized = "" if size == 11 else f' font-size="{short(size)}"'
    return f'<text x="{short(x)}" y="{short(y)}"{at}{sized}{fill}>{first}{rest}</text>'


def lines(words: str) -> list[str]:
    """The content of each line as SVG; a part that spans lines is opened again in each.

    >>> lines("a &lt; b <i>gap</i><br>N")
    ['a &lt; b <tspan class="i">gap</tspan>', 'N']
    """
    found, opened = [""], list[str]()
    for part in _TAG.split(words):
        if part == "<br>":
            found[-1] += "</tspan>" * len(opened)
            found.append("".join(opened))
        elif part.startswith("</"):
            found[-1] += "</tspan>" if opened else ""
            del opened[-1:]
        elif part.startswith("<"):
            opened.append(_opening(part))
            found[-1] += opened[-1]
        else:
            found[-1] += escaped(unescape(part).replace("\xa0", " "))
    return [line + "</tspan>" * (len(opened) if at == len(found) - 1 else 0) for at, line in enumerate(found)]


def plain(words: str) -> Iterator[str]:
    """The lines without tags, escaped: for the title of a point."""
    return (escaped(unescape(_TAG.sub("", line))) for line in words.split("<br>"))


def _opening(tag: str) -> str:
    span = _SPAN.fullmatch(tag)
    if span:
        return f'<tspan fill="{paint(span[1])[0]}">'
    return _OPEN.get(tag, "<tspan>")


def short(number: float) -> str:
    """The number with one decimal, as short as it can be.

    >>> short(12.04), short(-0.04), short(3.25)
    ('12', '0', '3.2')
    """
    shown = f"{number:.1f}"
    shown = shown[:-2] if shown.endswith(".0") else shown
    return "0" if shown == "-0" else shown
