"""A theme of names: each colour is a number that stands for a variable of the style, so that one drawing has all themes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from ...presentation.theme import DARK, LIGHT, Theme, variables

_COLOUR = re.compile(r"#[0-9a-f]{6}|rgba?\((\d+), ?(\d+), ?(\d+)(?:, ?([\d.e-]+))?\)")
CLEAR = ("none", 1.0)


NAMES = tuple(variables(LIGHT))
"""The names of all variables; the colour of the theme of names at each place is its number."""


def _numbered(value: Any, numbers: Iterator[int]) -> Any:
    """The value with a number in place of every colour. Any: the fields of a theme have several types."""
    if isinstance(value, str):
        return f"#{next(numbers):06x}" if value.startswith("#") else value
    if isinstance(value, Mapping):
        return {key: _numbered(colour, numbers) for key, colour in value.items()}
    return tuple(_numbered(colour, numbers) for colour in value) if isinstance(value, tuple) else value


def _named_theme() -> Theme:
    numbers = iter(range(1, len(NAMES) + 1))
    numbered = {field.name: _numbered(getattr(LIGHT, field.name), numbers) for field in fields(LIGHT)}
    return replace(LIGHT, **(numbered | {"columns": COLUMNS, "live": False}))


COLUMNS = 72
"""Characters that fit beside each other in half of a page's width."""


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
NAMED = _named_theme()
"""The theme to draw a figure in that becomes SVG."""
