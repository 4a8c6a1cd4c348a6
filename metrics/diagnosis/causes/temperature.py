"""Temperatures: one on one side only, or one that neither side reports."""

import numpy as np

from ratioscope.arrays import Booleans, Floats

from ..cause import Cause, Result, undecided
from ..evidence import Evidence, distances, once
from ..fits import least_squares, mean_weight, surprisal_gap
from ..share import Share, share_explained

LEAST = 300
"""Tokens that the regression needs."""
CLEAR, OFF_ONE = 5.0, 0.01
"""Standard errors, and distance of the slope from 1, from which on two temperatures differ."""
LEAST_SLOPE = 0.05
"""Slope below which no temperature is told: the sampler's log-probs then follow the entropy, not the trainer's log-probs."""
AMBIGUOUS = 0.3
"""Part of the log temperature by which the two ways to read it may differ. A convention.

A temperature alone leaves log-probs that correlate at 1. A policy that learned reads as one against older weights, too."""
PARTLY = 0.2
"""Share of the gap that a slope explains where a temperature stands beside other weights: other faults have 0.15."""
BENT = (-0.3, 0.9)
"""(log-prob of the tokens that show a bend, share from which on what is left is rounding). A convention."""
LEFT = 0.002
"""K3 in nats/token that rounding in 16 bits leaves at most on small models. More is left where the logits were changed otherwise,
or where no entropy stands for the normaliser."""
TOLD_APART = 6.0
"""Standard errors of the mean weight between an honest and a raw sampler from which on it tells which one it is."""
WITHIN = 3.0
"""Tokens with |x| above this have another fault, and are left out of the regression."""
DISHONEST = (5.0, 0.01)
"""(standard errors, distance from 1) of a mean weight that tells that the sampler's log-probs are not those it sampled from."""
SURPRISED = (6.0, 0.05)
"""(standard errors, nats) of a surprisal gap that tells that tokens were not sampled from the policy that is trained."""
ONE_SIDED = 0.002
"""Share of the log-ratios on the rarer side of 0 below which no temperature is told: a mask or an exclusion leaves so few."""
BY_CHOICE = (1.0, 2.1)
"""Standard deviations by which a choice of sequences may move the mean surprisal of a sequence: in groups that are whole, of the
better half of each (0.80 for a normal distribution); otherwise of the best twentieth of all (2.06)."""
SCATTERED, SPANS = 0.05, 2.5
"""Share of the tokens behind a masked one from which on the mask may select by log-prob, unless it leaves spans out: so many
times as long as a choice token by token leaves, which are texts of tools. Conventions."""


def _curve(entropy: Floats) -> Floats:
    """Functions of the entropy that vanish with it, shape (tokens, 4): the normaliser's change with temperature."""
    h = np.maximum(entropy, 0.0)
    columns = np.stack([h, h**2, h**3, np.sqrt(h)], axis=1)
    return np.asarray(columns / np.maximum(np.abs(columns).max(axis=0), 1e-9))


def _design(evidence: Evidence, side: Floats) -> tuple[Booleans, Floats]:
    """(tokens of the regression, its columns): the log-probs of a side, 1, and functions of the entropy if on record."""
    usable: Booleans = np.abs(evidence.log_ratio) < WITHIN
    columns = [side[:, None], np.ones((len(evidence), 1))]
    if evidence.has("entropy"):
        usable = usable & np.isfinite(evidence.facts["entropy"])
        columns.append(_curve(np.nan_to_num(evidence.facts["entropy"])))
    return usable, np.concatenate(columns, axis=1)


@once
def _fit(evidence: Evidence) -> tuple[float, float, Floats]:
    """(slope, its error, fitted earlier - later) of earlier = slope * later + a function of the entropy.

    With logits z, log p_T = z / T - A(1 / T): two temperatures differ by a slope, and by A, a function of the distribution
    and not of the token, which the entropy stands for. Without entropy only the slope is fitted.
    """
    usable, design = _design(evidence, evidence.later)
    kept = evidence.kept(usable)
    coefficients, errors = least_squares(design[usable], -kept.log_ratio, kept)
    return float(1 + coefficients[0]), float(errors[0]), np.where(usable, design @ coefficients, 0.0)


