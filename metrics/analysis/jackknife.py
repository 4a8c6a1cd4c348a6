"""Standard errors with prompt groups as the independent units, because the samples of one prompt are similar.

The errors in metric frames take sequences as independent. The jackknife leaves out one group at a time: with v_g the metric
without group g, the error is sqrt((G - 1) / G * sum_g (v_g - mean v)^2). Efron 1982, eq. 3.5. It works for every metric,
because statistics merge: the statistics without g are those of all groups before g merged with those of all groups after g.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.arrays import Floats
from ratioscope.record import GAPS

from ..definitions.registry import METRICS
from ..engines.numpy_engine import statistics
from ..engines.slices import Labels
from ..metric import NEUTRAL, Combine, Metric, Statistic, Tail
from ..table_metrics import TableMetrics

FOLD: Mapping[Combine, np.ufunc] = {"sum": np.add, "max": np.maximum, "logsumexp": np.logaddexp}


def group_errors(records: pa.Table, groups: Labels | None = None) -> pl.DataFrame:
    """One row per step: `<gap>/<metric>_se` clustered by group; null if fewer than two groups have the metric.

    groups: one label per row; None: the column `group_id`. Metrics computed from a tail of weights have no such error.
    """
    labels = records["group_id"] if groups is None else groups
    frame = pl.DataFrame(statistics(records, slices={"group": labels}, written=False))
    steps = [_step_errors(part) for _, part in frame.sort("step").group_by("step", maintain_order=True)]
    return pl.concat(steps, how="diagonal_relaxed") if steps else pl.DataFrame(schema={"step": pl.Int64})


def _step_errors(part: pl.DataFrame) -> pl.DataFrame:
    errors: dict[str, float | None] = {}
    for gap in GAPS:
        rows = part.filter(pl.col("gap") == gap)
        if len(rows):
            errors |= {f"{gap}/{name}_se": error for name, error in _gap_errors(rows, gap).items()}
    return pl.DataFrame({"step": [part["step"][0]], **errors}, schema_overrides=dict.fromkeys(errors, pl.Float64))


def _gap_errors(rows: pl.DataFrame, gap: str) -> dict[str, float | None]:
    readings = TableMetrics(lambda need: _without_each(rows, need))
    metrics = [metric for metric in METRICS if gap in metric.gaps and metric.error and not _reads_a_tail(metric)]
    return {metric.name: _spread(readings.read(metric)) for metric in metrics}


def _reads_a_tail(metric: Metric) -> bool:
    return any(not isinstance(need, Statistic) for need in metric.needs)


def _without_each(rows: pl.DataFrame, need: Statistic | Tail) -> Floats:
    """The statistic without each group, shape (groups,)."""
    assert isinstance(need, Statistic)
    neutral, fold = NEUTRAL[need.combine], FOLD[need.combine]
    own = rows[need.name].cast(pl.Float64).fill_null(neutral).to_numpy()
    before = fold.accumulate(np.concatenate(([neutral], own[:-1])))
    after = fold.accumulate(np.concatenate(([neutral], own[:0:-1])))[::-1]
    return np.asarray(fold(before, after), np.float64)


def _spread(left_out: Floats) -> float | None:
    """The jackknife error; None if a value is not finite or there are fewer than two."""
    if len(left_out) < 2 or not np.isfinite(left_out).all():
        return None
    return float(np.sqrt((len(left_out) - 1) * np.mean((left_out - left_out.mean()) ** 2)))
