"""The best of several corrections, those as good as it, and how sure it is that it helps. It never contradicts the verdict.

The measure of a correction is a proxy of the squared error of a step's gradient, in units of the squared advantage:

    risk = bias^2 + 1 / (ess * sequences), the second term at most 1

w is the exact weight of a token and v the weight after the correction. bias = mean |v - w| bounds the error that the changed
weights add. ess * sequences is the effective number of independent samples, if the tokens of a sequence move together. The
risk does not depend on the scale of the weights: a correction gains nothing by making the step smaller. The risk is a
convention of this project.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from ratioscope.arrays import Floats

from ..digits import digits
from ..grading.coverage import NOT_MEASURED
from ..grading.finding import Confidence, Finding, Severity

RECORDS = frozenset({"non_finite", "positive_logprobs", "alignment", "mean_weight", "surprisal"})
"""Signals of wrong records: the recorded log-probs are not the sampler's, so weights computed from them correct nothing."""
SURE, LIKELY = 3.0, 2.0
"""The better of two corrections is sure, or likely, from this many standard errors between them on. Conventions."""
WORTH = 0.05
"""A correction makes a difference if it lowers the risk of no correction by at least this share. A convention."""
FEW = 5
"""With fewer steps than this no correction is recommended. A convention."""
OWN = " (own)"
"""The end of the name of the correction that the run itself uses."""
AdviceOutcome = Literal[
    "not known",
    "repair the records first",
    "none is needed",
    "none makes a difference",
    "none helps for sure",
    "one helps",
    "its own is as good",
]


@dataclass(frozen=True)
class Own:
    """The correction that the run itself uses, among the compared ones. Shares are of the tokens."""

    name: str
    clipped: float
    """Share whose weight it changes."""
    removed: float
    """Share that it takes out of the loss."""

    @property
    def words(self) -> str:
        """Such as `The run's own truncate token at 3 clips 0.85% of the tokens`."""
        parts = [f"clips {_share(self.clipped)}"] if self.clipped > self.removed or not self.removed > 0 else []
        parts += [f"removes {_share(self.removed)}"] if self.removed > 0 else []
        return f"The run's own {self.name.removesuffix(OWN)} {' and '.join(parts)} of the tokens"


@dataclass(frozen=True)
class Advice:
    """Advice on corrections, for a person to read."""

    outcome: AdviceOutcome
    best: str | None
    """Name of the recommended correction, the run's own one if none is better; None if none is recommended."""
    title: str
    why: str
    """The reasons, in sentences; empty where the judgement on the run's own correction says all."""
    confidence: Confidence
    """The certainty that the recommended correction lowers the risk, or that none is to be recommended."""
    as_good: tuple[str, ...] = ()
    """Names of those whose risk is too close to that of the recommended one to call, ascending by risk."""
    gain: float = np.nan
    """Share by which the recommended one lowers the risk of the run as it is, with its own correction if it has one."""
    own: str = ""
    """The run's own correction, judged in one sentence; empty if it is not among the compared ones."""


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


def ranked(
    effects: Mapping[str, pl.DataFrame], nothing: pl.DataFrame, sequences: pl.DataFrame, verdict: Finding, own: str = ""
) -> Advice:
    """The advice over the steps that all of these have. Every face ranks by it.

    effects: name of a correction -> its effect by step, with the columns of `risk_per_step` and weights (their number),
    clipped_share, removed_share. nothing: the same without a correction. sequences: as for `risk_per_step`. own: name of the
    run's own correction; it may lack.
    """
    frames = (nothing, *effects.values())
    common = set.intersection(*(set(frame["step"].to_list()) for frame in frames))
    here = {name: frame.filter(pl.col("step").is_in(common)) for name, frame in effects.items()}
    risks = {name: risk_per_step(frame, sequences) for name, frame in here.items()}
    bare = risk_per_step(nothing.filter(pl.col("step").is_in(common)), sequences)
    used = Own(own, *(_whole(here[own], name) for name in ("clipped_share", "removed_share"))) if own in here else None
    return advice(risks, bare, verdict, used)


def _whole(effects: pl.DataFrame, name: str) -> float:
    """The share over all steps."""
    values, weights = (effects[each].cast(pl.Float64).fill_null(np.nan).to_numpy() for each in (name, "weights"))
    known = ~np.isnan(values)
    return float((values[known] * weights[known]).sum() / max(weights[known].sum(), 1.0))


def advice(risks: Mapping[str, Floats], nothing: Floats, verdict: Finding, own: Own | None = None) -> Advice:
    """The advice for a run.

    risks: name of a correction -> risk per step, the same steps for all corrections. nothing: risk per step without any
    correction. verdict: the verdict of the run, see run_verdict.py. own: the one of them that the run itself uses.
    """
    if verdict.signal in RECORDS and verdict.severity > Severity.HEALTHY:
        why = f"{verdict.title}: weights made of these log-probs are no importance weights. {verdict.remedy}"
        return Advice("repair the records first", None, "Repair the records before correcting", why, verdict.confidence)
    if verdict.severity == Severity.HEALTHY and verdict.coverage.word == NOT_MEASURED:
        return Advice("not known", None, "Not known, because the gap is not measured", verdict.remedy, "low")
    common = ~np.isnan(nothing)
    for values in risks.values():
        common = common & ~np.isnan(values)
    if not risks or not common.any():
        return Advice(
            "none helps for sure", None, "Nothing to compare yet", "No step has been measured for all.", "low"
        )
    known, bare = {name: values[common] for name, values in risks.items()}, nothing[common]
    found = _of_all(known, bare, verdict)
    return found if own is None else _with_own(found, own, known, bare, verdict)