@once
def _other_way(evidence: Evidence) -> float:
    """The slope that the regression of later on earlier tells; that of earlier on later if nothing else is between them."""
    usable, design = _design(evidence, evidence.earlier)
    kept = evidence.kept(usable)
    slope = float(least_squares(design[usable], kept.later, kept)[0][0])
    return 1 / slope if slope > 0 else np.inf


def is_partly(evidence: Evidence) -> bool:
    """True if a temperature explains a part of the gap, and in one direction whichever way the regression is read.

    Without the entropy no function stands for the normaliser, so that the slope alone explains no temperature as a whole.
    """
    if evidence.effective_tokens < LEAST or evidence.has("entropy"):
        return False
    (slope, error, fitted), back = _fit(evidence), _other_way(evidence)
    off = max(CLEAR * error, OFF_ONE)
    is_one_way = min(slope, back) > 1 + off or max(slope, back) < 1 - off
    return is_one_way and share_explained(evidence, distances(evidence.log_ratio + fitted)).share > PARTLY


def _slope_off_one(evidence: Evidence) -> tuple[float, float]:
    """(slope less 1, its error), as the setting of a temperature."""
    slope, error, _ = _fit(evidence)
    return slope - 1, error


def _bends(evidence: Evidence, share: Share, left: Floats) -> bool:
    """True if what is left of the log-ratios is no rounding but bends with the size of the log-prob, as after a soft cap."""
    unsure = evidence.later < BENT[0]
    if share.share > BENT[1] or unsure.sum() < LEAST:
        return False
    later = evidence.later[unsure]
    columns = np.stack([later**2, later, np.ones(len(later))], axis=1)
    coefficients, errors = least_squares(columns, left[unsure], evidence.kept(unsure))
    return bool(abs(coefficients[0]) > CLEAR * errors[0])


def is_honest(evidence: Evidence) -> bool:
    """Whether the mean weight is 1 as far as can be told: the sampler's log-probs are those it sampled from."""
    mean, error = mean_weight(evidence)
    return abs(mean - 1) <= DISHONEST[1] or abs(mean - 1) <= DISHONEST[0] * error


def is_inflated(evidence: Evidence) -> bool:
    """Whether the mean weight is above 1: tokens were sampled from a distribution that the sampler's log-probs do not give."""
    mean, error = mean_weight(evidence)
    return mean - 1 > max(DISHONEST[1], DISHONEST[0] * error)


def _two_temperatures(evidence: Evidence, honest: bool) -> Result:
    if evidence.effective_tokens < LEAST:
        return undecided(f"{evidence.effective_tokens:.0f} tokens are too few; {LEAST} are needed")
    fewer = min(evidence.mean(evidence.log_ratio > 0), evidence.mean(evidence.log_ratio < 0))
    if fewer < ONE_SIDED:
        return undecided(
            f"{fewer:.1%} of the log-ratios are on the rarer side of 0; two temperatures put tokens on both sides"
        )
    slope, error, fitted = _fit(evidence)
    if slope <= LEAST_SLOPE:
        return undecided(f"the sampler's log-probs do not rise with the trainer's: {slope:.3f} times")
    x = evidence.log_ratio + fitted
    share = share_explained(evidence, distances(x))
    is_off = abs(slope - 1) > max(CLEAR * error, OFF_ONE)
    clear = is_off and share.share > 0.1
    temperature = 1 / slope if honest else slope
    of_temperature = error / slope**2 if honest else error
    effect = (
        f"the sampler's log-probs are {slope:.3f} ± {error:.1g} times the trainer's, beside a function of the entropy"
    )
    if not evidence.has("entropy"):
        effect = f"the sampler's log-probs rise {slope:.3f} ± {error:.1g} times as fast as the trainer's"
    if clear and np.log((back := _other_way(evidence)) / slope) > AMBIGUOUS * abs(np.log(slope)):
        effect += f", and {min(back, 99):.3g} times if read the other way round: more than a temperature lies between the sides"
        clear = False
    if is_off and not clear:
        effect += f", which explains {max(share.share, 0):.1%} of the gap"
    # To second order, raw log-probs would raise the mean weight by E[x^2]: between it and 1 lies what the record must tell apart.
    (mean, mean_error), raised = mean_weight(evidence), evidence.mean(evidence.log_ratio**2)
    is_told = raised > TOLD_APART * mean_error and (mean - 1 > raised / 2) != honest
    bends = "what is left bends with the size of the log-prob, as after a soft cap"
    doubts = {
        bends: _bends(evidence, share, x),
        "more than rounding in 16 bits is left": evidence.has("entropy") and share.after > LEFT,
        "the mean weight does not tell whether the sampler's log-probs are those it sampled from": not is_told,
    }
    return Result(
        clear and (is_honest(evidence) if honest else is_inflated(evidence)),
        effect,
        "" if is_off else f"temperatures that differ by {max(CLEAR * error, OFF_ONE):.1%} would show",
        share,
        evidence.with_earlier(evidence.later - x),
        {"temperature": round(temperature, 3), "error": float(f"{of_temperature:.1g}")},
        doubts=tuple(words for words, holds in doubts.items() if holds),
        alike=() if is_told else ("reported_raw" if honest else "trainer_temperature",),
    )


