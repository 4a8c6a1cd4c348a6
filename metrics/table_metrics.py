"""Values of metrics from a table of merged statistics, whatever library holds the table."""

from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from ratioscope.arrays import Floats

from .definitions.registry import METRICS
from .metric import Metric, Quantity, Statistic, Tail

StatisticValues = Callable[[Statistic | Tail], Any]
"""Statistic -> its merged values, one per group, NaN if it was not recorded; Tail -> one array (or None) per group."""


NOTHING: Mapping[str, Floats] = {}


class TableMetrics:
    """Computes metrics from one table. Quantities that several metrics share, such as the fit of a tail, are computed once.

    known: column of a quantity -> its values, which are then not computed.
    """

    def __init__(self, values: StatisticValues, known: Mapping[str, Floats] = NOTHING) -> None:
        self._values, self._known = values, known
        self._computed: dict[Statistic | Tail | Quantity, Any] = {}

    def read(self, quantity: Metric | Quantity) -> Floats:
        """The value per group; NaN if it is not available."""
        with np.errstate(all="ignore"):
            return np.asarray(quantity.value(*map(self._need, quantity.needs)), np.float64)

    def _need(self, need: Statistic | Tail | Quantity) -> Any:
        if need not in self._computed:
            self._computed[need] = self._quantity(need) if isinstance(need, Quantity) else self._values(need)
        return self._computed[need]

    def _quantity(self, need: Quantity) -> Floats:
        return self._known[need.column] if need.column in self._known else self.read(need)


def gap_values(
    values: StatisticValues, gap: str, names: Container[str] | None = None, known: Mapping[str, Floats] = NOTHING
) -> dict[str, Floats]:
    """Metric name -> value per group, and `<name>_se` -> its standard error if it has one, for the metrics of a gap.

    names: the metrics to compute; None: all of the gap. known: see TableMetrics.
    """
    table = TableMetrics(values, known)
    result: dict[str, Floats] = {}
    for metric in METRICS:
        if metric.is_of(gap) and (names is None or metric.name in names):
            result[metric.name] = table.read(metric)
            if metric.error:
                result[f"{metric.name}_se"] = table.read(metric.error)
    return result
