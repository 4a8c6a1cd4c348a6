"""Two runs compared by the numbers of each step, where one is a scalar log: the trainer's own, and metrics of ours among them.

A logged mean has no standard error. That of a difference comes from its course: steps lie together in blocks, because neighbours
are alike, and the spread of the means of blocks is that of chance (batch means; Flegal and Jones 2010).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.metrics.analysis.comparison import NAN, Compared, Estimate
from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.definitions.registry import BY_NAME, is_metric
from ratioscope.metrics.known.trainers import trainer_named
from ratioscope.metrics.logged_names import logged_name, trainers

from ..run import Run

TwoRanges = tuple[range | None, range | None]
"""Steps of A and of B; None for all."""
FEWEST = 4
"""Steps from which on blocks have an error."""


@dataclass(frozen=True)
class LoggedNumbers:
    """The numbers of each step that two runs have in common."""

    compared: tuple[Compared, ...]
    """Means over steps, those of a gap first, then the surest. A metric of ours in both runs is named `<gap>/<metric>`."""
    near: Mapping[str, str]
    """Name -> the `<gap>/<metric>` that it is or comes close to."""
    steps: int
    """The most steps that a number is compared over."""
    is_paired: bool
    """True if each is compared at the steps that both runs have; False if a number has too few of them."""

    def size(self, gap: str) -> str | None:
        """The number for the size of a gap: the usual metric, else one that comes close to a metric that grows with a gap.

        gap: the one that is preferred. None if there is no such number.
        """
        known = [one.metric for one in self.compared if _grows(self.near.get(one.metric, ""))]
        usual = f"{gap}/{size_metric(gap)}"
        return (
            usual if usual in known else min(known, key=lambda name: not self.near[name].startswith(gap), default=None)
        )


def _grows(near: str) -> bool:
    metric = BY_NAME.get(near.partition("/")[2])
    return metric is not None and metric.worse == "above" and metric.neutral == 0


def logged_numbers(a: Run, b: Run, steps: TwoRanges = (None, None)) -> LoggedNumbers:
    """Every number that both runs have, at those of these steps that both have. Values that are not finite do not count.

    A number under the trainer's own name is left out where it stands there as a metric of ours, or where the trainers differ.
    """
    (one, metrics_a), (other, metrics_b) = (numbers_by_step(run, own) for run, own in zip((a, b), steps, strict=True))
    drawn = {
        name for known in (metrics_a, metrics_b) for name, metric in known.items() if metric in one and metric in other
    }
    theirs = {trainer for run in (a, b) if (trainer := trainer_named(run.info.get("trainer"))) is not None}
    common = [name for name in one if name in other and name not in drawn]
    names = [name for name in common if len(theirs) < 2 or is_metric(name)]
    near = {name: found for name in names if (found := _near(name, next(iter(theirs), None)))}
    pairs = [_compared(name, one[name], other[name]) for name in names]
    order = sorted(pairs, key=lambda pair: (pair[0].metric not in near, math.isnan(pair[0].p), pair[0].p))
    most = max((known for _, known in order), default=0)
    is_paired = all(math.isnan(each.a.error) for each, _ in order)
    return LoggedNumbers(tuple(each for each, _ in order), near, most, is_paired)


def numbers_by_step(run: Run, steps: range | None = None) -> tuple[dict[str, pl.DataFrame], dict[str, str]]:
    """(name -> finite rows of step and value, the trainer's name -> `<gap>/<metric>` that it is). The newest attempt counts."""
    metrics = run.metrics(by=("step",))
    columns = [name for name in metrics.columns if is_metric(name)]
    wide = metrics.select("step", *columns).unpivot(columns, index="step", variable_name="name", value_name="value")
    parts = [
        part.select("name", pl.col("step").cast(pl.Int64), pl.col("value").cast(pl.Float64))
        for part in (run.logged.sort("attempt"), wide)
    ]
    rows = pl.concat(parts).unique(["name", "step"], keep="last", maintain_order=True)
    within = True if steps is None else pl.col("step").is_between(steps.start, steps.stop - 1)
    finite = rows.filter(pl.col("value").is_finite(), within)
    known = dict(run.logged.drop_nulls("metric").select("name", "metric").unique().iter_rows())
    return {str(name): own for (name,), own in finite.group_by(["name"], maintain_order=True)}, known


def _near(name: str, trainer: str | None) -> str:
    if is_metric(name):
        return name
    row = logged_name(trainer, name) if trainer in trainers() else None
    return row.near if row is not None else ""


def _compared(name: str, a: pl.DataFrame, b: pl.DataFrame) -> tuple[Compared, int]:
    """(the number over the steps that both have, or over all of each where those are too few, the number of steps)."""
    both = a.join(b, on="step", suffix="_b").sort("step")
    if len(both) >= FEWEST or len(both) == max(len(a), len(b)):
        x, y = both["value"].to_numpy(), both["value_b"].to_numpy()
        error, blocks = _error(y - x)
        means = Estimate(float(x.mean()), NAN, 1), Estimate(float(y.mean()), NAN, 1)
        return Compared(name, *means, paired_error=error, blocks=blocks), len(both)
    x, y = (each.sort("step")["value"].to_numpy() for each in (a, b))
    (of_a, blocks_a), (of_b, blocks_b) = _error(x), _error(y)
    sides = Estimate(float(x.mean()), of_a, 1), Estimate(float(y.mean()), of_b, 1)
    return Compared(name, *sides, blocks=min(blocks_a, blocks_b)), min(len(x), len(y))


def _error(values: Floats) -> tuple[float, int]:
    """(standard error of the mean of a course, blocks that it comes from): about as many blocks as a block has steps."""
    blocks = math.isqrt(len(values))
    if len(values) < FEWEST:
        return NAN, 0
    means = np.array([block.mean() for block in np.array_split(values, blocks)])
    return float(means.std(ddof=1) / math.sqrt(blocks)), blocks
