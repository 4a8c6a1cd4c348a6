"""Sampling that excludes tokens: top-p, top-k, min-p, banned tokens. The engine renormalises what is left; the trainer does not.

The engine's log-prob is the trainer's minus log S, where S is the mass that was left. So x = log S is never positive, the mean
weight is the mean of S, and the smallest weight of top-p sampling is the p of the settings.
"""

from typing import NamedTuple

import numpy as np

from ratioscope.arrays import Booleans, Floats

from ..cause import Cause, Parameter, Result, undecided
from ..evidence import Evidence, distances, once
from ..fits import mean_weight, slope
from ..share import Share, expected_from, share_explained
from ..wake import wake
from .token_biases import token_rows

LEAST = 500
"""Tokens that the test needs."""
CLEAR = 4.0
"""Standard errors by which the mean weight lies below 1."""
TAIL = 1.0
"""A log-ratio above this does not fit truncation, which only lowers weights; one in a thousand tokens may have it."""
ENTROPIES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.4, 1.8, 2.2, 2.6, 3.0, 3.5, 4.0, 5.0)
"""Bounds of the entropy classes in nats within which the lost mass is averaged."""
SURE_TOKEN = -1e-6
"""The engine reports at least this for a token that it had to take."""
UNSURE = 1.0
"""Entropy in nats from which on the lost mass of top-p no longer depends on the entropy."""

HARMLESS = 0.01
"""Mean K3 in nats/token that the positive side alone may give; more is another fault."""
LEAST_SHARE = 0.1
"""Excluded mass that explains less of the gap is no proof: the mean weight lies below 1 for another reason."""
JUST_AFTER, MANY_ENDS = 3, 0.1
"""Share of the responses that end so few tokens after a ban of the end token is lifted. A convention."""
BY_ENTROPY = 0.6
"""Part of what excluded tokens explain that the entropy alone must explain in top-p, top-k and min-p."""
DEEP, MOST_DEEP = 7.0, 0.05
"""No exclusion takes all but so little of the mass, in nats, at more than this share of the tokens. A convention."""
NEARLY = 0.3
"""Log ratio to a bound between two of these causes within which the shape hardly tells them apart. A convention."""
BETWEEN = (1.4, 4.0)
"""Bans at likely places give as much, and grammars as little: labelled bans have 0 to 3.3, grammars 2.1 to 9."""
WITHOUT_ENTROPY = "without the entropy, top-p and the like look as bans and grammars do"
MOVED, AS_WELL = "moved_log_probs", 0.95
"""The cause that moves all log-probs alike, and the part of what excluded mass explains from which on it does as well."""
LOPSIDED = 1.5
"""After a ban the lowest log-ratios lie so many times as far from the middle one as the highest ones. A convention."""
EARLY = 0.8
"""Share of the clearly negative tokens in the first half of the places from which on a ban of the end token is as likely."""
LARGEST = 700.0
"""Nats that exp and log bear; the mean log-ratio is beyond where 1e9 stands in place of log-probs."""
NOT_TOLD = "its shape is nearly that of another way to exclude tokens"
TOGETHER = 1.7
"""A clearly negative token so many times likelier right after another one is part of a span."""


class MassByEntropy(NamedTuple):
    """How the lost mass depends on the entropy."""

    one_sided: float
    """Share of negative x among tokens beyond the noise."""
    only_choice: float
    """Share of tokens that the engine reports as certain and the trainer does not."""
    plateau: float
    """Mean weight of tokens with high entropy."""
    slope: float
    """Change of x per nat of entropy, among tokens with high entropy."""
    tail: float
    """Share of the distance that one token in a hundred has."""


def _entropy(evidence: Evidence) -> Floats:
    """The entropy of each token; without one on record its surprisal, which has the same mean."""
    return np.nan_to_num(evidence.facts["entropy"]) if evidence.has("entropy") else -evidence.later