def _of_all(risks: Mapping[str, Floats], nothing: Floats, verdict: Finding) -> Advice:
    steps = len(nothing)
    means = {name: float(values.mean()) for name, values in risks.items()}
    best = min(means, key=lambda name: means[name])
    gain = _in_standard_errors(nothing - risks[best])
    if verdict.severity == Severity.HEALTHY:
        return _not_needed(best, means[best], float(nothing.mean()), verdict)
    least, most = _reduction(nothing, risks[best])
    if steps >= FEW and (most < WORTH or LIKELY <= gain and least < WORTH):
        return _no_difference(best, least, most, verdict)
    if gain < LIKELY or steps < FEW:
        why = (
            f"{best} leaves the smallest squared error of the gradient, {_lower(means[best], nothing)}, "
            f"but {_too_little(gain, steps)}. {verdict.remedy}"
        )
        return Advice("none helps for sure", None, "None of these helps for sure", why, "low")
    return _helps(best, risks, nothing)


def _with_own(found: Advice, own: Own, risks: Mapping[str, Floats], nothing: Floats, verdict: Finding) -> Advice:
    """The advice with a judgement on the run's own correction. It stays if no other one is better for sure."""
    mine, others = risks[own.name], {name: values for name, values in risks.items() if name != own.name}
    rival = min(others, key=lambda name: float(others[name].mean()), default="")
    gain = _reduction(mine, others[rival])[0] if rival else 0.0
    is_better = gain >= WORTH and len(mine) >= FEW and _in_standard_errors(mine - others[rival]) >= LIKELY
    doubt = "" if is_better else ", which is no difference" if gain < WORTH else ", which is not sure"
    lower = _reduction(nothing, mine)[0]
    more = f"{rival} would lower it by {'a further ' if lower > 0 else ''}{gain:.1%}{doubt}"
    parts = (
        f"{own.words} and {_effect(lower)}",
        (more if gain > 0 else "none of the others lowers it further") if rival else "",
        "" if verdict.is_healthy else "the cause stays",
    )
    sentence = f"{'; '.join(filter(None, parts))}."
    distance = _in_standard_errors(nothing - mine)
    if found.outcome != "one helps" or is_better or distance < LIKELY:
        return replace(found, own=sentence, gain=gain if is_better else found.gain)
    title = "The run's own correction is as good as any of these"
    sure: Confidence = "high" if distance >= SURE else "medium"
    return Advice("its own is as good", own.name, title, "", sure, (rival,) if gain > 0 else (), 0.0, sentence)


def _effect(lower: float) -> str:
    if abs(lower) < 5e-4:
        return "leaves the gradient's squared error as it is"
    return f"{'lowers' if lower > 0 else 'raises'} the gradient's squared error by {abs(lower):.1%}"


def _share(value: float) -> str:
    return f"{digits(100 * value)}%"


def _not_needed(best: str, least: float, nothing: float, verdict: Finding) -> Advice:
    change = abs(least / nothing - 1) if nothing > 0 else 0.0
    would = f"The best of those compared, {best}, would change the gradient's squared error by {change:.1%}."
    why = f"In this run {verdict.title}. {would}"
    partly = "" if verdict.coverage.is_measured else " in what was measured"
    return Advice("none is needed", None, f"No correction is needed{partly}", why, verdict.confidence)


def _no_difference(best: str, lower: float, most: float, verdict: Finding) -> Advice:
    change = f"{abs(lower):.1%} {'below' if lower >= 0 else 'above'} that of no correction"
    why = (
        f"{best} leaves the smallest squared error of the gradient, {change}, and at most {max(most, 0):.1%} with two "
        f"standard errors over steps: below {WORTH:.0%} it makes no difference here. {verdict.remedy}"
    )
    confidence: Confidence = "high" if most < WORTH else "medium"
    return Advice(
        "none makes a difference", None, "No correction needed: none makes a difference here", why, confidence
    )


def _helps(best: str, risks: Mapping[str, Floats], nothing: Floats) -> Advice:
    own = risks[best]
    more = {name: values - own for name, values in risks.items() if name != best}
    others = sorted(more, key=lambda name: float(more[name].mean()))
    as_good = tuple(name for name in others if _in_standard_errors(more[name]) < LIKELY)
    ranked = as_good or others[:1]
    return Advice(
        "one helps",
        best,
        f"{best} helps" if as_good else f"{best} helps most",
        f"The gradient's squared error is {_lower(float(own.mean()), nothing)}, and lower at {int((own < nothing).sum()):,} of"
        f" {len(own):,} steps."
        + (" As good, too close to call: " if as_good else " Next is " if ranked else "")
        + ", ".join(f"{name}, {_higher(own, more[name])}" for name in ranked)
        + ("." if ranked else "")
        + " A correction limits the harm of the gap and leaves its cause, which the diagnosis names.",
        "high" if _in_standard_errors(nothing - own) >= SURE else "medium",
        as_good,
        _reduction(nothing, own)[0],
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
    return higher if distance < LIKELY else f"{higher} ({distance:.1f} standard errors)"


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
