"""The colours of pages, figures and reports, for light and for dark; each value is chosen for its own background.

Colour never carries a meaning alone: a severity also has a word and a mark, a policy its own dash, a sign its own side of zero.
A run has a mark and a name beside its colour.
Severities differ in lightness and the gaps in lightness and hue, so that both survive every common colour blindness.
Streamlit's own theme is made from these (server.look).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from ratioscope.metrics.grading.coverage import NOT_MEASURED, PARTLY

FONT = '"Source Sans", "Source Sans 3", "Source Sans Pro", system-ui, -apple-system, "Segoe UI", sans-serif'
CODE_FONT = '"Source Code", "Source Code Pro", ui-monospace, "DejaVu Sans Mono", Menlo, monospace'
READABLE = 4.5
"""Least contrast of text with what it stands on (WCAG 2.1, AA)."""
MARKS = {"healthy": "●", "watch": "▲", "act": "■", PARTLY: "◐", NOT_MEASURED: "–"}
"""word of a verdict -> the mark that stands beside its word, so that neither needs colour."""


ThemeName = Literal["light", "dark", "light-narrow", "dark-narrow", "named"]


@dataclass(frozen=True)
class Theme:
    """The colours of one appearance."""

    name: ThemeName
    """The name, by which figures are cached."""
    background: str
    """Behind pages and charts."""
    panel: str
    """Behind cards and hover labels."""
    border: str
    """Lines around cards, and axes."""
    grid: str
    """Grid lines of charts."""
    text: str
    """Text, with a contrast of at least 4.5."""
    muted: str
    """Notes, ticks and units."""
    primary: str
    """Links and controls."""
    gaps: Mapping[str, str]
    policies: Mapping[str, str]
    """Policy -> its colour."""
    severity: Mapping[str, str]
    """Severity -> the colour that fills an area."""
    ink: Mapping[str, str]
    """Severity -> the colour of text, with a contrast of at least 4.5."""
    less: str
    """Log-ratio below zero: the later policy finds the token less likely."""
    more: str
    """Log-ratio above zero: the later policy finds the token more likely."""
    runs: tuple[str, ...]
    """One per run where several share a chart; the slot is the run's in both themes. Each pair is told apart with full colour
    vision and with every kind of dichromacy, and each has a contrast of at least 3 with the background."""
    counts: tuple[str, ...]
    """Sequential scale of one hue, from few to many."""
    columns: int = field(default=76, kw_only=True)
    """Characters that a line of a figure's notes may have, for Plotly breaks no line itself; half a page is as wide."""
    live: bool = field(default=True, kw_only=True)
    """False for pictures: nothing in them is pointed at or clicked."""
    series: tuple[str, ...]
    """Colours of overlaid lines that have no colour of their own; each goes with a dash or a mark."""

    def of_gap(self, gap: str) -> str:
        """The colour of a gap; all gaps with a reading share one, because a chart shows one gap."""
        return self.gaps.get(gap, self.series[2])

    def of_side(self, side: str) -> str:
        """The colour of a policy or a reading."""
        return self.policies.get(side, self.series[2])


