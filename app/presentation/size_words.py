"""The size of a gap in words, the same on every face: now, at its worst step and over the whole run, each with its steps."""

from typing import TYPE_CHECKING

from ratioscope.metrics.definitions.registry import BY_NAME

from .digits import count
from .value_text import value_words

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.gap_size import GapSize, Size

NAME = "size of the gap"


def size_words(size: "GapSize | None") -> str:
    """The three numbers with their steps, one of them if there is one step; empty without a size."""
    if size is None:
        return ""
    metric = BY_NAME[size.metric]
    if size.whole.steps == 1:
        return f"{metric.estimator} {_value(size, size.now)} {metric.unit} at step {size.now.last}"
    whole = "whole run" if size.is_whole else "chosen steps"
    steps = f"{count(size.whole.steps, 'step')}, {size.whole.first} to {size.whole.last}"
    return (
        f"{metric.estimator} now {_value(size, size.now)} {metric.unit} (step {size.now.last}) · worst "
        f"{_value(size, size.worst)} (step {size.worst.last}) · {whole} {_value(size, size.whole)} ({steps})"
    )


def _value(size: "GapSize", own: "Size") -> str:
    return value_words(size.metric, own.value, own.error)
