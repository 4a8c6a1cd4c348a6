"""Charts as files embed them: static SVG, or JSON for plotly.js in both themes."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..blocks import Chart
from ..figures.drawing.plotly_objects import go
from ..figures.svg.chart import svg_chart
from ..presentation.theme import DARK, LIGHT

PAIR, WHOLE = 450.0, 950.0
"""Widths of a static chart in pixels, before the page scales it: half of the page, and all of it."""


@dataclass(frozen=True)
class Drawing:
    """One figure in both themes, for plotly.js."""

    name: str
    """No other one of the file has it."""
    light: Any
    """Data and layout in the light theme."""
    dark: Any
    """Differences of the dark theme: nested objects whose leaves replace those of `light`."""

    @property
    def height(self) -> int:
        """Height in pixels, kept free until the figure is drawn."""
        return int(self.light["layout"]["height"])


def drawing(name: str, chart: Chart) -> Drawing:
    """The chart in both themes."""
    light, dark = (_plain(chart.figure(theme)) for theme in (LIGHT, DARK))
    return Drawing(name, light, difference(light, dark))


def picture(chart: Chart) -> str:
    """The chart as static SVG. One that takes the width of the page is there twice; the page shows the one that fits."""
    figure = chart.make(*chart.of, "named")  # the theme of names is no appearance: it has the name of another
    if not chart.wide:
        return svg_chart(figure, chart.label, width=PAIR)
    both = ((WHOLE, "broad"), (PAIR, "slim"))
    return "".join(svg_chart(figure, chart.label, width=width, kind=kind) for width, kind in both)


def difference(before: Any, after: Any) -> Any:
    """The changes that turn `before` into `after`: the differing members of objects, and of lists of equal length by index.

    None if nothing differs. Themes change colours, never the shape of a figure.

    >>> difference({"x": [1, 2], "line": {"color": "red"}}, {"x": [1, 2], "line": {"color": "blue"}})
    {'line': {'color': 'blue'}}
    """
    pairs: Iterable[tuple[str, Any, Any]]
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        pairs = ((key, before[key], after[key]) for key in before)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = ((str(index), old, new) for index, (old, new) in enumerate(zip(before, after, strict=True)))
    else:
        return None if before == after else after
    return {key: difference(old, new) for key, old, new in pairs if old != new} or None


def _plain(figure: go.Figure) -> Any:
    """Plain JSON by the standard encoder: orjson, where installed, writes the same numbers in other digits."""
    text = figure.to_json(engine="json")
    return json.loads(text or "{}")
