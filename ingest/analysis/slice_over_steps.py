"""A slice over the steps of a run: metrics by key of the slice and bucket of steps, from merged statistics.

Metrics by version lag over the steps of a run. Neighbouring lags share a bucket where there are many.

The texts of token ids come from token rows that hold both, so that a list of ids can be read.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ratioscope.metrics.analysis.staleness import lag_bucket
from ratioscope.metrics.engines.slices import WRITTEN
from ratioscope.metrics.frame import metric_frame

from ..run import Run

COLUMNS = 120
"""Buckets of steps at most: a screen has no room for more beside the labels."""

SINGLE = 8
"""Number of lags up to which each has its own bucket."""
LAG_COLUMNS = 200


@dataclass(frozen=True)
class StepBuckets:
    """Buckets of steps, in order. All have the same number of recorded steps, as nearly as possible."""

    first: tuple[int, ...]
    """The first step of each bucket."""
    last: tuple[int, ...]
    """The last step of each bucket."""
    steps: int
    """Number of recorded steps in all buckets."""

    @property
    def exact(self) -> bool:
        """True if every step is its own bucket."""
        return len(self.first) == self.steps


def step_buckets(steps: Sequence[int], most: int = COLUMNS) -> StepBuckets:
    """The recorded steps (ascending) in at most `most` buckets."""
    edges = np.linspace(0, len(steps), min(len(steps), most) + 1).round().astype(int).tolist()
    pairs = [(steps[start], steps[stop - 1]) for start, stop in zip(edges, edges[1:], strict=False) if stop > start]
    return StepBuckets(tuple(first for first, _ in pairs), tuple(last for _, last in pairs), len(steps))


def slice_over_steps(
    run: Run, slice_name: str, steps: range | None = None, gap: str | None = None, most: int = COLUMNS
) -> pl.DataFrame:
    """Metrics by bucket of steps and key of the slice. Columns: step and last (the ends of the bucket), the slice, metrics.

    A slice on demand is computed from token rows, once for each bucket of steps. gap: as for Run.metrics.
    """
    recorded = run.steps if steps is None else [step for step in run.steps if step in steps]
    buckets = step_buckets(recorded, most)
    if slice_name in WRITTEN:
        frame = merged_over_steps(run.statistics(slice_name, gap=gap), slice_name, buckets)
    else:
        parts = [
            run.metrics((slice_name,), steps=range(first, last + 1), gap=gap).with_columns(step=pl.lit(first, pl.Int64))
            for first, last in zip(buckets.first, buckets.last, strict=True)
        ]
        frame = pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame(schema={"step": pl.Int64})
    return with_ends(frame, buckets)


def with_ends(frame: pl.DataFrame, buckets: StepBuckets) -> pl.DataFrame:
    """The frame with a column `last`: the last step of the bucket whose first step is `step`."""
    ends = pl.DataFrame({"step": buckets.first, "last": buckets.last}, schema={"step": pl.Int64, "last": pl.Int64})
    return frame.join(ends, on="step", how="left", maintain_order="left")


def merged_over_steps(statistics: pl.DataFrame, slice_name: str, buckets: StepBuckets) -> pl.DataFrame:
    """metric_frame by bucket of steps and slice. `step` is the first step of the bucket."""
    if not buckets.first:
        return metric_frame(statistics.clear(), ("step", slice_name))
    here = statistics.filter(pl.col("step").is_between(buckets.first[0], buckets.last[-1]))
    if buckets.exact:
        return metric_frame(here, ("step", slice_name))
    place = np.searchsorted(np.array(buckets.first), here["step"].to_numpy(), side="right") - 1
    moved = here.with_columns(pl.Series("step", np.array(buckets.first, np.int64)[place]))
    return metric_frame(moved, ("step", slice_name))


def lag_over_steps(
    run: Run, steps: range | None = None, gap: str | None = None, most: int = LAG_COLUMNS
) -> pl.DataFrame:
    """Metrics by bucket of steps and of lags. gap: as for Run.metrics.

    Columns: step and last (first and last step of the bucket), lag (`3` or `3 to 4`), first_lag (to sort by), and metrics.
    """
    recorded = run.steps if steps is None else [step for step in run.steps if step in steps]
    buckets = step_buckets(recorded, most)
    return with_ends(
        merged_over_steps(_together(run.statistics("lag", gap=gap)), "lag", buckets), buckets
    ).with_columns(first_lag=_first())


def lag_table(run: Run, steps: range | None = None, gap: str | None = None) -> pl.DataFrame:
    """Metrics by lag of these steps, as lag_over_steps names lags. gap: as for Run.metrics."""
    statistics = _together(run.statistics("lag", gap=gap))
    here = statistics if steps is None else statistics.filter(pl.col("step").is_in(list(steps)))
    return metric_frame(here, ("lag",)).with_columns(first_lag=_first()).sort("first_lag")


def _together(statistics: pl.DataFrame) -> pl.DataFrame:
    """The statistics with the names of lag buckets as keys."""
    keys = statistics["key"].unique().to_list()
    lags = {key: int(key) for key in keys if key is not None}
    buckets: dict[tuple[int, int], list[int]] = {}
    for lag in lags.values():
        buckets.setdefault(lag_bucket(lag, len(lags) > SINGLE), []).append(lag)
    names = {lag: lag_name(min(held), max(held)) for held in buckets.values() for lag in held}
    named = {key: names[lag] for key, lag in lags.items()}
    return statistics.with_columns(pl.col("key").replace(named)) if named else statistics


def lag_name(first: int, last: int) -> str:
    """Name of a bucket of lags. first, last: the smallest and largest lag on record in it.

    >>> lag_name(2, 2), lag_name(3, 4), lag_name(-7, -1)
    ('2', '3 to 4', 'below 0')
    """
    if last < 0 and first < last:
        return "below 0"
    return str(first) if first == last else f"{first} to {last}"


def _first() -> pl.Expr:
    below = pl.when(pl.col("lag") == "below 0").then(pl.lit(-(2**31)))
    return below.otherwise(pl.col("lag").str.extract(r"^(-?\d+)").cast(pl.Int64, strict=False))


MOST_STEPS = 12
"""Steps that are searched, from the newest back. An id that occurs in none of them has no text."""


def token_names(run: Run, ids: Collection[int], most_steps: int = MOST_STEPS) -> dict[int, str]:
    """id -> its most frequent text. Reads token rows of the newest steps until every id has one."""
    texts = dict[int, str]()
    if "token_texts" not in run.columns:
        return texts
    for step in run.steps[: -most_steps - 1 : -1]:
        missing = set(ids) - set(texts)
        if not missing:
            break
        rows = run.tokens([step], ("token_id", "token_text")).filter(pl.col("token_id").is_in(list(missing)))
        counts = rows.drop_nulls().collect().group_by("token_id", "token_text").len()
        texts |= dict(counts.sort("len", "token_text").select("token_id", "token_text").rows())
    return texts
