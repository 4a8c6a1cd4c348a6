"""Bias against noise: how much of a gap pushes the policy gradient the same way at every step, and how much averages out."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.metrics.analysis.persistence import LEAST_STEPS, Persistence, accumulated, persistence
from ratioscope.metrics.metric import SAMPLED
from ratioscope.record import kin

from ..run import Run
from .copies import judged_first

METRIC = "advantage_excess"
SIZE = "mean_abs_advantage"


@dataclass(frozen=True)
class GradientBias:
    """The bias of a gap in the gradient over the steps of a run. Unit 1: parts of the sum of |A|."""

    gap: str
    steps: tuple[int, ...] = ()
    """Steps with a value, ascending."""
    values: tuple[float, ...] = ()
    """advantage_excess of each of them."""
    found: Persistence | None = None
    """The persistent part; None where it was not tested."""
    because: str = ""
    """Reason why it was not; empty if it was."""

    @property
    def course(self) -> pl.DataFrame:
        """Columns step, value, accumulated and its standard error `accumulated_se`."""
        values = np.array(self.values)
        total, error = accumulated(values, self.found)
        columns: dict[str, Floats | tuple[int, ...]] = {"step": self.steps, "value": values, "accumulated": total}
        return pl.DataFrame(columns | {"accumulated_se": error}).cast({"step": pl.Int64}).fill_nan(None)


def gradient_bias(run: Run, gap: str, steps: range | None = None) -> GradientBias:
    """steps: only these; None: all. A gap whose tokens the earlier policy did not sample has none."""
    if kin(gap) not in SAMPLED:
        return GradientBias(gap, because=f"the tokens of the {gap} are not sampled from its earlier policy")
    frame, name = run.metrics(by=("step",), names=(METRIC, SIZE), gap=gap).sort("step"), f"{gap}/{METRIC}"
    frame = frame if steps is None else frame.filter(pl.col("step").is_between(steps.start, steps.stop - 1))
    known = frame.filter(pl.col(name).is_finite()) if name in frame.columns else frame.clear()
    if known.is_empty():
        return GradientBias(gap, because=_why_absent(run, frame, gap))
    found_steps, values = tuple(known["step"].to_list()), known[name].to_numpy()
    found, own = persistence(values), tuple(values.tolist())
    if not values.any():
        return GradientBias(gap, found_steps, own, None, "every weight is 1: the two sides are equal")
    few = f"it is known at {len(own)} of the {LEAST_STEPS} steps that its error needs"
    return GradientBias(gap, found_steps, own, found, "" if found else few)


def bias_of_run(run: Run) -> GradientBias | None:
    """The bias of the gap that the run is judged by; None without one."""
    gaps = judged_first(run) if run.steps else ()
    return run.once(gradient_bias, gaps[0]) if gaps else None


def _why_absent(run: Run, frame: pl.DataFrame, gap: str) -> str:
    size = f"{gap}/{SIZE}"
    if size in frame.columns and frame[size].drop_nulls().len():
        return "every advantage is 0"
    if "advantages" not in run.columns:
        return "no advantages are on record"
    return (
        "the statistics on record have no advantages: an older ratioscope or another process than that of the "
        "advantages wrote them"
    )


def plain_bias(bias: GradientBias) -> dict[str, Any]:
    """The bias as values that JSON can hold."""
    found = bias.found
    known = None if found is None else asdict(found) | {"total": found.total, "total_error": found.total_error}
    return {
        "gap": bias.gap,
        "metric": METRIC,
        "persistent": None if found is None else found.is_persistent,
        "found": known,
        "because": bias.because,
        "steps": bias.course.to_dicts(),
    }
