"""Bounds on the weights as controls offer them, and effects of a bound as cards and tables show them."""

from collections.abc import Callable
from math import inf, isnan

from ratioscope.metrics.corrections.threshold import CAPS, FLOORS
from ratioscope.metrics.distribution import Interval

from .digits import digits, percent

NONE = "none"
"""The choice that bounds nothing."""
CAP_BY_NAME = {digits(cap, 5): cap for cap in CAPS} | {NONE: inf}
"""The published caps, ascending. Each is an edge of the histograms, so the effect at each of them is exact."""
FLOOR_BY_NAME = {NONE: 0.0} | {digits(floor, 5): floor for floor in FLOORS}
"""The published floors, ascending; exact in the same way."""


def interval_text(value: Interval, formatted: Callable[[float], str] = percent) -> str:
    """The value, or the two ends of its interval; ≈ where both ends have the same text, – where nothing is known.

    >>> interval_text(Interval(0.0156, 0.0182)), interval_text(Interval(0.98, 0.98)), interval_text(Interval(0.98, 0.9800001))
    ('1.56–1.82%', '98%', '≈ 98%')
    """
    if isnan(value.low):
        return "–"
    low, high = formatted(value.low), formatted(value.high)
    if value.high == value.low or value.high - value.low <= 1e-9 * max(1.0, abs(value.low)):
        return low
    return f"≈ {low}" if low == high else f"{low.removesuffix('%')}–{high}"
