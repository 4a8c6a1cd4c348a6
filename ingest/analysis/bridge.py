"""The correction that bridges a likely cause until it is mended, in the syntax of the run's trainer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.metrics.corrections.advice import Advice, advice, risk_per_step
from ratioscope.metrics.corrections.correction import NONE, USUAL, Correction, weighted_gap
from ratioscope.metrics.corrections.threshold import threshold_of
from ratioscope.metrics.dialects import NAMES
from ratioscope.metrics.dialects.translation import written
from ratioscope.metrics.grading.finding import Finding
from ratioscope.metrics.known.faults import can_be_corrected
from ratioscope.metrics.known.trainers import DIALECT

from ..run import Run
from .correction_effects import correction_effects, effect_frame
from .diagnosis import RunDiagnosis

FOREIGN = ("slime.", "examples.")
"""A setting of slime that contains one of these names a function of slime, which miles has elsewhere."""


@dataclass(frozen=True)
class Bridge:
    """The correction to use while a cause is being mended."""

    cause: str
    """Code of the likeliest cause."""
    helps: bool
    """False if no correction can help, because the log-probs are not those of what was sampled."""
    advice: Advice | None = None
    """The comparison of corrections; None if none was compared."""
    settings: str = ""
    """The recommended correction in the syntax of the run's trainer; empty if the trainer has none, or is not known."""
    rule: str = ""
    """The name that the page of corrections gives the recommended one, such as `truncate token at 2`; empty if it has none."""
    steps: int = 0
    """Number of steps on which corrections were compared."""

    @property
    def best(self) -> str:
        """The recommended correction and its rule, such as `Token TIS 2 (truncate token at 2)`; empty without one."""
        best = self.advice.best if self.helps and self.advice is not None else None
        return f"{best} ({self.rule})" if best and self.rule else best or ""

    @property
    def words(self) -> str:
        """The recommendation, in sentences."""
        if not self.helps:
            return "no correction helps: weights made of these log-probs are no importance weights; fix the cause"
        if self.advice is None:
            return ""
        if self.advice.best is None:
            return self.advice.title[0].lower() + self.advice.title[1:]
        own = "; its settings are below" if self.settings else ""
        read = f"at the {self.steps} steps that were read" if self.steps > 1 else "at the step that was read"
        rank = "" if self.advice.as_good else " best"
        return f"{self.best} bridges the gap{rank} {read} ({self.advice.confidence} confidence){own}"


def bridge_of(run: Run, result: RunDiagnosis, verdict: Finding, trainer: str | None) -> Bridge | None:
    """The bridge for the likeliest cause that explains a part of the gap; None if no cause does.

    Corrections are compared on the steps that the diagnosis has read. trainer: only corrections that it can express are
    compared; None, or a trainer without a dialect: all.
    """
    likely = next((item for item in result.diagnosis.likely if item.share is not None), None)
    if likely is None:
        return None
    code = likely.cause.code
    if not can_be_corrected(code):
        return Bridge(code, helps=False)
    gap = weighted_gap(result.gap)
    if gap is None:
        return Bridge(code, helps=True)
    texts = {each.name: _written(each, trainer) for each in USUAL if each.steps}
    fair = [replace(each, gap=gap) for each in USUAL if texts.get(each.name) is not None]
    recommendation = _advice(run, result.steps, fair, replace(NONE, gap=gap), verdict)
    best = None if recommendation is None else recommendation.best
    if best is None:
        return Bridge(code, helps=True, advice=recommendation)
    return Bridge(code, True, recommendation, texts[best] or "", _rule(best), len(result.steps))


def _advice(
    run: Run, steps: Sequence[int], corrections: Sequence[Correction], nothing: Correction, verdict: Finding
) -> Advice | None:
    name = f"{nothing.gap}/sequences"
    frame = run.metrics(by=("step",), names=("sequences",))
    if name not in frame.columns or not corrections:
        return None
    sizes = frame.select("step", sequences=pl.col(name).cast(pl.Float64))
    sums = correction_effects(run, [*corrections, nothing], steps=steps).sums
    effects = {key[0]: part for key, part in effect_frame(sums, ("step",)).group_by("correction", maintain_order=True)}
    if nothing.name not in effects:
        return None
    risks = {each.name: risk_per_step(effects[each.name], sizes) for each in corrections}
    return advice(risks, risk_per_step(effects[nothing.name], sizes), verdict)


def _rule(name: str) -> str:
    """The correction of this name as one bound on a weight; empty if it takes several steps."""
    threshold = next(threshold_of(each) for each in USUAL if each.name == name)
    return threshold.name if threshold else ""


def _written(correction: Correction, trainer: str | None) -> str | None:
    """The correction in the trainer's syntax; "" for a trainer without a dialect; None if the trainer cannot express it."""
    dialect = DIALECT.get(trainer or "", trainer)
    if dialect not in NAMES:
        return ""
    try:
        text = written(dialect, correction)
    except ConfigError:
        return None
    return None if dialect != trainer and any(name in text for name in FOREIGN) else text


def plain_bridge(bridge: Bridge | None) -> Mapping[str, Any] | None:
    """A bridge as values that JSON can hold."""
    if bridge is None:
        return None
    own = bridge.advice
    return {
        "cause": bridge.cause, "helps": bridge.helps, "correction": None if own is None else own.best, "words": bridge.words,
        "confidence": None if own is None else own.confidence, "why": "" if own is None else own.why,
        "settings": bridge.settings,
    }  # fmt: skip
