"""Values of metrics over a table of merged statistics, whoever holds the table."""

from collections.abc import Callable, Container
from typing import Any

import numpy as np

from .definitions.registry import METRICS
from .metric import Metric, Reading, Tail, Values
from .statistic import Statistic

Column = Callable[[Statistic | Tail], Any]
"""Statistic -> its merged values, one per group, NaN where it was not kept; Tail -> one array (or None) per group."""


class Readings:
    """Reads metrics of one table; what several of them share, such as the fit of a tail, is read once."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._known: dict[Statistic | Tail | Reading, Any] = {}

    def read(self, reading: Metric | Reading) -> Values:
        """The value per group; NaN where it is not available."""
        with np.errstate(all="ignore"):
            return np.asarray(reading.value(*map(self._need, reading.needs)), np.float64)

    def _need(self, need: Statistic | Tail | Reading) -> Any:
        if need not in self._known:
            self._known[need] = self.read(need) if isinstance(need, Reading) else self._column(need)
        return self._known[need]


def gap_values(column: Column, gap: str, names: Container[str] | None = None) -> dict[str, Values]:
    """Of a gap, metric name -> value per group, and name_se -> standard error where it has one. names: None for all."""
    readings = Readings(column)
    found: dict[str, Values] = {}
    for metric in METRICS:
        if gap in metric.gaps and (names is None or metric.name in names):
            found[metric.name] = readings.read(metric)
            if metric.error:
                found[f"{metric.name}_se"] = readings.read(metric.error)
    return found
