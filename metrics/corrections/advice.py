"""Which of several corrections helps most, and how sure that is: said in the same breath as the run's verdict.

A correction is judged by a proxy of the squared error of a step's gradient, in units of the squared advantage:

    risk = bias^2 + 1 / (ess * sequences), the second term at most 1

bias = mean |v - w| bounds what changed weights shift; ess * sequences is how many draws are in effect where the tokens of a
sequence move together. It does not change with the scale of the weights, so that a correction does not win by making the
step smaller. A convention of ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from ..grading.finding import Confidence, Finding, Severity

Floats = npt.NDArray[np.float64]
RECORDS = frozenset({"non_finite", "positive_logprobs", "alignment", "mean_weight", "surprisal"})
"""Signals that say the log-probs are not those of the sampler: weights made of them correct nothing."""
SURE, LIKELY = 3.0, 2.0
"""Standard errors between two corrections from which on one is surely, or likely, the better; conventions."""
WORTH = 0.05
"""Share of the risk of no correction from which on less of it makes a difference; a convention."""
FEW = 5
"""Fewer steps than this say nothing for sure."""
Standing = Literal[
    "repair the records first", "none is needed", "none makes a difference", "none helps for sure", "one helps"
]


@dataclass(frozen=True)
class Advice:
    """standing: what can be said. best: of the corrections compared, None where none can be named. why: in sentences."""

    standing: Standing
    best: str | None
    title: str
    why: str
    confidence: Confidence


def risk(bias: Floats, ess: Floats, sequences: Floats) -> Floats:
    """The risk of each step; NaN without sequences. bias, ess: see correction_effect.EFFECTS, ess NaN where nothing is left."""
    with np.errstate(all="ignore"):
        noise = np.minimum(1 / (np.where(np.isnan(ess), 0.0, ess) * sequences), 1.0)
        return bias**2 + np.where(sequences > 0, noise, np.nan)


def risk_per_step(effects: pl.DataFrame, sequences: pl.DataFrame) -> Floats:
    """The risk at each step of `effects`, ascending by step; NaN where the step's sequences are not on record.

    effects: columns step, bias, ess_after (see threshold_effect.VALUES). sequences: columns step, sequences.
    """
    steps = effects.join(sequences, on="step", how="left").sort("step")
    columns = (steps[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in ("bias", "ess_after", "sequences"))
    return risk(*columns)


def advice(risks: Mapping[str, Floats], nothing: Floats, verdict: Finding) -> Advice:
    """What to do. risks: correction -> risk per step, the same steps for all; nothing: the risk of no correction.

    verdict: the run's (run_verdict.py); no advice contradicts it.
    """
    if verdict.signal in RECORDS and verdict.severity > Severity.HEALTHY:
        why = f"{verdict.title}: weights made of these log-probs are no importance weights. {verdict.remedy}"
        return Advice("repair the records first", None, "Repair the records before correcting", why, verdict.confidence)
    known = ~np.isnan(nothing)
    for values in risks.values():
        known = known & ~np.isnan(values)
    steps = int(known.sum())
    if not risks or not steps:
        return Advice(
            "none helps for sure", None, "Nothing to compare yet", "No step has been measured for all.", "low"
        )
    means = {name: float(values[known].mean()) for name, values in risks.items()}
    best = min(means, key=lambda name: means[name])
    gain = _apart(nothing[known] - risks[best][known])
    if verdict.severity == Severity.HEALTHY:
        return _not_needed(best, means[best], float(nothing[known].mean()), verdict)
    least, most = _reduction(nothing[known], risks[best][known])
    if steps >= FEW and (most < WORTH or LIKELY <= gain and least < WORTH):
        return _no_difference(best, least, most, verdict)
    if gain < LIKELY or steps < FEW:
        why = (
            f"{best} has the smallest risk of those compared, {_lower(means[best], nothing[known])}, "
            f"but {_too_little(gain, steps)}. {verdict.remedy}"
        )
        return Advice("none helps for sure", None, "None of these helps for sure", why, "low")
    return _helps(best, risks, nothing, known, verdict)


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


def _helps(
    best: str, risks: Mapping[str, Floats], nothing: Floats, known: npt.NDArray[np.bool_], verdict: Finding
) -> Advice:
    own, steps = risks[best][known], int(known.sum())
    better = int((own < nothing[known]).sum())
    why = f"Its risk is {_lower(float(own.mean()), nothing[known])}, lower in {better} of {steps} steps."
    others = {name: float(values[known].mean()) for name, values in risks.items() if name != best}
    confidence: Confidence = "high"
    if others:
        second = min(others, key=lambda name: others[name])
        apart = _apart(risks[second][known] - own)
        confidence = "high" if apart >= SURE else "medium" if apart >= LIKELY else "low"
        why += f" Next is {second}, {_between(float(own.mean()), others[second], apart)}."
    why += f" A correction treats what the gap does, not why it is there. {verdict.remedy}"
    return Advice("one helps", best, f"{best} helps most", why, confidence)


def _reduction(nothing: Floats, own: Floats) -> tuple[float, float]:
    """By which share of the risk of no correction it is lower, and two standard errors more than that; 0 where that risk is 0."""
    whole = float(nothing.mean())
    if whole <= 0:
        return 0.0, 0.0
    gains = (nothing - own) / whole
    error = float(gains.std(ddof=1)) / len(gains) ** 0.5 if len(gains) > 1 else np.inf
    return float(gains.mean()), float(gains.mean()) + 2 * error


def _lower(mean: float, nothing: Floats) -> str:
    return f"{1 - mean / float(nothing.mean()):.1%} below that of no correction" if nothing.mean() > 0 else "0"


def _between(own: float, other: float, apart: float) -> str:
    more = (
        "higher"
        if own <= 0
        else f"{other / own - 1:.1%} higher"
        if other < 2 * own
        else f"{other / own:.1f} times as high"
    )
    return f"{more}, {apart:.1f} standard errors apart over steps" if apart >= LIKELY else f"{more}: too close to call"


def _too_little(gain: float, steps: int) -> str:
    return f"{steps} steps are too few" if steps < FEW else f"only {gain:.1f} standard errors over steps"


def _apart(differences: Floats) -> float:
    """Mean of paired differences over steps in standard errors, steps taken as independent; inf where all are alike."""
    if len(differences) < 2:
        return 0.0
    error = float(differences.std(ddof=1)) / len(differences) ** 0.5
    mean = float(differences.mean())
    return mean / error if error > 0 else (np.inf if mean > 0 else 0.0)
