"""Metrics of one step from its statistics, without polars, for the collector's writer thread."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.record import GAPS

from ..definitions.tail import K
from ..metric import Statistic, Tail
from ..table_metrics import gap_values
from .arrow_columns import pc

_MERGED: dict[str, Callable[[Any], Any]] = {"sum": np.sum, "max": np.max, "logsumexp": np.logaddexp.reduce}


def step_values(statistics: pa.Table, names: Sequence[str] | None = None) -> dict[str, float]:
    """`mismatch/kl_k3` -> value over all rows of slice `all`, and `mismatch/kl_k3_se` -> its standard error if it has one.

    names: the metrics to compute (None: all). Metrics without a value are left out. The rows may be parts of one step, but
    every token must be counted once, as it is in tables that the numpy engine made of disjoint rows.
    """
    result: dict[str, float] = {}
    for gap in GAPS:
        rows = statistics.filter((pc.field("gap") == gap) & (pc.field("slice") == "all"))
        if len(rows):
            values = gap_values(partial(_merged, rows), gap, names)
            result |= {f"{gap}/{name}": float(value[0]) for name, value in values.items()}
    return {name: value for name, value in result.items() if not np.isnan(value)}


def _merged(rows: pa.Table, need: Statistic | Tail) -> Any:
    if need.name not in rows.column_names:
        return [None] if isinstance(need, Tail) else np.full(1, np.nan)
    if isinstance(need, Tail):
        together = pc.list_flatten(rows[need.name]).to_numpy()
        return [np.sort(together)[::-1][:K]]
    return np.array([_MERGED[need.combine](rows[need.name].to_numpy())])
