"""The rest: noise of rounding, its size and shape, and weights that differ in more than precision."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from ..cause import Cause, Result, absent, undecided
from ..evidence import Evidence, once
from ..fading import fades, fading
from ..fits import mean_weight
from ..share import share_explained
from ..subset_faults import CLEAR, far_off, largest, log_sizes
from .temperature import is_partly
from .token_biases import penalty, row_tokens

HEALTHY = 0.01
"""Mean K3 in nats/token below which noise is usual in 16 and 8 bits; the bound of watch in the verdict."""
USUAL = 0.002
"""K3 in nats/token of rounding in 16 bits on small models, see docs."""
LARGE = 0.005
"""The same above which no healthy dense model in 16 bits was published, see metrics/known/reference_ranges.toml."""
UNSURE = 0.5
"""Tokens with a smaller probability than this show the noise of the logits: rounding noise vanishes near probability 1."""
HEAVY = 12.0
"""Excess kurtosis of x among uncertain tokens above which it is no rounding noise; a normal distribution has 0."""
DENIED, MOST_DENIED = 0.3, 0.001
"""A log-prob of 0 is denied by a smaller one than minus this; from this share on they are no rounding noise."""
KURTOSIS = 40.0
"""The same of rare tokens that have nearly the whole gap."""
LARGE_STEP, CALM_STEP = 1 / 4, 1 / 20
"""Levels of a step, relative to the mean, at which it has the gap, or lacks it. A convention."""
RARE = 0.6
"""Share of the gap in one token of a hundred from which on rare tokens have nearly the whole gap."""
ONE_SIDED = 0.3
"""Distance from 0.5 of the share of negative ones among rare tokens, from which on they are excluded or banned, not routed."""
RUNS = 4.0
"""Rare tokens that follow each other so many times as often as by chance are spans. A route that changed is seen by the next
tokens, too, which gives up to three times."""
MOSTLY_EQUAL = 0.9
"""Rounding moves every uncertain token: if more of them are equal, few tokens have a gap of another kind."""
LEAST_GROWN = 2.0
"""A factor of sizes from the first to the last quarter of the positions that rounding does not have: labelled runs have 1.3."""
LEAST_TOKENS = 800
"""The least number of tokens whose largest hundredth is no single token. A convention."""
LEAST_FLIPS = 0.0015
"""K3 in nats/token up to which healthy mixtures of experts have rare tokens on other routes: bf16 alone gives 1e-4 to 1e-3."""
MOSTLY_AT_AN_END = 0.5
"""Rare tokens of which so many are among the first or the last fifth of the places have a place, and are not scattered."""
MOST_OUTLYING = 0.001
"""A larger share of the tokens is no exception to rounding."""
FEWEST_RARE = 10
"""Fewer rare tokens show neither how they spread nor whether they become more frequent."""
CROWDED = 2.0
"""Rare tokens whose number varies so many times as much over the sequences as by chance are of few sequences."""


UNRELATED = 1.0
"""K3 in nats/token from which on other weights look as other inputs do: the sides no longer read one text by like models."""
UNSEEN = 0.25
"""Part of the mean weight, for each nat/token of K3, that tokens may lack which the sampler never drew. A convention."""


class Noise(NamedTuple):
    """Size and shape of the log-ratios."""

    of_logits: float
    """Robust standard deviation of x among uncertain tokens, in nats."""
    kurtosis: float
    """Excess kurtosis of x among uncertain tokens."""
    tail: float
    """Share of the distance that one token in a hundred has."""
    negative: float
    """Share of negative x."""
    variance_ratio: float
    """Variance of the sums over sequences relative to independent tokens."""
    growth: float
    """Change of log |x| from the first to the last quarter of the positions, at equal probability."""
    outlying: int
    """Number of outlying tokens without which the tails are those of rounding; 0 if they are without it, or in no case."""
    of_outlying: float
    """The part of the mean K3 that these tokens have, nats/token."""
    contradicted: float
    """Share of tokens with log-prob 0 on one side to which the other side gives a clearly smaller one."""
    equal: float
    """Share of the uncertain tokens whose two log-probs are equal to the last bit."""
    growth_z: float
    """`growth` in standard errors, with sequences as the independent units."""

    @property
    def irregular(self) -> tuple[str, ...]:
        """Traits that rounding does not have, in words: empty if the shape is that of rounding over tokens and positions."""
        grown = float(np.exp(abs(self.growth)))
        side = f"{self.negative:.0%} of the log-ratios that differ are negative"
        found = {
            f"{self.contradicted:.1%} of the tokens have log-prob 0 on one side alone": self.contradicted
            >= MOST_DENIED,
            f"{self.equal:.0%} of the uncertain tokens are equal to the last bit": MOSTLY_EQUAL < self.equal < 1,
            f"its tails are heavy (excess kurtosis {self.kurtosis:.0f})": self.kurtosis > HEAVY and not self.outlying,
            side: abs(self.negative - 0.5) >= 0.2,
            f"it {'grows' if self.growth > 0 else 'fades'} {grown:.1f} times along the positions": (
                grown > LEAST_GROWN and abs(self.growth_z) > CLEAR
            ),
        }
        return tuple(words for words, holds in found.items() if holds)


@once
def noise(evidence: Evidence) -> Noise:
    """Size and shape of the log-ratios; NaN where too few tokens are uncertain."""
    x = evidence.log_ratio
    unsure = np.maximum(evidence.earlier, evidence.later) < np.log(UNSURE)
    own, growth = x[unsure], _growth(evidence)
    lengths = np.bincount(evidence.row_codes) if len(evidence) else np.ones(1)
    sums = np.bincount(evidence.row_codes, x) if len(evidence) else np.zeros(0)
    expected = float(lengths.mean() * x.var())
    return Noise(
        1.4826 * float(np.median(np.abs(own))) if len(own) else np.nan,
        _kurtosis(own, evidence.weights[unsure]),
        _share_of_largest(evidence.distance, evidence.weights),
        float(np.average(x[x != 0] < 0, weights=evidence.weights[x != 0])) if x.any() else np.nan,
        float(sums.var() / expected) if expected > 0 else np.nan,
        growth,
        *_outlying(evidence, unsure),
        evidence.mean(
            (np.maximum(evidence.earlier, evidence.later) == 0)
            & (np.minimum(evidence.earlier, evidence.later) < -DENIED)
        ),
        float((own == 0).mean()) if len(own) else np.nan,
        fading(evidence).z if len(evidence) else np.nan,
    )


def _outlying(evidence: Evidence, unsure: Booleans) -> tuple[int, float]:
    """(number of outlying tokens, their part of the mean K3), as in `Noise`."""
    kept, far = unsure.copy(), largest(evidence)[: int(len(evidence) * MOST_OUTLYING)]
    for count in range(len(far) + 1):
        kept[far[:count]] = False
        if not _kurtosis(evidence.log_ratio[kept], evidence.weights[kept]) > HEAVY:
            return count, _part(evidence, far[:count])
    return 0, 0.0


def _part(evidence: Evidence, tokens: Integers) -> float:
    return float((evidence.weights * evidence.distance)[tokens].sum() / max(evidence.weights.sum(), 1e-300))


def is_noise(gap: float, shape: Noise) -> bool:
    """True if a gap is as small and as regular as rounding is, but for a few outlying tokens."""
    return gap - shape.of_outlying < HEALTHY and not shape.irregular


def is_harmless(gap: float, shape: Noise) -> bool:
    """True if a gap is so small that its shape does not matter. Log-probs of 0 that the other side denies may be missing ones."""
    return gap - shape.of_outlying < HEALTHY / 100 and shape.contradicted < MOST_DENIED


def _kurtosis(x: Floats, weights: Floats) -> float:
    if len(x) < 30 or x.var() == 0:
        return np.nan
    second, fourth = (np.average((x - np.average(x, weights=weights)) ** power, weights=weights) for power in (2, 4))
    return float(fourth / second**2 - 3)


def _share_of_largest(distance: Floats, weights: Floats) -> float:
    """The share of the distance that the largest token in a hundred has."""
    order = np.argsort(-distance, kind="stable")
    largest = max(1, int(np.searchsorted(np.cumsum(weights[order]), weights.sum() / 100, "right")))
    own = (weights * distance)[order]
    return float(own[:largest].sum() / max(own.sum(), 1e-300))


def _growth(evidence: Evidence) -> float:
    if len(evidence) < 100:
        return np.nan
    low, high = np.quantile(evidence.position, [0.25, 0.75])
    sizes = log_sizes(evidence)
    return float(sizes[evidence.position >= high].mean() - sizes[evidence.position <= low].mean())


class TokenSpread(NamedTuple):
    """The spread of tokens over the sequences. A choice that rounding tips falls on tokens at random, on both sides of 0."""

    negative: float
    """Share of them with a negative log-ratio."""
    in_runs: float
    """The factor by which a token is likelier one of them right after another one; 1 if they are independent."""
    over_rows: float
    """Variance of their number per sequence, relative to independent tokens."""
    at_an_end: float
    """Share of them among the first, or the last, fifth of the places; the larger one."""


def _spread(evidence: Evidence, chosen: Booleans) -> TokenSpread:
    if not chosen.any():
        return TokenSpread(0.5, 1.0, 1.0, 0.0)
    next_to = (np.diff(evidence.row) == 0) & (np.diff(evidence.position) == 1)
    both, first = (chosen[1:] & chosen[:-1] & next_to).sum(), (chosen[:-1] & next_to).sum()
    lengths = np.bincount(evidence.row_codes)
    expected = lengths * chosen.mean()
    counts = np.bincount(evidence.row_codes, chosen, minlength=evidence.rows)
    position, (first_fifth, last_fifth) = evidence.position[chosen], np.quantile(evidence.position, [0.2, 0.8])
    return TokenSpread(
        float((evidence.log_ratio[chosen] < 0).mean()),
        float(both / max(first, 1) / chosen.mean()),
        float(((counts - expected) ** 2).sum() / expected.sum()),
        float(max((position <= first_fifth).mean(), (position >= last_fifth).mean()))
        if last_fifth > first_fifth + 1
        else 0.0,
    )


def router_flips(evidence: Evidence) -> Result:
    """Few tokens have nearly the whole gap, on both sides of 0, while the others are as close as ever."""
    if len(evidence) < LEAST_TOKENS:
        return undecided(f"{len(evidence)} tokens are too few; {LEAST_TOKENS} are needed")
    shape = noise(evidence)
    rare = far_off(evidence)
    spread = _spread(evidence, rare)
    two_sided = 0.5 - ONE_SIDED < spread.negative < _most_negative(evidence.log_ratio[rare])
    scattered = spread.in_runs < RUNS and spread.over_rows < CROWDED and spread.at_an_end < MOSTLY_AT_AN_END
    few = shape.tail > RARE and shape.kurtosis > KURTOSIS and LEAST_FLIPS < evidence.mean(evidence.distance) < 1
    common = np.maximum(evidence.earlier, evidence.later) < np.log(UNSURE)
    common[largest(evidence)] = False  # single tokens are no routes
    heavy = _kurtosis(evidence.log_ratio[common], evidence.weights[common]) > HEAVY
    grows = few and _become_frequent(evidence, rare)
    holds = few and two_sided and scattered and heavy and not grows and int(rare.sum()) >= FEWEST_RARE
    kept = evidence.kept(~rare)
    share = share_explained(evidence, np.where(rare, kept.mean(kept.distance) if len(kept) else 0.0, evidence.distance))
    peaked = f"; the excess kurtosis is {shape.kurtosis:.0f}" if shape.kurtosis > KURTOSIS else ""
    effect = f"one token in a hundred has {shape.tail:.0%} of the gap{peaked}"
    if few and not holds:
        effect += (
            f", but {spread.negative:.0%} of the rare tokens are negative, they follow each other {spread.in_runs:.1f} times as "
            f"often as by chance, and their number varies {spread.over_rows:.1f} times as much over the sequences"
            f"{' and grows with the steps' if grows else ''}"
        )
    return Result(
        holds,
        effect,
        "60% of the gap in one token of a hundred would show",
        share if holds else None,
        kept if holds else None,
        doubts=() if not holds or _has_experts(evidence) else ("no setting on record names experts",),
        alike=("token_rows",) if holds and evidence.has("token") and row_tokens(evidence)[1].any() else (),
    )


def _become_frequent(evidence: Evidence, rare: Booleans) -> bool:
    """True if numbers of rare tokens in proportion to the steps since the first are likelier than one rate. Rounding has one."""
    if not evidence.has("step"):
        return False
    steps, at = evidence.step_codes
    counts, tokens = np.bincount(at, rare, len(steps)), np.bincount(at, minlength=len(steps))
    since = (steps - steps[0]) / max(np.ptp(steps), 1) * (len(steps) - 1) + 0.5
    return bool((counts * np.log(since / np.average(since, weights=tokens))).sum() > 0 and len(steps) > 2)


def _most_negative(x: Floats) -> float:
    """The largest share of negative ones that chance gives among log-ratios of these sizes, whose signs are honest.

    A sampler draws a token that it favours by x nats exp(x) times as often as one that the other side favours by as much.
    """
    share = float((1 / (1 + np.exp(-np.abs(x)))).mean()) if len(x) else 0.5
    return max(0.5 + ONE_SIDED, share + 2 * float(np.sqrt(share * (1 - share) / max(len(x), 1))))


def _has_experts(evidence: Evidence) -> bool:
    """True if a setting on record names a mixture of experts."""
    return any(
        "expert" in text or "moe" in text for pair in evidence.record.settings.items() for text in map(str.lower, pair)
    )


def different_weights(evidence: Evidence) -> Result:
    """By elimination: an honest, two-sided gap without any pattern that is larger than rounding in 16 or 8 bits."""
    if all_older(evidence):
        return absent("every token is of older weights on record, which is the simpler reason")
    return _larger_than_rounding(evidence)


def stale_weights(evidence: Evidence) -> Result:
    """By elimination, if by the record every token was sampled by older weights."""
    if not all_older(evidence):
        return absent("some tokens are of the newest weights on record")
    result = _larger_than_rounding(evidence)
    return replace(result, parameters={"lag": int(np.median(evidence.facts["lag"]))})


def all_older(evidence: Evidence) -> bool:
    """True if every token is of older weights than the newest ones, as far as versions are on record."""
    return evidence.has("lag") and bool((evidence.facts["lag"] > 0).all())


def _larger_than_rounding(evidence: Evidence) -> Result:
    mean, error = mean_weight(evidence)
    shape, size = noise(evidence), evidence.mean(evidence.distance)
    # Tokens that the sampler never drew, because the trainer alone expects them, are missing from a mean of large weights.
    honest = -max(5 * error, 0.02, UNSEEN * size) < mean - 1 < max(5 * error, 0.02)
    without_outlying = size - _part(evidence, largest(evidence))  # other weights move every token
    everywhere = without_outlying > HEALTHY and (shape.tail < RARE or not shape.kurtosis > KURTOSIS)
    # The mean of normal log-ratios that are honest is minus half of their variance: the larger they are, the more are negative.
    spread = float(np.sqrt(2 * max(-evidence.mean(evidence.log_ratio), 0.0)))
    most_negative = max(0.8, NormalDist().cdf(spread / 2) + 0.15)
    usual = min(1.0, USUAL / max(size, 1e-300))
    share = share_explained(evidence, evidence.distance * usual)
    two_sided = f"{shape.negative:.0%} of the log-ratios are negative"
    near = f"{error:.3f}" if error >= 0.0005 else f"{error:.1g}"
    mean_words = f"{mean:.3f}{f' ± {near}' if len(evidence.starts) > 1 else ''}"  # of one sequence no error is known
    effect = f"K3 is {size:.3g} nats/token, the mean weight {mean_words}, {two_sided}"
    holds = everywhere and honest and 0.3 < shape.negative < most_negative
    undone = evidence.with_earlier(evidence.later - evidence.log_ratio * np.sqrt(usual))
    shown = f"a gap above {HEALTHY:g} nats/token that no other cause explains would show"
    traces: Mapping[str, Callable[[Evidence], bool]] = {
        "different_prompt": lambda own: size > UNRELATED or fades(own),
        "trainer_temperature": is_partly,
        "penalty": lambda own: own.has("token") and penalty(own).holds,
        "switch_inside": _comes_and_goes,
    }
    alike = tuple(code for code, is_there in traces.items() if is_there(evidence)) if holds else ()
    return Result(holds, effect, shown, share, undone, alike=alike)


def _comes_and_goes(evidence: Evidence) -> bool:
    """True if a calm step lies between steps with the gap: weights that differ, or another precision, would be there, too."""
    if not evidence.has("step"):
        return False
    steps, index = evidence.step_codes
    levels = np.bincount(index, evidence.weights * evidence.distance) / np.bincount(index, evidence.weights)
    large = np.flatnonzero(levels > levels.mean() * LARGE_STEP)
    return bool((levels[large.min(initial=len(steps)) : large.max(initial=0)] < levels.mean() * CALM_STEP).any())


CAUSES = (
    Cause(
        "different_weights",
        "the two sides compute with different weights, or at much lower precision",
        "rest",
        different_weights,
        "at the level of rounding in 16 bits",
        "The gap has no pattern that any other cause would leave. Stale weights without versions on record, a partial load, a "
        "wrong layout, 4-bit weights, another head, an adapter that one side counts twice, and a side that computes with dropout "
        "look like this.",
        "Record the version that sampled each token, and compare a digest of each tensor of the engine with the trainer's.",
        "Score a batch with both sides in float32 from one checkpoint: if the gap stays, code differs; if not, weights or "
        "precision.",
        sided={
            side: f"the {side} computes with different weights, or at much lower precision"
            for side in ("engine", "trainer")
        },
        mistaken_for={
            "version_lag": "With versions on record a lag shows by its size.",
            "train_mode": "A second pass of the trainer gives the same log-probs, unless it draws at random.",
        },
    ),
    Cause(
        "stale_weights",
        "every token was sampled by older weights",
        "rest",
        stale_weights,
        "at the level of rounding in 16 bits",
        "By the record no token is of the newest weights, and the gap has no other pattern. How much of it the age "
        "explains "
        "cannot be measured, because no token is fresh.",
        "Sync weights before each batch for a few steps, or lower the allowed lag.",
        "Record some steps at lag 0: the gap must fall there.",
        needs=("lag",),
        estimate="{lag} updates",
        mistaken_for={"different_weights": "At lag 0 the gap of different weights stays."},
    ),
    Cause(
        "router_flips",
        "rare tokens take another route through the experts",
        "tail",
        router_flips,
        "without the rare tokens",
        "In a mixture of experts a rounding error can choose another expert. Few tokens then differ much; the others are "
        "as close as ever.",
        "Replay the engine's routes in the trainer (R3), and check that the replay is not inert.",
        "Repeat one step with routing replay on: the gap of the rare tokens must fall by three times or more.",
        mistaken_for={"biased_ids": "A bias shows at the same ids each time."},
    ),
)
