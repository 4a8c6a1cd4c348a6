"""Values of a metric over steps: their band over several runs, their smoothed mean, the worst step, the share left unseen."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ratioscope.arrays import Floats, Integers

from ..definitions.validity import TOKENS
from ..metric import Metric

_HALVINGS = 400.0
"""Half-lives per block: weights from 1 to 2^400 do not overflow, and a value older than a block has no weight next to it."""


def smoothed(positions: Floats, values: Floats, half_life: float) -> Floats:
    """At each position the weighted mean of the values up to it. A value counts half as much as one `half_life` later.

    sum_j<=i 2^((x_j - x_i) / half_life) v_j / sum_j<=i 2^((x_j - x_i) / half_life): the first value has no extra weight.
    positions: ascending. half_life: > 0, in units of the positions. Values that are not finite are left out; their mean is NaN.
    """
    known = np.isfinite(values)
    result = np.full(len(values), np.nan)
    if not known.any():
        return result
    x, v = positions[known].astype(np.float64), values[known].astype(np.float64)
    size = float(np.abs(v).max()) or 1.0  # huge values times huge weights would overflow
    age = (x - x[0]) / half_life
    means = np.empty(len(v))
    total = weight = last = 0.0
    for block in np.split(np.arange(len(v)), np.flatnonzero(np.diff(age // _HALVINGS)) + 1):
        start = age[block[0]]
        weights = np.exp2(age[block] - start)
        decay = float(np.exp2(last - start))
        totals = np.cumsum(v[block] / size * weights) + total * decay
        counts = np.cumsum(weights) + weight * decay
        means[block] = totals / counts * size
        total, weight, last = float(totals[-1] / weights[-1]), float(counts[-1] / weights[-1]), float(age[block[-1]])
    result[known] = means
    return result


def unseen_share(metric: Metric, size: float) -> float:
    """Upper bound of a share of which a sample of `size` tokens has no case: 3/N, the rule of three, 95% confidence.

    Tokens are taken as independent. 0 for a metric that is not a share of all tokens, and for no tokens.
    """
    return 3 / size if metric.kind == "share" and TOKENS in metric.needs and size > 0 else 0.0


def badness(metric: Metric, value: pl.Expr) -> pl.Expr:
    """The distance of a value towards the metric's worse side, or from its neutral value if both sides are; larger is worse."""
    return {"above": value, "below": -value, "away": (value - metric.neutral).abs()}[metric.worse]


def worst_step(metric: Metric, steps: pl.DataFrame, gap: str) -> tuple[float | None, int | None]:
    """(value, step) of the worst value; the earlier of two such steps. steps: a metric frame by step.

    (None, None) for a count, which is neither good nor bad, or if no value is known.
    """
    name = f"{gap}/{metric.name}"
    if name not in steps.columns or metric.kind == "count":
        return None, None
    values = steps.select("step", value=pl.col(name)).drop_nulls().drop_nans()
    if values.is_empty():
        return None, None
    worst = badness(metric, pl.col("value"))
    row = values.filter(worst == worst.max()).sort("step").row(0, named=True)
    return row["value"], row["step"]


@dataclass(frozen=True)
class RunSeries:
    """A metric over the steps of one run. Both fields have shape (steps,)."""

    steps: Floats
    """Steps in ascending order, each once."""
    values: Floats
    """NaN if not available."""


@dataclass(frozen=True)
class Across:
    """A metric over the steps of several runs. Every field has shape (steps,)."""

    steps: Floats
    """Every step that any of the runs has, ascending."""
    mean: Floats
    """The mean of the runs that have the step."""
    low: Floats
    """The smallest value of a run."""
    high: Floats
    """The largest value of a run."""
    runs: Integers
    """Number of runs with a value at the step."""


def across(runs: Sequence[RunSeries]) -> Across:
    """Mean, smallest and largest value of the runs at each step. Every run counts once.

    NaN if no run has a value at the step; an infinite value makes the mean infinite.
    """
    empty = np.zeros(0)
    steps = np.unique(np.concatenate([run.steps for run in runs] or [empty]))
    total, counts = np.zeros(len(steps)), np.zeros(len(steps), np.int64)
    low, high = np.full(len(steps), np.nan), np.full(len(steps), np.nan)
    for run in runs:
        available = ~np.isnan(run.values)
        place, values = np.searchsorted(steps, run.steps[available]), run.values[available]
        total[place] += values
        counts[place] += 1
        low[place], high[place] = np.fmin(low[place], values), np.fmax(high[place], values)
    mean = np.where(counts > 0, total / np.maximum(counts, 1), np.nan)
    # Rounding may move the mean of equal values slightly beyond them.
    return Across(steps, np.clip(mean, low, high), low, high, counts)
