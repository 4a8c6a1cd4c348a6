"""The colours of the theme of names as attributes of SVG, so that one drawing has all themes."""

import re

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
