"""The scale of a value axis: plain, logarithmic, or logarithmic on both sides of zero if values of both signs explode."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Floats

from ...presentation.digits import digits

EXPLODES = 40.0
"""Largest over smallest size from which a plain axis hides the small values; a convention."""


@dataclass(frozen=True)
class Scale:
    """A map from values to axis positions."""

    linear: float = 0.0
    """The size below which a signed-log axis is straight; 0 for a plain axis."""
    logarithmic: bool = False
    """True if the axis is Plotly's logarithmic one."""

    @property
    def word(self) -> str:
        return "log axis" if self.logarithmic else "signed-log axis" if self.linear else ""

    def place(self, values: npt.ArrayLike) -> Floats:
        """Axis positions; NaN for a value without one (zero and below on a logarithmic axis)."""
        numbers = np.asarray(values, np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.logarithmic:
                return np.where(numbers > 0, np.log10(numbers), np.nan)
            if self.linear:
                return np.sign(numbers) * np.log10(1 + np.abs(numbers) / self.linear)
        return numbers

    def axis(self, low: float, high: float) -> dict[str, Any]:
        """Plotly axis settings for positions low to high."""
        if not (self.logarithmic or self.linear):
            return {"range": [low, high]}
        values = _decades(low, high) if self.logarithmic else _signed_decades(self.linear, low, high)
        places = [float(self.place(value)) for value in values]
        words = [digits(value, 1 if abs(value) < 1e4 else 2) for value in values]
        return {"range": [low, high], "tickvals": places, "ticktext": words}


PLAIN = Scale()
LOGARITHMIC = Scale(logarithmic=True)


def suitable(values: npt.ArrayLike) -> Scale:
    """The plain scale, unless the sizes of the finite values differ so much that it would hide the small ones."""
    numbers = np.asarray(values, np.float64)
    sizes = np.abs(numbers[np.isfinite(numbers)])
    sizes = sizes[sizes > 0]
    if len(sizes) < 2 or sizes.max() / EXPLODES < np.quantile(sizes, 0.1):
        return PLAIN
    if (numbers[np.isfinite(numbers)] > 0).all():
        return LOGARITHMIC
    return signed_log(float(np.quantile(sizes, 0.5)), float(sizes.max()))


def signed_log(typical: float, largest: float) -> Scale:
    """A scale that is nearly straight up to twice the typical size, so that the bulk keeps its shape, logarithmic beyond.

    It spans nine decades at most: smaller sizes look like zero.
    """
    return Scale(linear=min(max(2 * typical, 1e-9 * largest), sys.float_info.max)) if largest > 0 else PLAIN


def padded(low: float, high: float) -> tuple[float, float]:
    """The interval with a little room at both ends; an interval around the value if there is only one.

    An interval from zero on gets hardly any room below zero: there may be no such values.

    >>> padded(0.0, 10.0), padded(2.0, 2.0), padded(0.0, 0.0)
    ((-0.6, 10.6), (1.0, 3.0), (-0.06, 1.0))
    """
    room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    return (low - room if low < 0 else max(low - room, -0.06 * (high + room))), high + room


def _decades(low: float, high: float) -> Sequence[float]:
    whole = [10.0**power for power in _powers(math.ceil(low - 1e-9), math.floor(high + 1e-9))]
    if len(whole) >= 2:
        return whole[:: max(1, math.ceil(len(whole) / 6))]
    steps = [m * 10.0**power for power in _powers(math.floor(low), math.ceil(high)) for m in (1, 2, 3, 5, 7)]
    return [step for step in steps if low <= math.log10(step) <= high]


def _powers(low: int, high: int) -> range:
    """The exponents from low to high, without those of which a float has no power of ten: the room of an axis reaches further."""
    return range(max(low, sys.float_info.min_10_exp), min(high, sys.float_info.max_10_exp) + 1)


def _signed_decades(linear: float, low: float, high: float) -> Sequence[float]:
    scale = Scale(linear=linear)
    reach = min(linear * (10.0 ** max(abs(low), abs(high)) - 1), sys.float_info.max)
    apart = (high - low) / 11
    powers = range(math.floor(math.log10(reach) + 1e-9), math.floor(math.log10(linear)) - 2, -1)
    sizes = _with_room([10.0**power for power in powers], scale, apart)
    if len(sizes) < 2:
        halves = [first * 10.0**power for power in powers for first in (3, 1) if first * 10.0**power <= reach]
        sizes = _with_room(halves, scale, apart)
    values = [-size for size in sizes] + [0.0] + sizes[::-1]
    return [value for value in values if low <= float(scale.place(value)) <= high]


def _with_room(sizes: Sequence[float], scale: Scale, apart: float) -> list[float]:
    """The sizes whose labels have room, from the outermost inwards."""
    fitting: list[float] = []
    for size in sizes:
        place = float(scale.place(size))
        if place > apart and (not fitting or float(scale.place(fitting[-1])) - place > apart):
            fitting.append(size)
    return fitting
