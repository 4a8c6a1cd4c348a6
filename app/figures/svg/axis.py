"""An axis of a figure: the places of values in pixels, and its ticks with their words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Floats

from ...presentation.digits import digits

APART_ACROSS, APART_UP = 50.0, 34.0
"""The least pixels between two ticks."""
ROUND = (1.0, 2.0, 5.0, 10.0)
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Axis:
    """One axis of the plot area, with its settings in Plotly's words."""

    settings: Settings
    low: float
    """The value at its lower end, on a logarithmic axis its logarithm."""
    high: float
    """The value at its upper end, likewise."""
    length: float
    """Pixels from one end to the other."""
    across: bool
    """True if it runs from left to right; else from bottom to top, and pixels count from the top."""

    def place(self, values: npt.ArrayLike) -> Floats:
        """Pixels from the left or upper edge of the plot area."""
        share = (np.asarray(values, np.float64) - self.low) / (self.high - self.low)
        places: Floats = self.length * (share if self.across else 1 - share)
        return places

    @property
    def shown(self) -> bool:
        return self.settings.get("visible", True) is not False

    def ticks(self) -> list[tuple[float, str]]:
        """(pixel, words) of each tick: those that the figure names, else round numbers."""
        named = self.settings.get("tickvals")
        values = list(named) if named is not None else self._round_values()
        words = self.settings.get("ticktext")
        shown = [str(word) for word in words] if words is not None else self._words(values)
        places = self.place(values).tolist() if values else []
        return [(at, word) for at, word in zip(places, shown, strict=True) if -0.5 <= at <= self.length + 0.5]

    def _round_values(self) -> list[float]:
        apart = self.settings.get("dtick") or self._round_apart()
        first, last = math.ceil(self.low / apart - 1e-9), math.floor(self.high / apart + 1e-9)
        return [apart * at for at in range(first, last + 1)]

    def _round_apart(self) -> float:
        most = max(2.0, self.length / (APART_ACROSS if self.across else APART_UP))
        least = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(least))
        apart = next(step * power for step in ROUND if step * power >= least * (1 - 1e-9))
        return max(1.0, round(apart)) if self.settings.get("tickformat") == "d" else apart

    def _words(self, values: Sequence[float]) -> list[str]:
        whole = self.settings.get("tickformat") == "d"
        apart = values[1] - values[0] if len(values) > 1 else 1.0
        largest = max(map(abs, values), default=1.0) or 1.0
        needed = max(1, math.floor(math.log10(largest)) - math.floor(math.log10(apart) + 1e-9) + 1)
        texts = [
            f"{value:.0f}".replace("-", "−") if whole else digits(_snapped(value, apart), needed) for value in values
        ]
        before, after = self.settings.get("tickprefix", ""), self.settings.get("ticksuffix", "")
        first = self.settings.get("showtickprefix") == "first"
        return [f"{'' if first and at else before}{text}{after}" for at, text in enumerate(texts)]


def axis_of(settings: Settings, length: float, points: Sequence[Any], *, across: bool) -> Axis:
    """The axis with its range, else with a range around the points of its traces."""
    if (own := settings.get("range")) is not None:
        return Axis(settings, float(own[0]), float(own[1]), length, across)
    every = np.concatenate([np.zeros(0), *(np.asarray(each, np.float64).ravel() for each in points)])
    every = every[np.isfinite(every)]
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    room = 0.05 * (high - low) or 0.5
    return Axis(settings, low - room, high + room, length, across)


def _snapped(value: float, apart: float) -> float:
    """0 in place of a tiny number that rounding left."""
    return 0.0 if abs(value) < apart * 1e-6 else value
