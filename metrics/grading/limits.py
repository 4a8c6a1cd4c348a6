"""The limits of a metric: the values at which its reading changes, from the signal that grades it or from its card."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..metric import Metric
from .signals import SIGNALS, Signal


@dataclass(frozen=True)
class Limit:
    """A value at which a metric's reading changes, the reading beyond it, and (where it is graded) that grade."""

    at: float
    reading: str
    worse: str = "above"
    """above or below: the side of `at` on which the reading holds."""
    severity: str | None = None
    is_floor: bool = False
    """True for a noise floor, which is drawn and named, and is the reading of no value."""

    def reached(self, value: float) -> bool:
        """True if the reading holds for this value."""
        return value >= self.at if self.worse == "above" else value <= self.at


def limits_of(metric: Metric, gap: str, signals: Sequence[Signal] = SIGNALS) -> tuple[Limit, ...]:
    """The limits of a metric in a gap: the grades of its signal, else the published readings on its card.

    signals: those in force.
    """
    worse = "below" if metric.worse == "below" else "above"
    for signal in signals:
        if signal.name == metric.signal and gap in signal.gaps:
            thresholds = (("watch", signal.watch), ("act", signal.act))
            return tuple(Limit(signal.limit(at), word, worse, word) for word, at in thresholds if at is not None)
    bands = metric.bands
    if metric.worse == "below":
        return tuple(Limit(band.high, band.reading, "below") for band in bands[:-1])
    starts = tuple(Limit(band.low, band.reading) for band in bands[1:] or bands if band.low > 0)
    ends = tuple(Limit(band.high, f"not {band.reading}") for band in bands if len(bands) == 1 and band.low <= 0)
    return starts + ends


def reading_of(value: float | None, limits: Sequence[Limit]) -> str:
    """The reading of the furthest limit that the value has reached; empty where it has reached none."""
    reached = [limit for limit in limits if value is not None and not limit.is_floor and limit.reached(value)]
    return max(reached, key=lambda limit: limit.at if limit.worse == "above" else -limit.at).reading if reached else ""


def furthest_reading(limits: Sequence[Limit]) -> str:
    """The reading beyond the last limit; empty without limits."""
    return reading_of(-math.inf if any(limit.worse == "below" for limit in limits) else math.inf, limits)