@once
def _lost_mass(evidence: Evidence) -> Floats:
    """log S of each token, estimated as the mean x of its class of entropy; never positive, shape (tokens,)."""
    classes = 2 * np.digitize(_entropy(evidence), ENTROPIES) + (evidence.earlier > SURE_TOKEN)
    counts, weights = np.bincount(classes), evidence.weights
    means = np.bincount(classes, weights * evidence.log_ratio) / np.maximum(np.bincount(classes, weights), 1e-300)
    return np.where(counts >= 5, np.minimum(means, 0.0), 0.0)[classes]


@once
def _shape(evidence: Evidence) -> MassByEntropy:
    x, entropy = evidence.log_ratio, _entropy(evidence)
    noise = np.quantile(x, 0.95) if len(x) else 0.0
    beyond = np.abs(x) > max(noise, 1e-3)
    high = entropy > UNSURE
    rise, plateau = 0.0, float(np.exp(np.clip(x.mean(), -LARGEST, LARGEST)))
    if high.sum() >= 50:
        rise = slope(x[high], over=entropy[high])
        plateau = float(np.exp(np.clip(x[high].mean(), -LARGEST, LARGEST)))
    largest = np.sort(evidence.distance)[::-1]
    return MassByEntropy(
        float((x[beyond] < 0).mean()) if beyond.any() else 0.5,
        float(((evidence.earlier > SURE_TOKEN) & (evidence.later < -1e-3)).mean()),
        plateau,
        rise,
        float(largest[: max(1, len(x) // 100)].sum() / max(largest.sum(), 1e-300)),
    )


def _sampler(shape: MassByEntropy, evidence: Evidence) -> tuple[str, float | None]:
    """(the most likely sampler, its parameter)."""
    if not evidence.has("entropy"):
        return "top-p, top-k, min-p, a ban or a grammar", None
    lost = -np.log(shape.plateau)
    if shape.only_choice > 0.01 and abs(shape.slope) < 0.35 * max(lost, 1e-3) or shape.only_choice > 0.03:
        return "top-p", shape.plateau
    return "top-k or min-p", None


@once
def _like_positive(evidence: Evidence) -> Floats:
    """Distance of each token if negative log-ratios were as small as positive ones of equal probability, shape (tokens,)."""
    return np.where(evidence.log_ratio < 0, expected_from(evidence, evidence.log_ratio >= 0), evidence.distance)


def _low(evidence: Evidence) -> Booleans:
    """True for a clearly negative log-ratio, shape (tokens,)."""
    return np.asarray(evidence.log_ratio < -max(5 * float(np.median(np.abs(evidence.log_ratio))), 0.1))


def _ends_are_banned(evidence: Evidence) -> bool:
    """True if clearly negative tokens stand up to a length that no response falls short of and many have: min_tokens does so."""
    low = _low(evidence)
    if not evidence.has("length") or not low.any():
        return False
    lengths, least = evidence.facts["length"][evidence.starts], int(np.quantile(evidence.position[low], 0.99)) + 1
    return bool(lengths.min() >= least and np.mean(lengths <= least + JUST_AFTER) > MANY_ENDS)


def _comes_early(evidence: Evidence) -> bool:
    """True if nearly all clearly negative log-ratios are in the first half of the places, as a ban of the end token has them."""
    low = _low(evidence)
    return bool(low.any() and (evidence.position[low] < np.median(evidence.position)).mean() > EARLY)


class Truncation(NamedTuple):
    """Which sampling excludes tokens, and how much of the gap that explains."""

    kind: str
    """Code of the cause; empty if the gap is not that of excluded tokens."""
    by_mass: Share
    """The share that the lost mass explains as a function of the entropy."""
    one_sided: Share
    """The share that vanishes if negative log-ratios are as small as positive ones."""
    alike: tuple[str, ...] = ()
    """Codes of the others among these causes that the shape hardly tells from this one."""


@once
def _excluded(evidence: Evidence) -> Truncation:
    mean, error = mean_weight(evidence)
    by_mass = share_explained(evidence, distances(evidence.log_ratio - _lost_mass(evidence)))
    one_sided = share_explained(evidence, _like_positive(evidence))
    shape = _shape(evidence)
    positive = evidence.mean(np.where(evidence.log_ratio >= 0, evidence.distance, 0.0))
    clean = 2 * positive < HARMLESS and evidence.mean(evidence.log_ratio > TAIL) < 0.001
    excludes = mean < 1 - CLEAR * error and mean < 0.998 and clean and shape.one_sided > 0.6
    # The entropy tells top-p, top-k and min-p from bans; without it they are one cause.
    known, is_only = evidence.has("entropy"), shape.only_choice > 0.02
    # how much likelier a token with a clearly negative log-ratio is right after another one; 1 for independent tokens
    low = _low(evidence)
    next_to = (np.diff(evidence.row) == 0) & (np.diff(evidence.position) == 1)
    pairs = low[1:] & low[:-1] & next_to
    both, first = pairs.sum(), (low[:-1] & next_to).sum()
    usual = low[1:][next_to].mean() if first >= 10 else 0.0
    by_entropy, in_runs = by_mass.share / max(one_sided.share, 1e-9), (float(both / first / usual) if usual else 1.0)
    # At two standard errors of the number of sequences with a pair: one ban that binds again has its pairs in few of them.
    least_runs = in_runs * (1 - 2 / np.sqrt(max(len(np.unique(evidence.row[1:][pairs])), 1)))
    in_spans = in_runs > TOGETHER and not _ends_are_banned(evidence)
    other = "grammar" if in_spans else "banned_tokens"
    kind = "truncation" if by_entropy > BY_ENTROPY or is_only else other
    explains = by_mass if kind == "truncation" and known else one_sided
    is_near = abs(np.log(max(by_entropy, 1e-9) / BY_ENTROPY)) < NEARLY and known and not is_only
    alike = {"truncation", other} if is_near or not known and kind != "truncation" else set()
    if kind != "truncation" and (
        BETWEEN[0] < in_runs and least_runs < BETWEEN[1] or kind == "grammar" and _comes_early(evidence)
    ):
        alike |= {"grammar", "banned_tokens"}
    if kind == "truncation":
        moved = distances(evidence.log_ratio - evidence.mean(evidence.log_ratio))
        if share_explained(evidence, moved).share > AS_WELL * by_mass.share:
            alike |= {MOVED}
    # Numbers that were moved alike lie close to their middle one, or as far above it as below it; excluded mass varies.
    least, low_end, middle, high_end, most = np.quantile(evidence.log_ratio, [0.01, 0.05, 0.5, 0.95, 0.99])
    is_ban = middle - least > LOPSIDED * (most - middle) and high_end - low_end >= abs(middle)
    is_of_ids = wake(evidence) is not None  # an id that was changed lowers the mean weight, too
    is_deep = kind != "grammar" and evidence.mean(evidence.log_ratio < -DEEP) > MOST_DEEP
    is_excluded = excludes and (kind == "truncation" or is_ban) and not (is_deep or is_of_ids)
    found = kind if is_excluded and explains.share > LEAST_SHARE else ""
    return Truncation(found, by_mass, one_sided, tuple(sorted(alike - {kind})))


def _tested(evidence: Evidence, kind: str) -> Result:
    if evidence.effective_tokens < LEAST:
        return undecided(f"{evidence.effective_tokens:.0f} tokens are too few; {LEAST} are needed")
    mean, error = mean_weight(evidence)
    own, by_mass, one_sided, alike = _excluded(evidence)
    shape, holds = _shape(evidence), own == kind
    if holds and kind != "truncation" and not (evidence.log_ratio > 0).any():
        return undecided(
            "not one log-ratio is above 0, and rounding alone makes some so; a mask that selects tokens by their log-ratio has "
            "the same trace"
        )
    effect = f"the mean weight is {mean:.4f} ± {error:.4f}"
    if holds:
        effect += f", and {shape.one_sided:.0%} of the clear differences are negative"
    shown = f"a mean weight below {min(1 - CLEAR * error, 0.998):.4f} with a one-sided gap would show"
    kept_mass: dict[str, Parameter] = {"kept_mass": round(mean, 4)}
    known = evidence.has("entropy")
    doubts = (() if known else (WITHOUT_ENTROPY,)) + ((NOT_TOLD,) if {*alike} - {MOVED} else ())
    doubts += ("one number off all log-probs explains nearly as much",) if MOVED in alike else ()
    if kind != "truncation":
        undone = evidence.kept(evidence.log_ratio >= 0)
        ids = token_rows(evidence) if holds and evidence.has("token") else None
        few = ids is not None and ids.holds and ids.share is not None and ids.share.share > 0.5
        doubts += ("few ids carry it, as rows of the output layer that differ do",) if few else ()
        return Result(holds, effect, shown, one_sided, undone, kept_mass if holds else {}, doubts=doubts, alike=alike)
    sampler, parameter = _sampler(shape, evidence)
    about = f" about {parameter:.2f}" if parameter else ""
    parameters: dict[str, Parameter] = {"sampler": sampler, "about": about, **kept_mass}
    if parameter:
        parameters["top_p"] = round(parameter, 3)
    undone = evidence.with_earlier(evidence.earlier + _lost_mass(evidence))
    share = by_mass if known else one_sided
    return Result(holds, effect, shown, share, undone, parameters if holds else {}, doubts=doubts, alike=alike)


def truncation(evidence: Evidence) -> Result:
    """Top-p, top-k or min-p: the lost mass follows the entropy, and the engine's log-probs are of the rest."""
    return _tested(evidence, "truncation")


def banned_tokens(evidence: Evidence) -> Result:
    """Banned or suppressed ids: few tokens lose much mass, wherever a banned id was likely."""
    return _tested(evidence, "banned_tokens")


def grammar(evidence: Evidence) -> Result:
    """A grammar: tokens lose much mass in runs, wherever the grammar binds."""
    return _tested(evidence, "grammar")


CAUSES = (
    Cause(
        "truncation",
        "sampling excludes tokens that the trainer counts",
        "changed numbers",
        truncation,
        "with the excluded mass added",
        "The engine's log-probs are of the tokens that top-p, top-k, min-p or a ban left over. The trainer's policy can "
        "take the others, "
        "too: the mean weight is the kept mass and not 1.",
        "Set top-p 1, top-k off and min-p 0, and ban no tokens, or apply the same truncation to the trainer's logits.",
        "Read the sampling parameters of a request as the engine received it; repeat one step with top-p 1.",
        estimate="{sampler}{about}, {kept_mass:.1%} of the mass was left",
        course="constant",
        mistaken_for={"silent_sampling": "If the engine reports raw log-probs, truncation leaves no trace in the gap."},
    ),
    Cause(
        "banned_tokens",
        "sampling bans tokens that the trainer counts",
        "changed numbers",
        banned_tokens,
        "with negative log-ratios as small as positive ones",
        "The engine cannot sample some ids: bad words, suppressed special or media tokens, min_tokens before EOS, or a "
        "negative logit "
        "bias. The trainer's policy can.",
        "Ban no tokens in training, or set the same logits to minus infinity in the trainer.",
        "Look for ids that never occur in the responses although the trainer gives them probability.",
        estimate="{kept_mass:.1%} of the mass was left",
        alike=("token_rows",),
        course="constant",
        mistaken_for={"truncation": "The mass that top-p, top-k or min-p cuts off follows the entropy."},
    ),
    Cause(
        "grammar",
        "a grammar restricts sampling in some spans",
        "changed numbers",
        grammar,
        "with negative log-ratios as small as positive ones",
        "Structured output (JSON, regular expressions, tool calls) excludes tokens in spans; the trainer counts them.",
        "Mask the constrained spans out of the loss, or apply the same grammar to the trainer's logits.",
        "Read the spans with the lowest log-ratios on Samples, tab Tokens: they follow a fixed format.",
        estimate="{kept_mass:.1%} of the mass was left",
        alike=("token_rows",),
        course="constant",
        mistaken_for={"banned_tokens": "Banned ids lose mass everywhere, not in spans."},
    ),
)