LIGHT = Theme(
    name="light",
    background="#ffffff",
    panel="#f6f7f9",
    border="#dde2e9",
    grid="#e9ecf1",
    text="#1a2230",
    muted="#5b6675",
    primary="#1f66b0",
    gaps={"mismatch": "#1f66b0", "total": "#3b4656", "drift": "#a8488a"},
    policies={"rollout": "#b3590a", "old": "#1f66b0", "current": "#3b4656", "reference": "#8a93a0"},
    severity={"healthy": "#8fcabd", "watch": "#e8a317", "act": "#b3261e"},
    ink={"healthy": "#1b6f61", "watch": "#8a5800", "act": "#b3261e"},
    less="#c2540a",
    more="#1f66b0",
    runs=("#3b3bed", "#3ea629", "#db37db", "#702a1c", "#b881a5", "#2a414c", "#622182", "#7e9468"),
    counts=("#eef4fb", "#cfe1f3", "#a5c8e8", "#72a8d9", "#4487c4", "#1f66b0", "#134a86", "#0a2f5a"),
    series=("#1f66b0", "#c2540a", "#1b7f5f", "#8a4aa8", "#8f6a00", "#2488ad", "#b8336a", "#5b6675"),
)
DARK = Theme(
    name="dark",
    background="#11151c",
    panel="#1a2029",
    border="#2c3542",
    grid="#232b36",
    text="#e6eaf0",
    muted="#98a3b3",
    primary="#5aa7f0",
    gaps={"mismatch": "#5aa7f0", "total": "#b9c4d3", "drift": "#e08bc4"},
    policies={"rollout": "#f0a35a", "old": "#5aa7f0", "current": "#b9c4d3", "reference": "#6d7887"},
    severity={"healthy": "#2c7a6c", "watch": "#e0a030", "act": "#f2685c"},
    ink={"healthy": "#63c7b4", "watch": "#f0b74d", "act": "#ff8478"},
    less="#f08a3c",
    more="#5aa7f0",
    runs=("#9f9fe3", "#9fe35b", "#bf4d99", "#bf8686", "#e3d89f", "#5be3e3", "#9f5be3", "#6c7830"),
    counts=("#16202d", "#17324f", "#1a4673", "#215f9c", "#3a80c6", "#5aa7f0", "#94c8f8", "#d6ebff"),
    series=("#5aa7f0", "#f0a35a", "#4fc3a0", "#c79af0", "#d9c04a", "#6fd0e8", "#f07aa8", "#a9b4c4"),
)
NARROW: dict[ThemeName, Theme] = {
    "light": replace(LIGHT, name="light-narrow", columns=64),
    "dark": replace(DARK, name="dark-narrow", columns=64),
}
"""The same for a window too narrow for half a page, such as a telephone's."""


def variables(theme: Theme) -> dict[str, str]:
    """The colours of the theme by the names of the variables of a style sheet.

    >>> variables(LIGHT)["severity-act"], variables(LIGHT)["text"]
    ('#b3261e', '#1a2230')
    """
    return dict(_named(theme))


def css_variables(theme: Theme) -> str:
    """The colours of the theme as declarations of a style sheet."""
    return ";".join(f"--{name}:{colour}" for name, colour in _named(theme))


def _named(theme: Theme) -> Iterator[tuple[str, str]]:
    for part in fields(theme):
        value: Any = getattr(theme, part.name)  # the fields of a theme have several types
        if isinstance(value, str) and value.startswith("#"):
            yield part.name, value
        elif isinstance(value, Mapping):
            yield from ((f"{part.name}-{key}", colour) for key, colour in value.items())
        elif isinstance(value, tuple):
            yield from ((f"{part.name}-{at}", colour) for at, colour in enumerate(value))


NAMES = tuple(variables(LIGHT))
"""The names of all variables; the colour of the theme of names at each place is its number."""
COLUMNS = 72
"""Characters that fit beside each other in half of a page's width."""


def _numbered(value: Any, numbers: Iterator[int]) -> Any:
    """The value with a number in place of every colour. Any: the fields of a theme have several types."""
    if isinstance(value, str):
        return f"#{next(numbers):06x}" if value.startswith("#") else value
    if isinstance(value, Mapping):
        return {key: _numbered(colour, numbers) for key, colour in value.items()}
    return tuple(_numbered(colour, numbers) for colour in value) if isinstance(value, tuple) else value


def _named_theme() -> Theme:
    numbers = iter(range(1, len(NAMES) + 1))
    numbered = {part.name: _numbered(getattr(LIGHT, part.name), numbers) for part in fields(LIGHT)}
    return replace(LIGHT, **(numbered | {"columns": COLUMNS, "live": False}))


NAMED = _named_theme()
"""The theme to draw a figure in that becomes SVG. Each colour is a number that stands for a variable of the style."""
THEMES: dict[ThemeName, Theme] = {**{theme.name: theme for theme in (LIGHT, DARK, *NARROW.values())}, "named": NAMED}


def channels(colour: str) -> tuple[float, ...]:
    """Red, green and blue of a colour such as #1f66b0, from 0 to 1."""
    return tuple(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    """The contrast of two colours in lightness, from 1 to 21, after WCAG 2.1. Each is red, green and blue from 0 to 1.

    >>> round(contrast((0, 0, 0), (1, 1, 1)), 1)
    21.0
    """
    low, high = sorted(_luminance(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: Sequence[float]) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def faded(colour: str, opacity: float) -> str:
    """The colour as rgba(...) with an opacity of 0 to 1.

    >>> faded("#1f66b0", 0.5)
    'rgba(31, 102, 176, 0.5)'
    """
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity:.3g})"
