"""Raised steps: a gap that has one level, is larger at some spans of steps, and falls back after them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ratioscope.arrays import Array, Booleans, Floats, Integers

from ..reduction import first_of_each
from .factors import split_in_two
from .history import LEAST_STEPS, Course, History, known_steps

LEAST_FACTOR = 3.0
"""Raised steps have so many times the level of the others."""
APART = 4.0
"""The two levels lie so many standard deviations of their own steps apart."""
LEAST_SPAN = 3
"""Steps of a span, but for one that the record cuts. A single step is an outlier, and two levels in turns are missed syncs."""
GROWS = 0.15
"""A span that grows by this part of its log factor, from its first half to its second, has no level: weights grow stale in it."""


@dataclass(frozen=True)
class RaisedSteps:
    """Two levels of a gap over the steps, and the spans of the larger one."""

    spans: tuple[tuple[int, int], ...]
    """First and last step of each span, ascending."""
    edges: tuple[int, ...]
    """The steps at which the level changes."""
    begins_raised: bool
    """True if the first step has the larger level."""
    floor: float
    """Level of the other steps, nats/token."""
    factor: float
    """Level of the raised steps divided by the floor."""
    error: float
    """Standard error of the log of the factor."""

    def among(self, steps: Array) -> Booleans:
        """True for each step that lies in a span."""
        inside = [(steps >= first) & (steps <= last) for first, last in self.spans]
        return np.asarray(np.logical_or.reduce(inside), np.bool_)

    @cached_property
    def words(self) -> str:
        """The spans in words, such as "steps 10 to 19 and 32 to 47"."""
        named = [f"{first} to {last}" if first < last else str(first) for first, last in self.spans]
        return f"steps {', '.join(named[:-1])}{' and ' if len(named) > 1 else ''}{named[-1]}"

    @property
    def courses(self) -> tuple[Course, ...]:
        """A jump at each edge."""
        up = [(at % 2 == 0) != self.begins_raised for at in range(len(self.edges))]
        return tuple(
            Course(
                "jump", edge, self.factor if rises else 1 / self.factor, self.error,
                self.floor if rises else self.floor * self.factor, earliest=edge, latest=edge,
            )
            for edge, rises in zip(self.edges, up, strict=True)
        )  # fmt: skip


def raised_steps(history: History) -> RaisedSteps | None:
    """The raised steps of a history; None if it has not two clear levels, or does not fall back from the larger one."""
    known = known_steps(history)
    if len(known.steps) < 2 * LEAST_STEPS:
        return None
    y = np.log(known.level)
    # Most of the LEAST_SPAN steps around each step, which keeps every span of so many: one noisy step ends none.
    padded = np.pad((y > split_in_two(y)), LEAST_SPAN // 2, mode="edge")
    is_high = np.asarray(np.lib.stride_tricks.sliding_window_view(padded, LEAST_SPAN).mean(axis=1) > 0.5, np.bool_)
    high, low = y[is_high], y[~is_high]
    if not len(high) or not len(low):
        return None
    step = float(high.mean() - low.mean())
    scatter = max(float(high.std()), float(low.std()))
    begins = first_of_each(is_high)
    if (
        step < max(np.log(LEAST_FACTOR), APART * scatter)
        or not _falls_back(is_high, begins)
        or _grow(y, is_high, begins, step)
    ):
        return None
    ends = np.append(begins[1:], len(y)) - 1
    spans = [(int(known.steps[a]), int(known.steps[b])) for a, b in zip(begins, ends, strict=True) if is_high[a]]
    error = float(np.sqrt(high.var() / len(high) + low.var() / len(low)))
    edges = tuple(known.steps[begins[1:]].tolist())
    return RaisedSteps(tuple(spans), edges, bool(is_high[0]), float(np.exp(low.mean())), float(np.exp(step)), error)


def _falls_back(is_high: Booleans, begins: Integers) -> bool:
    """True if a raised span ends before the record does, and none that the record does not cut is short, raised or not."""
    lengths = np.diff(np.append(begins, len(is_high)))
    inner = lengths[1:-1] if len(lengths) > 2 else lengths
    return bool(is_high[begins[:-1]].any() and inner.min() >= LEAST_SPAN)


def _grow(y: Floats, is_high: Booleans, begins: Integers, step: float) -> bool:
    """True if the raised spans of four and more steps grow while they last."""
    parts = np.split(y, begins[1:])
    tops = [part for part, begin in zip(parts, begins, strict=True) if is_high[begin] and len(part) >= LEAST_STEPS]
    growths = [top[len(top) // 2 :].mean() - top[: len(top) // 2].mean() for top in tops]
    return bool(growths) and abs(float(np.median(growths))) > GROWS * step
