"""The level of a gap at each step of a run, and its tokens by step and part of a slice.

The size of a gap is a fact with three numbers: now, at the worst step, and over the whole run. Every face reads them here. The
level before the gap rose for good stands beside them: the run's own measure of large.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from ratioscope.arrays import Integers
from ratioscope.metrics.analysis.over_steps import worst_step
from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.diagnosis.changes import changes
from ratioscope.metrics.diagnosis.composition import Mix, at_fixed_mix
from ratioscope.metrics.diagnosis.history import History
from ratioscope.metrics.diagnosis.step_noise import log_error
from ratioscope.metrics.metric import Metric

from ..run import Run
from .copies import judged_first
from .resolution import too_coarse, without_coarse

READ = ("kl_k3", "tokens")
"""Metrics that a history and a mix are made of."""


@dataclass(frozen=True)
class StepMix:
    """The tokens of a gap by step and part of a slice."""

    slice: str
    steps: Integers
    """Shape (steps,), ascending."""
    keys: tuple[str, ...]
    """Key of each part."""
    mix: Mix


def gap_history(frame: pl.DataFrame, gap: str) -> History | None:
    """The level of the gap at each step; None if its K3 is not on record. frame: metrics READ by step."""
    if f"{gap}/kl_k3" not in frame.columns or f"{gap}/kl_k3_se" not in frame.columns:
        return None
    own = frame.sort("step").select(
        "step", level=pl.col(f"{gap}/kl_k3").cast(pl.Float64), error=pl.col(f"{gap}/kl_k3_se").cast(pl.Float64),
        tokens=pl.col(f"{gap}/tokens").cast(pl.Float64),
    ).filter(pl.col("level") > 0)  # fmt: skip
    level = own["level"].to_numpy()
    error = log_error(own["error"].fill_null(np.nan).to_numpy() / level)
    return History(own["step"].to_numpy(), level, error, own["tokens"].to_numpy())


def history_with_mix(run: Run, gap: str, history: History | None) -> History | None:
    """The history with its levels at one mix of probabilities: another mix of tokens is no fault."""
    own = None if history is None else step_mix(run, gap, "probability", history.steps.tolist())
    if history is None or own is None:
        return history
    levels = np.full(len(history.steps), np.nan)
    levels[np.searchsorted(history.steps, own.steps)] = at_fixed_mix(own.mix)
    return replace(history, fixed_mix=levels)


def step_mix(run: Run, gap: str, slice_name: str, steps: Sequence[int]) -> StepMix | None:
    """The tokens of these steps by part of a written slice; None if it has fewer than 2 parts.

    Steps without tokens, or with an infinite K3, are left out.
    """
    frame = run.metrics(by=("step", slice_name), names=READ)
    names = f"{gap}/kl_k3", f"{gap}/tokens"
    if slice_name not in frame.columns or any(name not in frame.columns for name in names):
        return None
    own = frame.select("step", key=slice_name, level=names[0], tokens=names[1]).drop_nulls()
    own = own.filter(pl.col("step").is_in(list(steps)) & (pl.col("tokens") > 0))
    own = own.filter(pl.col("level").is_finite().all().over("step"))
    distinct, row = np.unique(own["step"].to_numpy(), return_inverse=True)
    keys = sorted(own["key"].unique().to_list(), key=_order)
    if len(keys) < 2:
        return None
    column = own["key"].replace_strict(keys, range(len(keys)), return_dtype=pl.Int64).to_numpy()
    tokens = np.zeros((len(distinct), len(keys)))
    sums = np.zeros_like(tokens)
    tokens[row, column] = own["tokens"].to_numpy()
    sums[row, column] = own["level"].to_numpy() * own["tokens"].to_numpy()
    return StepMix(slice_name, distinct, tuple(keys), Mix(tokens, sums))


def _order(key: str) -> tuple[float, str]:
    """Numbers in their order, then names."""
    try:
        return float(key), key
    except ValueError:
        return np.inf, key


FEWEST_CALM = 3
"""Fewer steps than these have no level. Convention, as that of the floor that growth is graded against."""


@dataclass(frozen=True)
class Size:
    """The size of a gap over all tokens of some steps, as `metrics` has it."""

    value: float
    """In the unit of the metric, nats/token."""
    error: float | None
    """Its standard error, with sequences as units; None if it is not known."""
    steps: int
    """Number of steps with a value."""
    first: int
    """The first of them."""
    last: int
    """The last of them."""


@dataclass(frozen=True)
class GapSize:
    """The size of a gap over the steps that were asked about."""

    gap: str
    metric: str
    """The metric of the size: `kl_k3`, of a drift `kl_k2`."""
    now: Size
    """At the newest step that has a finite value."""
    worst: Size
    """At the step with the largest value."""
    whole: Size
    """Over all these steps."""
    is_whole: bool
    """True if these are all steps of the run."""
    calm: Size | None = None
    """Over the steps before the first lasting rise; None if the gap never rose, or had no level before."""

    @property
    def over(self) -> str:
        """The steps of `whole`, in words that follow its unit; empty for one step."""
        own = self.whole
        steps = f"all {own.steps:,} steps" if self.is_whole else f"steps {own.first} to {own.last}"
        return f" over {steps}" if own.steps > 1 else ""


def gap_size(run: Run, gap: str, steps: Collection[int] | None = None) -> GapSize | None:
    """steps: only these; None: all. None where no step has a finite value of the gap, or its digits are too few for one."""
    metric, coarse = BY_NAME[size_metric(gap)], too_coarse(run)
    chosen = None if steps is None else frozenset(steps)

    def measured(by: tuple[str, ...], among: frozenset[int] | None) -> pl.DataFrame:
        names = (metric.name, "tokens") if by else (metric.name,)
        return without_coarse(run.metrics(by=by, steps=among, names=names, gap=gap), coarse)

    by_step, whole = measured(("step",), chosen), measured((), chosen)
    column = f"{gap}/{metric.name}"
    if column not in by_step.columns or whole[column].null_count():
        return None
    known = by_step.sort("step").filter(pl.col(column).is_not_nan())
    finite = known.filter(pl.col(column).is_finite())["step"].to_list()
    if not finite:
        return None
    _, worst = worst_step(metric, known, gap)
    at = {
        step: _size(known.filter(step=step), metric, gap, (step,)) for step in (finite[-1], worst) if step is not None
    }
    calm = _calm_steps(known, gap)
    return GapSize(
        gap, metric.name, at[finite[-1]], at[worst if worst is not None else finite[-1]],
        _size(whole, metric, gap, known["step"].to_list()), chosen is None or chosen.issuperset(run.steps),
        _size(measured((), frozenset(calm)), metric, gap, calm) if calm else None,
    )  # fmt: skip


def _calm_steps(by_step: pl.DataFrame, gap: str) -> list[int]:
    """The steps before the first lasting rise of the gap; empty if there is none, or if they are too few for a level."""
    history, begin = gap_history(by_step, gap), 0
    for each in () if history is None else changes(history):
        if each.factor > 1:
            end = 0 if each.from_start else min(each.earliest, each.onset)
            calm = by_step.filter(pl.col("step").is_between(begin, end - 1))["step"].to_list()
            return calm if len(calm) >= FEWEST_CALM else []
        begin = max(each.latest, each.onset)
    return []


def size_of_run(run: Run) -> GapSize | None:
    """The size of the gap that the run is judged by."""
    gaps = judged_first(run) if run.steps else ()
    return gap_size(run, gaps[0]) if gaps else None


def _size(row: pl.DataFrame, metric: Metric, gap: str, steps: Collection[int]) -> Size:
    """row: a metric frame of one row."""
    error = f"{gap}/{metric.name}_se"
    own = row[error][0] if error in row.columns else None
    return Size(float(row[f"{gap}/{metric.name}"][0]), own, len(steps), min(steps), max(steps))
