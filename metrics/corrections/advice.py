"""The best of several corrections, those as good as it, and how sure it is that it helps. It never contradicts the verdict.

The measure of a correction is a proxy of the squared error of a step's gradient, in units of the squared advantage:

    risk = bias^2 + 1 / (ess * sequences), the second term at most 1

w is the exact weight of a token and v the weight after the correction. bias = mean |v - w| bounds the error that the changed
weights add. ess * sequences is the effective number of independent samples, if the tokens of a sequence move together. The
risk does not depend on the scale of the weights: a correction gains nothing by making the step smaller. The risk is a
convention of this project.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from ratioscope.arrays import Booleans, Floats

from ..grading.finding import Confidence, Finding, Severity

RECORDS = frozenset({"non_finite", "positive_logprobs", "alignment", "mean_weight", "surprisal"})
"""Signals of wrong records: the recorded log-probs are not the sampler's, so weights computed from them correct nothing."""
SURE, LIKELY = 3.0, 2.0
"""The better of two corrections is sure, or likely, from this many standard errors between them on. Conventions."""
WORTH = 0.05
"""A correction makes a difference if it lowers the risk of no correction by at least this share. A convention."""
FEW = 5
"""With fewer steps than this no correction is recommended. A convention."""
AdviceOutcome = Literal[
    "repair the records first", "none is needed", "none makes a difference", "none helps for sure", "one helps"
]


@dataclass(frozen=True)
class Advice:
    """Advice on corrections, for a person to read."""

    outcome: AdviceOutcome
    best: str | None
    """Name of the recommended correction; None if none is recommended."""
    title: str
    why: str
    """The reasons, in sentences."""
    confidence: Confidence
    """The certainty that the recommended correction lowers the risk, or that none is to be recommended."""
    as_good: tuple[str, ...] = ()
    """Names of those whose risk is too close to that of the recommended one to call, ascending by risk."""


def risk(bias: Floats, ess: Floats, sequences: Floats) -> Floats:
    """The risk of each step; NaN for a step without sequences.

    bias, ess: `bias` and `ess_after` of effect.EFFECTS, shape (steps,). An ess of NaN means that no weight is left.
    """
    with np.errstate(all="ignore"):
        noise = np.minimum(1 / (np.where(np.isnan(ess), 0.0, ess) * sequences), 1.0)
        return bias**2 + np.where(sequences > 0, noise, np.nan)


