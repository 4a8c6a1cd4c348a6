"""The run's own correction, read from its settings, and its place among others: by all tokens, or by token rows where it must."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from ratioscope.errors import RatioscopeError
from ratioscope.metrics.corrections.advice import OWN, Advice, ranked
from ratioscope.metrics.corrections.correction import NONE, Correction
from ratioscope.metrics.corrections.threshold import NOTHING, Threshold, rule_name, threshold_of
from ratioscope.metrics.corrections.threshold_effect import threshold_effects
from ratioscope.metrics.dialects import dialect
from ratioscope.metrics.dialects.translation import correction_in
from ratioscope.metrics.grading.finding import Finding
from ratioscope.record import GAPS

from ..run import Run
from .correction_effects import TrainerCorrection, correction_effects, effect_frame
from .diagnosis import diagnosed_gap
from .evidence import steps_to_read
from .own_correction import no_settings, own_correction_of, own_settings

AnyCorrection = Correction | TrainerCorrection


@dataclass(frozen=True)
class InUse:
    """The correction that a run itself uses, by the settings on record."""

    made: Correction | TrainerCorrection | None
    """Its name ends with OWN. None if the settings set none, or are not on record."""
    reason: str = ""
    """Why there is none, as a sentence without a full stop."""


def correction_in_use(info: Mapping[str, Any]) -> InUse:
    """The correction that the settings set. info: the content of run.json. `Any`: whatever JSON holds."""
    own = own_settings(info)
    if own is None:
        return InUse(None, no_settings(info))
    try:
        dialect(own.dialect).parse(own.config)
    except (RatioscopeError, AttributeError, KeyError, TypeError, ValueError) as error:
        return InUse(None, f"the correction settings on record cannot be read: {error}")
    try:
        made = correction_in(own.dialect, own.config)
        rule = threshold_of(made)
    except RatioscopeError:  # more than a Correction can express
        return InUse(TrainerCorrection(f"{own.dialect} settings{OWN}", own.dialect, own.config))
    if not made.steps:
        return InUse(None, "the settings on record set no correction")
    return InUse(replace(made, name=f"{rule.name if rule else f'{own.dialect} settings'}{OWN}"))


def refuted(run: Run) -> str:
    """Words on the run's own correction if the loss mask shows that it is not on; else empty. As `known_context` has them.

    The steps are those that a diagnosis of the run reads, so that its words and those of corrections agree.
    """
    gap = diagnosed_gap(run)
    steps = steps_to_read(run, gap) if "loss_mask" in run.columns else []
    return own_correction_of(run, steps, gap).refuted


def title_of(correction: AnyCorrection) -> str:
    """The name of a correction in words: that of its rule, if it is a single bound on a weight."""
    if isinstance(correction, TrainerCorrection) or correction.name.endswith(OWN):
        return correction.name
    return rule_name(correction)


def reads(correction: AnyCorrection, gap: str) -> bool:
    """True if the correction can be compared with those of this gap. A trainer's own reads the policies that its rows have."""
    return gap in GAPS if isinstance(correction, TrainerCorrection) else correction.gap == gap


def without_double(own: AnyCorrection | None, others: Sequence[AnyCorrection]) -> list[AnyCorrection]:
    """The run's own correction, then the others without the one that does the same."""
    if own is None:
        return [*others]
    return [own, *(each for each in others if not does_the_same(own, each))]


def does_the_same(one: AnyCorrection, other: AnyCorrection) -> bool:
    """True if both are one bound on a weight, and the same one."""
    return bound_of(one) is not None and bound_of(one) == bound_of(other)


def bound_of(correction: AnyCorrection) -> Threshold | None:
    """The correction as one bound on a weight; None if it is none."""
    return None if isinstance(correction, TrainerCorrection) else threshold_of(correction)


def by_histogram(correction: AnyCorrection) -> bool:
    """True for a bound on token weights: histograms of all tokens give its effect, and no token row is needed."""
    bound = bound_of(correction)
    return bound is not None and bound.level == "token"


def ranking(
    run: Run,
    corrections: Sequence[AnyCorrection],
    verdict: Finding,
    *,
    gap: str,
    steps: Sequence[int] | None = None,
    by_step: pl.DataFrame | None = None,
    is_on: bool = True,
) -> Advice | None:
    """The advice for these corrections of a gap, from the effects that pages show; None without one to rank.

    steps: only these; None: all. by_step: the effects on token rows, as `effect_frame` has them by step, where they are known.
    is_on: False if the run's own correction is set, but the record shows that it is not on.
    """
    name = f"{gap}/sequences"
    frame = run.metrics(("step",), names=("sequences",), gap=None if gap in GAPS else gap)
    if name not in frame.columns:
        return None
    ours = [each for each in corrections if reads(each, gap) and each.name != NONE.name]
    if by_step is None and (rest := [each for each in ours if not by_histogram(each)]):
        by_step = effect_frame(correction_effects(run, rest, steps=steps).sums, ("step",))
    known = {title_of(each): _effects(run, each, gap, by_step) for each in ours}
    effects = {title: _at(frame, steps) for title, frame in known.items() if len(frame)}
    nothing = _at(threshold_effects(run.distribution("token", gap), NOTHING), steps)
    sizes = frame.select("step", sequences=pl.col(name).cast(pl.Float64))
    own = next((title for title in effects if is_on and title.endswith(OWN)), "")
    return ranked(effects, nothing, sizes, verdict, own) if effects else None


def _effects(run: Run, correction: AnyCorrection, gap: str, by_step: pl.DataFrame | None) -> pl.DataFrame:
    """The effect of a correction on each step, with the columns of `ranked`."""
    if by_histogram(correction) and (bound := bound_of(correction)):
        return threshold_effects(run.distribution("token", gap), bound)
    assert by_step is not None
    own = by_step.filter(pl.col("correction") == correction.name, pl.col("gap") == gap)
    return own.with_columns(weights=pl.col("tokens"))


def _at(effects: pl.DataFrame, steps: Sequence[int] | None) -> pl.DataFrame:
    return effects if steps is None else effects.filter(pl.col("step").is_in([*steps]))
