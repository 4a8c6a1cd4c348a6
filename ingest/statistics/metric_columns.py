"""Parts of a frame of metrics: one gap, some steps, some metrics; logged values beside recorded ones; distributions by step."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.metrics.distribution import EDGES, Level, histogram_columns
from ratioscope.metrics.merging import KEYS

ChosenSteps = range | frozenset[int]
"""Some of the steps of a run."""
_LOGGED = " logged"


def columns_of_gap(frame: pl.DataFrame, gap: str) -> list[str]:
    """The columns of a frame of metrics without those of other gaps."""
    return [column for column in frame.columns if "/" not in column or column.startswith(f"{gap}/")]


def within(frame: pl.DataFrame, steps: ChosenSteps) -> pl.DataFrame:
    """Rows of these steps."""
    if not steps:
        return frame.clear()
    if not isinstance(steps, range):
        return frame.filter(pl.col("step").is_in(sorted(steps)))
    lowest, highest = min(steps[0], steps[-1]), max(steps[0], steps[-1])
    if abs(steps.step) == 1:
        return frame.filter(pl.col("step").is_between(lowest, highest))
    return frame.filter(pl.col("step").is_in(list(steps)))


def beside(recorded: pl.DataFrame, logged: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Recorded values, and logged ones where no value is recorded."""
    if not len(recorded):
        return logged
    if not by:
        return recorded.with_columns(logged.select(column for column in logged.columns if column not in recorded))
    both = recorded.join(logged, on=list(by), how="full", coalesce=True, suffix=_LOGGED)
    twice = [column for column in logged.columns if f"{column}{_LOGGED}" in both.columns]
    chosen = both.with_columns(pl.coalesce(column, f"{column}{_LOGGED}").alias(column) for column in twice)
    return chosen.drop(f"{column}{_LOGGED}" for column in twice).sort(column_order(by))


def slice_of(by: Sequence[str]) -> str:
    """The slice among these group columns, `all` if there is none. ConfigError if there are several."""
    slices = [name for name in by if name not in ("step", "attempt")]
    if len(slices) > 1:
        raise ConfigError(f"by={tuple(by)!r} names {len(slices)} slices; wanted at most one beside step and attempt")
    return slices[0] if slices else "all"


def column_order(by: Sequence[str]) -> list[str]:
    """The group columns by which a frame is sorted: keys of statistics first."""
    return [*(name for name in by if name in KEYS), *(name for name in by if name not in KEYS)]


def of_names(frame: pl.DataFrame, by: Sequence[str], names: Sequence[str]) -> pl.DataFrame:
    """The columns of these metrics in a frame of all."""
    wanted = {*names, *(f"{name}_se" for name in names)}
    return frame.select(name for name in frame.columns if name in by or name.partition("/")[2] in wanted)


_COLUMNS = ("bucket", "count", "log_sum_weight", "log_sum_square_weight")


def distribution_frame(statistics: pl.DataFrame, level: Level, gap: str) -> pl.DataFrame:
    """One row per step and non-empty bucket: low <= x < high in nats, its count, log(sum of w) and log(sum of w^2)."""
    lists = histogram_columns(level)
    buckets = (
        statistics.filter(gap=gap)
        .select("step", *lists)
        .filter(pl.col(lists[0]).list.len() > 0)
        .explode(lists)
        .rename(dict(zip(lists, _COLUMNS, strict=True)))
    )
    place = buckets["bucket"].to_numpy()
    return buckets.with_columns(
        low=np.concatenate(([-np.inf], EDGES))[place], high=np.concatenate((EDGES, [np.inf]))[place]
    ).select("step", "bucket", "low", "high", *_COLUMNS[1:])