def risk_per_step(effects: pl.DataFrame, sequences: pl.DataFrame) -> Floats:
    """The risk at each step of `effects`, ascending by step; NaN where the step's sequences are not on record.

    effects: a frame with the columns step, bias, ess_after (see effect.EFFECTS). sequences: a frame with step, sequences.
    """
    steps = effects.join(sequences, on="step", how="left").sort("step")
    columns = (steps[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in ("bias", "ess_after", "sequences"))
    return risk(*columns)


def advice(risks: Mapping[str, Floats], nothing: Floats, verdict: Finding) -> Advice:
    """The advice for a run.

    risks: name of a correction -> risk per step, the same steps for all corrections. nothing: risk per step without any
    correction. verdict: the verdict of the run, see run_verdict.py.
    """
    if verdict.signal in RECORDS and verdict.severity > Severity.HEALTHY:
        why = f"{verdict.title}: weights made of these log-probs are no importance weights. {verdict.remedy}"
        return Advice("repair the records first", None, "Repair the records before correcting", why, verdict.confidence)
    common = ~np.isnan(nothing)
    for values in risks.values():
        common = common & ~np.isnan(values)
    steps = int(common.sum())
    if not risks or not steps:
        return Advice(
            "none helps for sure", None, "Nothing to compare yet", "No step has been measured for all.", "low"
        )
    means = {name: float(values[common].mean()) for name, values in risks.items()}
    best = min(means, key=lambda name: means[name])
    gain = _in_standard_errors(nothing[common] - risks[best][common])
    if verdict.severity == Severity.HEALTHY:
        return _not_needed(best, means[best], float(nothing[common].mean()), verdict)
    least, most = _reduction(nothing[common], risks[best][common])
    if steps >= FEW and (most < WORTH or LIKELY <= gain and least < WORTH):
        return _no_difference(best, least, most, verdict)
    if gain < LIKELY or steps < FEW:
        why = (
            f"{best} has the smallest risk of those compared, {_lower(means[best], nothing[common])}, "
            f"but {_too_little(gain, steps)}. {verdict.remedy}"
        )
        return Advice("none helps for sure", None, "None of these helps for sure", why, "low")
    return _helps(best, risks, nothing, common)


def _not_needed(best: str, least: float, nothing: float, verdict: Finding) -> Advice:
    change = abs(least / nothing - 1) if nothing > 0 else 0.0
    why = f"In this run {verdict.title}. The best of those compared, {best}, would change the risk by {change:.1%}."
    return Advice("none is needed", None, "No correction is needed", why, verdict.confidence)


def _no_difference(best: str, lower: float, most: float, verdict: Finding) -> Advice:
    change = f"{abs(lower):.1%} {'below' if lower >= 0 else 'above'} that of no correction"
    why = (
        f"{best} has the smallest risk of those compared, {change}, and at most {max(most, 0):.1%} with two "
        f"standard errors over steps: below {WORTH:.0%} it makes no difference here. {verdict.remedy}"
    )
    confidence: Confidence = "high" if most < WORTH else "medium"
    return Advice(
        "none makes a difference", None, "No correction needed: none makes a difference here", why, confidence
    )


def _helps(best: str, risks: Mapping[str, Floats], nothing: Floats, common: Booleans) -> Advice:
    own, bare = risks[best][common], nothing[common]
    more = {name: values[common] - own for name, values in risks.items() if name != best}
    others = sorted(more, key=lambda name: float(more[name].mean()))
    as_good = tuple(name for name in others if _in_standard_errors(more[name]) < LIKELY)
    ranked = as_good or others[:1]
    return Advice(
        "one helps",
        best,
        f"{best} helps" if as_good else f"{best} helps most",
        f"Its risk is {_lower(float(own.mean()), bare)}, and lower at {int((own < bare).sum()):,} of {len(own):,} steps."
        + (" As good, too close to call: " if as_good else " Next is " if ranked else "")
        + ", ".join(f"{name}, {_higher(own, more[name])}" for name in ranked)
        + ("." if ranked else "")
        + " A correction limits the harm of the gap and leaves its cause, which the diagnosis names.",
        "high" if _in_standard_errors(bare - own) >= SURE else "medium",
        as_good,
    )


def _reduction(nothing: Floats, own: Floats) -> tuple[float, float]:
    """(share by which the correction lowers the risk of no correction, that share plus two standard errors).

    Both are 0 if the risk of no correction is 0.
    """
    whole = float(nothing.mean())
    if whole <= 0:
        return 0.0, 0.0
    gains = (nothing - own) / whole
    error = float(gains.std(ddof=1)) / len(gains) ** 0.5 if len(gains) > 1 else np.inf
    return float(gains.mean()), float(gains.mean()) + 2 * error


def _lower(mean: float, nothing: Floats) -> str:
    return f"{1 - mean / float(nothing.mean()):.1%} below that of no correction" if nothing.mean() > 0 else "0"


def _higher(own: Floats, more: Floats) -> str:
    one, other, distance = float(own.mean()), float((own + more).mean()), _in_standard_errors(more)
    higher = (
        "higher"
        if one <= 0
        else f"{other / one - 1:.1%} higher"
        if other < 2 * one
        else f"{other / one:.1f} times as high"
    )
    return higher if distance < LIKELY else f"{higher}, {distance:.1f} standard errors apart over steps"


def _too_little(gain: float, steps: int) -> str:
    return (
        f"{steps} step{' is' if steps == 1 else 's are'} too few"
        if steps < FEW
        else f"only {gain:.1f} standard errors over steps"
    )


def _in_standard_errors(differences: Floats) -> float:
    """The mean of paired differences, one per step, divided by its standard error. Steps are taken as independent.

    Infinite if all differences are equal and positive; 0 for fewer than two steps.
    """
    if len(differences) < 2:
        return 0.0
    error = float(differences.std(ddof=1)) / len(differences) ** 0.5
    mean = float(differences.mean())
    return mean / error if error > 0 else (np.inf if mean > 0 else 0.0)
