"""Metric frames: a row per group, a column per metric and gap, computed from statistics that were merged first."""

from collections.abc import Container, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from ratioscope.record import GAPS, sides

from .definitions.registry import METRICS
from .definitions.tail import SHAPES, TAILS
from .merging import KEYS, LISTS, merge
from .metric import Metric, Quantity, Statistic, Tail
from .table_metrics import gap_values


def metric_frame(
    statistics: pl.DataFrame, by: Sequence[str] = ("step",), names: Container[str] | None = None
) -> pl.DataFrame:
    """One row per group: columns `by`, then `<gap>/<metric>` and, where it has a standard error, `<gap>/<metric>_se`.

    by: any of attempt, step, and the name of one slice ("lag", "position", ...), whose column then holds its keys. A null
    value is not available; `unavailable` says why. names: the metrics to compute; None: all.
    """
    slices = [name for name in by if name not in ("attempt", "step")]
    if len(slices) > 1:
        raise ValueError(f"by={tuple(by)!r} names {len(slices)} slices; statistics are kept for one slice at a time")
    keys = [*(name for name in by if name in KEYS), *(["key"] if slices else [])]
    histograms = [name for names in LISTS if len(names) > 1 for name in names]
    # The rows of the slice; the table itself, without a copy, if it has no other rows.
    own = statistics["slice"] == (slices[0] if slices else "all")
    chosen = (statistics if own.all() else statistics.filter(own)).drop(histograms, strict=False)
    groups = merge(chosen, (*keys, "gap"))
    wide = _side_by_side(
        [_gap_frame(part, gap, names) for gap in gaps_of(groups) if len(part := groups.filter(gap=gap))], keys
    )
    return wide.rename({"key": slices[0]}) if slices and "key" in wide.columns else wide


def gaps_of(statistics: pl.DataFrame) -> list[str]:
    """The gaps with a row in the table: those of GAPS in their order, then others by name."""
    present = statistics["gap"].unique().to_list() if "gap" in statistics.columns else []
    return [*(gap for gap in GAPS if gap in present), *sorted(set(present) - set(GAPS))]


def unavailable(statistics: pl.DataFrame, gaps: Sequence[str] = tuple(GAPS)) -> dict[str, str]:
    """`<gap>/<metric>` -> "because ..." for every metric of these gaps that has no value over the whole table."""
    frame = metric_frame(statistics, by=())
    reasons = {}
    for gap in gaps:
        earlier, later = sides(gap)
        for metric in METRICS:
            name = f"{gap}/{metric.name}"
            if not metric.is_of(gap) or (name in frame.columns and frame[name].null_count() < len(frame)):
                continue
            unrecorded = f"no row has both {earlier}_logprobs and {later}_logprobs"
            reasons[name] = f"because {why_absent(metric, gap, frame) if name in frame.columns else unrecorded}"
    return reasons


def why_absent(metric: Metric, gap: str, frame: pl.DataFrame) -> str:
    """The reason why a metric has no value in the last row of a metric frame."""

    return metric.absent if metric.why is None else metric.why(lambda name: value_in(frame, f"{gap}/{name}", -1))


def value_in(frame: pl.DataFrame, column: str, row: int = 0) -> float | None:
    """The value of a column in the first row, or in another one; None without the column or without a row."""
    return frame[column][row] if column in frame.columns and len(frame) else None


def statistics_read(names: Container[str]) -> tuple[str, ...]:
    """The columns of a statistics table that these metrics are computed from."""
    chosen = [metric for metric in METRICS if metric.name in names]
    scalars = {statistic.name for metric in chosen for statistic in metric.statistics}
    return (*sorted(scalars), *(tail.name for tail in TAILS if any(_reads(metric, tail) for metric in chosen)))


def _reads(metric: Metric, tail: Tail) -> bool:
    waiting = [*metric.needs, *(metric.error.needs if metric.error else ())]
    while waiting:
        need = waiting.pop()
        if need == tail:
            return True
        waiting += need.needs if isinstance(need, Quantity) else ()
    return False


def _gap_frame(rows: pl.DataFrame, gap: str, names: Container[str] | None) -> pl.DataFrame:
    present = set(rows.columns)

    def column(need: Statistic | Tail) -> Any:
        return _column(rows, need) if need.name in present else _absent(rows, need)

    known = {name: rows[name].to_numpy() for shape in SHAPES.values() if (name := shape.column) in present}
    columns = {f"{gap}/{name}": values for name, values in gap_values(column, gap, names, known).items()}
    keys = {key: rows[key] for key in KEYS if key in rows.columns and key != "gap"}
    return pl.DataFrame(
        keys | {name: pl.Series(values, dtype=pl.Float64, nan_to_null=True) for name, values in columns.items()}
    )


def _column(rows: pl.DataFrame, need: Statistic | Tail) -> Any:
    return _lists(rows[need.name]) if isinstance(need, Tail) else rows[need.name].to_numpy()


def _absent(rows: pl.DataFrame, need: Statistic | Tail) -> Any:
    return [None] * len(rows) if isinstance(need, Tail) else np.full(len(rows), np.nan)


def _lists(column: pl.Series) -> list[Any]:
    """One array per list, an empty one for null. The arrays are views of the flat values: a frame may have many thousand rows."""
    flat = column.list.explode(empty_as_null=False, keep_nulls=False).to_numpy()
    ends = column.list.len().fill_null(0).cum_sum().to_list()
    return [flat[start:end] for start, end in pairwise([0, *ends])]  # np.split takes ten times as long


def _side_by_side(frames: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    if not frames:
        return pl.DataFrame(schema={key: pl.String if key == "key" else pl.Int64 for key in keys})
    # A gap may have none of the requested metrics.
    named = [frame for frame in frames if frame.width] or frames[:1]
    wide = named[0]
    for frame in named[1:]:
        wide = wide.join(frame, on=list(keys), how="full", coalesce=True) if keys else wide.hstack(frame)
    return wide.sort(list(keys)) if keys else wide