def trainer_temperature(evidence: Evidence) -> Result:
    """The engine sampled at a temperature and reports log-probs at it; the trainer scores at another one."""
    return _two_temperatures(evidence, honest=True)


def reported_raw(evidence: Evidence) -> Result:
    """The engine sampled at a temperature, but reports log-probs without it; the trainer applies it."""
    return _two_temperatures(evidence, honest=False)


def _behind_a_masked_one(evidence: Evidence) -> float:
    """Share of the tokens whose predecessor in the response is not among the tokens; 0 if long spans are left out."""
    skipped = np.where(np.diff(evidence.row, prepend=-1) == 0, np.diff(evidence.position, prepend=-1) - 1, 0)
    behind = skipped > 0
    by_choice = 1 + skipped.sum() / len(evidence)  # mean length of a hole if each token is left out by itself
    return 0.0 if skipped.sum() > SPANS * by_choice * behind.sum() else evidence.mean(behind)


def _row_shift(evidence: Evidence) -> float:
    """By how many standard deviations of their own the sequences are more or less surprising than their entropy says.

    The surprisal of a sequence, minus its entropy, is a martingale: its variance is the sum of those of its tokens. A temperature
    moves every token, and so a long sequence far; a choice of sequences by their log-probs moves it by its variance at most.
    """
    gap = np.nan_to_num(-evidence.later - evidence.facts["entropy"], posinf=0.0, neginf=0.0)
    sums, squares = (np.add.reduceat(values, evidence.starts) for values in (gap, gap**2))
    weights = evidence.weights[evidence.starts]
    variance = np.average(squares, weights=weights)
    return abs(float(np.average(sums, weights=weights))) / float(np.sqrt(variance)) if variance > 0 else 0.0


def _has_whole_groups(evidence: Evidence) -> bool:
    """True if every prompt has the same number of sequences, and more than one: none was left out."""
    if not evidence.has("group"):
        return False
    sizes = np.unique(evidence.facts["group"][evidence.starts], return_counts=True)[1]
    return bool(sizes.min() == sizes.max() > 1)


