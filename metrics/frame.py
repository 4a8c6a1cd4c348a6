"""Metric frames: one row per group, one column per metric and gap. Metrics are read from merged statistics, never merged."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from ratioscope.record import GAPS

from .merge import KEYS, merge
from .metric import Metric, Reading, Tail, Values
from .registry import METRICS


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
    groups = merge(chosen, (*keys, *(["key"] if slices else []), "gap"))
    frames = [_gap_frame(groups, gap) for gap in GAPS]
    return _side_by_side([f for f in frames if len(f)], [*keys, *(["key"] if slices else [])]).rename(
        {"key": slices[0]} if slices else {}
    )


def _gap_frame(groups: pl.DataFrame, gap: str) -> pl.DataFrame:
    rows = groups.filter(pl.col("gap") == gap)
    columns = {}
    for metric in METRICS:
        if gap in metric.gaps:
            columns[f"{gap}/{metric.name}"] = _read(rows, metric)
            if metric.error:
                columns[f"{gap}/{metric.name}_se"] = _read(rows, metric.error)
    kept = {key: rows[key] for key in KEYS if key in rows.columns and key != "gap"}
    return pl.DataFrame(
        kept | {name: pl.Series(values, dtype=pl.Float64, nan_to_null=True) for name, values in columns.items()}
    )


def _read(rows: pl.DataFrame, reading: Metric | Reading) -> Values:
    with np.errstate(all="ignore"):
        return np.asarray(reading.value(*(_values(rows, need.name) for need in reading.needs)), np.float64)


def _values(rows: pl.DataFrame, name: str) -> Values:
    if name not in rows.columns:
        return np.full(len(rows), np.nan)
    return rows[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _side_by_side(frames: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    if not frames:
        return pl.DataFrame()
    wide = frames[0]
    for frame in frames[1:]:
        wide = wide.join(frame, on=list(keys), how="full", coalesce=True) if keys else wide.hstack(frame)
    return wide.sort(list(keys)) if keys else wide
