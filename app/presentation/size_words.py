"""The size of a gap in words, the same on every face: now, at its worst step and over the whole run, each with its steps.

The size now also in times of the run's own calm level, and of the pinned run.
"""

import math
from typing import TYPE_CHECKING

from ratioscope.metrics.definitions.registry import BY_NAME

from .digits import count
from .noise_floor import FloorValue, NoiseFloor, times, times_words
from .value_text import value_words

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.gap_history import GapSize, Size

NAME = "size of the gap"


def size_words(size: "GapSize | None", floor: NoiseFloor | None = None) -> str:
    """The three numbers with their steps, one of them if there is one step; empty without a size.

    floor: the baseline or pinned run that stands beside the number now; None without one.
    """
    if size is None:
        return ""
    metric = BY_NAME[size.metric]
    beside = "" if floor is None else times_words(floor, metric, size.gap, size.now.value, size.now.error)
    said = f", {beside}" if beside else ""
    if size.worst.value == 0 == size.whole.value:
        return f"{metric.estimator} 0 {metric.unit} {_steps(size.whole)}: the two sides are equal at every token"
    if size.whole.steps == 1:
        return f"{metric.estimator} {_value(size, size.now)} {metric.unit} at step {size.now.last}{said}"
    whole = "whole run" if size.is_whole else "chosen steps"
    return (
        f"{metric.estimator} now {_value(size, size.now)} {metric.unit} (step {size.now.last}){_calm(size)}{said} · worst "
        f"{_value(size, size.worst)} (step {size.worst.last}) · {whole} {_value(size, size.whole)} {_steps(size.whole)}"
    )


def _calm(size: "GapSize") -> str:
    """The size now beside the level before the gap rose, with both ends of that; empty without one."""
    if size.calm is None:
        return ""
    own = FloorValue(size.calm.value, math.nan if size.calm.error is None else size.calm.error)
    level = f"its calm level {_value(size, size.calm)} {_steps(size.calm)}"
    return f", {times(level, own, size.now.value, size.now.error)}"


def _steps(own: "Size") -> str:
    return f"({count(own.steps, 'step')}, {own.first} to {own.last})"


def _value(size: "GapSize", own: "Size") -> str:
    return value_words(size.metric, own.value, own.error)
