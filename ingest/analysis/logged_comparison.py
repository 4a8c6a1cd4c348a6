"""Two runs compared by the numbers of each step, where one is a scalar log: the trainer's own, and metrics of ours among them.

A logged mean has no standard error. That of a difference comes from its course: steps lie together in blocks, because neighbours
are alike, and the spread of the means of blocks is that of chance (batch means; Flegal and Jones 2010).
"""

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.metrics.analysis.comparison import NAN, student_tail
from ratioscope.metrics.definitions.registry import is_metric
from ratioscope.metrics.known.trainers import trainer_named
from ratioscope.metrics.logged_names import logged_name, trainers

from ..run import Run

FEWEST = 4
"""Steps from which on blocks have an error."""


@dataclass(frozen=True)
class LoggedDifference:
    """One number of both runs. Differences are b - a."""

    name: str
    """The trainer's name, or `<gap>/<metric>` of a number that is a metric of ours in both runs."""
    near: str
    """The `<gap>/<metric>` that it is or comes close to; empty if it is none."""
    steps: int
    """Steps that both runs have, or the fewer steps of the two where they have none in common."""
    is_paired: bool
    """True if the same steps are compared; False if the two runs have too few steps in common."""
    a: float
    """Mean over the steps of the first run."""
    b: float
    """Mean over the steps of the second run."""
    error: float
    """Standard error of the difference; NaN with fewer than FEWEST steps."""
    blocks: int
    """Blocks of steps that the error comes from, of the run with fewer; 0 without an error."""

    @property
    def difference(self) -> float:
        return self.b - self.a

    @property
    def ratio(self) -> float:
        """b / a; NaN unless both are positive."""
        return self.b / self.a if self.a > 0 and self.b > 0 else NAN

    @property
    def z(self) -> float:
        """The difference in its standard errors; NaN without an error, or with an error of 0."""
        return self.difference / self.error if self.error > 0 else NAN

    @property
    def p(self) -> float:
        """The two-sided p-value of the difference by Student's t of the blocks; 0 for a difference without any spread."""
        if self.error == 0 and self.difference:
            return 0.0
        return NAN if math.isnan(self.z) else student_tail(abs(self.z), self.blocks - 1)


def logged_differences(a: Run, b: Run) -> tuple[LoggedDifference, ...]:
    """Every number that both runs have, those of a gap first, then the surest. Values that are not finite do not count.

    A number under the trainer's own name is left out where it stands there as a metric of ours, or where the trainers differ.
    """
    (one, metrics_a), (other, metrics_b) = _numbers(a), _numbers(b)
    drawn = {
        name for known in (metrics_a, metrics_b) for name, metric in known.items() if metric in one and metric in other
    }
    trainers_known = {trainer for run in (a, b) if (trainer := trainer_named(run.info.get("trainer"))) is not None}
    common = [name for name in one if name in other and name not in drawn]
    names = [name for name in common if len(trainers_known) < 2 or is_metric(name)]
    trainer = next(iter(trainers_known), None)
    found = [_compared(name, _near(name, trainer), one[name], other[name]) for name in names]
    return tuple(sorted(found, key=lambda each: (not each.near, math.isnan(each.p), each.p)))


def _numbers(run: Run) -> tuple[dict[str, pl.DataFrame], dict[str, str]]:
    """(name -> rows of step and value, the trainer's name -> `<gap>/<metric>` that it is) of a run. The newest attempt counts."""
    metrics = run.metrics(by=("step",))
    columns = [name for name in metrics.columns if is_metric(name)]
    wide = metrics.select("step", *columns).unpivot(columns, index="step", variable_name="name", value_name="value")
    parts = [
        part.select("name", pl.col("step").cast(pl.Int64), pl.col("value").cast(pl.Float64))
        for part in (run.logged.sort("attempt"), wide)
    ]
    rows = pl.concat(parts).unique(["name", "step"], keep="last", maintain_order=True)
    finite = rows.filter(pl.col("value").is_finite())
    known = dict(run.logged.drop_nulls("metric").select("name", "metric").unique().iter_rows())
    return {str(name): own for (name,), own in finite.group_by(["name"], maintain_order=True)}, known


def _near(name: str, trainer: str | None) -> str:
    if is_metric(name):
        return name
    row = logged_name(trainer, name) if trainer in trainers() else None
    return row.near if row is not None else ""


def _compared(name: str, near: str, a: pl.DataFrame, b: pl.DataFrame) -> LoggedDifference:
    """The number over the steps of both, over all steps where they share too few."""
    both = a.join(b, on="step", suffix="_b").sort("step")
    if len(both) >= FEWEST or len(both) == max(len(a), len(b)):
        x, y = both["value"].to_numpy(), both["value_b"].to_numpy()
        error, blocks = _error(y - x)
        return LoggedDifference(name, near, len(both), True, float(x.mean()), float(y.mean()), error, blocks)
    x, y = (each.sort("step")["value"].to_numpy() for each in (a, b))
    (of_a, blocks_a), (of_b, blocks_b) = _error(x), _error(y)
    error, blocks = math.hypot(of_a, of_b), min(blocks_a, blocks_b)
    return LoggedDifference(name, near, min(len(x), len(y)), False, float(x.mean()), float(y.mean()), error, blocks)


def _error(values: Floats) -> tuple[float, int]:
    """(standard error of the mean of a course, blocks that it comes from): about as many blocks as a block has steps."""
    blocks = math.isqrt(len(values))
    if len(values) < FEWEST:
        return NAN, 0
    means = np.array([block.mean() for block in np.array_split(values, blocks)])
    return float(means.std(ddof=1) / math.sqrt(blocks)), blocks