def silent_sampling(evidence: Evidence) -> Result:
    """Both sides agree, and the tokens were sampled from neither: a temperature or a truncation that nobody reports.

    To first order a temperature T makes E[later + entropy] = (1/T - 1) Var(log p).
    """
    if evidence.effective_tokens < LEAST:
        return undecided(f"{evidence.effective_tokens:.0f} tokens are too few; {LEAST} are needed")
    gap, error = surprisal_gap(evidence)
    if not np.isfinite(gap):
        return undecided("the entropy is no finite number")
    clean = evidence.mean(evidence.distance) < 0.02 and is_honest(evidence)
    holds = clean and abs(gap) > max(SURPRISED[0] * error, SURPRISED[1])
    if holds and (behind := _behind_a_masked_one(evidence)) > SCATTERED:
        return undecided(
            f"{behind:.0%} of the tokens stand behind one that the mask leaves out; "
            "a mask that selects tokens by their log-probs has the same trace"
        )
    if holds and (shift := _row_shift(evidence)) < BY_CHOICE[not _has_whole_groups(evidence)]:
        return undecided(
            f"a sequence is only {shift:.1f} standard deviations more or less surprising than its entropy implies; a choice of "
            "sequences by their log-probs, or by rewards that follow them, has the same trace"
        )
    spread = float(np.nanmean((evidence.later + evidence.facts["entropy"]) ** 2))
    inverse = 1 - gap / spread if spread > 0 else 1.0
    has_temperature = 0.1 < inverse < 10 and abs(inverse - 1) > OFF_ONE
    equal = f", as a temperature of about {1 / inverse:.2f} would" if has_temperature else ""
    direction = "sharper" if gap < 0 else "flatter"
    effect = f"the tokens are {gap:+.3f} ± {error:.3f} nats more surprising than the entropy says" + (
        f": sampling was {direction} than the policy{equal}" if holds else ""
    )
    shown = f"a surprisal gap beyond {max(SURPRISED[0] * error, SURPRISED[1]):.2g} nats would show"
    if not clean and not holds:
        return undecided("the gap itself is too large to look for sampling that both sides hide")
    return Result(
        holds,
        effect,
        shown,
        None,
        None,
        {"surprisal_gap": round(gap, 3), "temperature": round(1 / inverse, 2)} if holds and has_temperature else {},
    )


CAUSES = (
    Cause(
        "trainer_temperature",
        "the two sides are at different temperatures",
        "changed numbers",
        trainer_temperature,
        "after the fitted temperature",
        "The engine's log-probs are honest; the trainer's are those of another distribution. Every update is off-policy by "
        "this factor.",
        "Divide the trainer's logits by the sampling temperature, or sample at temperature 1.",
        "Score one batch with the trainer's logits divided by the estimated temperature: the gap must fall as shown.",
        estimate="temperature {temperature:.3f} ± {error:.1g}",
        course="constant",
        setting=_slope_off_one,
        mistaken_for={"reported_raw": "The mean weight is 1 here and not 1 there."},
    ),
    Cause(
        "reported_raw",
        "the engine reports log-probs without the temperature it samples at",
        "changed numbers",
        reported_raw,
        "after the fitted temperature",
        "The recorded log-probs are not those that the tokens were sampled with. Weights made of them are biased.",
        "Ask the engine for processed log-probs (vLLM: logprobs_mode=processed_logprobs; SGLang returns them after temperature), "
        "or sample at temperature 1.",
        "Compare one response's reported log-probs with a re-score at both temperatures.",
        estimate="temperature {temperature:.3f} ± {error:.1g}",
        course="constant",
        setting=_slope_off_one,
        mistaken_for={"trainer_temperature": "The mean weight is 1 there and not 1 here."},
    ),
    Cause(
        "silent_sampling",
        "tokens were not sampled from the policy that either side reports",
        "changed numbers",
        silent_sampling,
        "",
        "Both lists agree, and both are wrong: a temperature, top-p, top-k or min-p acts on sampling and on no log-prob. "
        "Importance weights cannot see or correct it.",
        "Set temperature 1, top-p 1, top-k off, min-p 0 and no penalties, or mirror them in the trainer and ask for "
        "processed log-probs.",
        "Read the sampling parameters of a request as the engine received it.",
        needs=("entropy",),
        estimate="as at temperature {temperature:.2f}, or by top-p, top-k or min-p",
        follows_from=("trainer_temperature", "truncation", "banned_tokens", "grammar", "penalty"),
        course="constant",
        mistaken_for={"truncation": "Truncation that the engine reports shows as a one-sided gap."},
    ),
)
