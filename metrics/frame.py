"""Metric frames: one row per group, one column per metric and gap. Metrics are read from merged statistics, never merged."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from ratioscope.record import GAPS

from .merge import KEYS, LISTS, merge
from .metric import Metric, Reading, Tail, Values
from .registry import METRICS
from .statistic import Statistic


def metric_frame(statistics: pl.DataFrame, by: Sequence[str] = ("step",)) -> pl.DataFrame:
    """One row per group: columns `by`, then `<gap>/<metric>` and, where it has a standard error, `<gap>/<metric>_se`.

    by: any of attempt, step, and the name of one slice ("lag", "position", ...), whose column then holds its keys. Null
    means not available; see `unavailable` for why.
    """
    slices = [name for name in by if name not in ("attempt", "step")]
    if len(slices) > 1:
        raise ValueError(f"by={tuple(by)!r} names {len(slices)} slices; statistics are kept for one slice at a time")
    chosen = statistics.filter(pl.col("slice") == (slices[0] if slices else "all"))
    keys = [name for name in by if name in KEYS]
    histograms = [name for names in LISTS if len(names) > 1 for name in names]
    groups = merge(chosen.drop(histograms, strict=False), (*keys, *(["key"] if slices else []), "gap"))
    frames = [_gap_frame(groups, gap) for gap in GAPS]
    return _side_by_side([f for f in frames if len(f)], [*keys, *(["key"] if slices else [])]).rename(
        {"key": slices[0]} if slices else {}
    )


def _gap_frame(groups: pl.DataFrame, gap: str) -> pl.DataFrame:
    rows = groups.filter(pl.col("gap") == gap)
    values = _Values(rows)
    columns = {}
    for metric in METRICS:
        if gap in metric.gaps:
            columns[f"{gap}/{metric.name}"] = values.read(metric)
            if metric.error:
                columns[f"{gap}/{metric.name}_se"] = values.read(metric.error)
    kept = {key: rows[key] for key in KEYS if key in rows.columns and key != "gap"}
    return pl.DataFrame(
        kept | {name: pl.Series(column, dtype=pl.Float64, nan_to_null=True) for name, column in columns.items()}
    )


class _Values:
    """Readings of one table of merged statistics; what several of them share is read once."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self._rows = rows
        self._known: dict[Statistic | Tail | Reading, Any] = {}

    def read(self, reading: Metric | Reading) -> Values:
        """The reading's value per row, NaN where it is not available."""
        with np.errstate(all="ignore"):
            return np.asarray(reading.value(*map(self._need, reading.needs)), np.float64)

    def _need(self, need: Statistic | Tail | Reading) -> Any:
        if need not in self._known:
            self._known[need] = self.read(need) if isinstance(need, Reading) else self._column(need)
        return self._known[need]

    def _column(self, need: Statistic | Tail) -> Any:
        if need.name not in self._rows.columns:
            return np.full(len(self._rows), np.nan) if isinstance(need, Statistic) else [None] * len(self._rows)
        column = self._rows[need.name]
        if isinstance(need, Tail):
            return [None if part is None else np.asarray(part) for part in column]
        return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _side_by_side(frames: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    if not frames:
        return pl.DataFrame()
    wide = frames[0]
    for frame in frames[1:]:
        wide = wide.join(frame, on=list(keys), how="full", coalesce=True) if keys else wide.hstack(frame)
    return wide.sort(list(keys)) if keys else wide
