"""Numbers from the supports of tokens: divergences with little noise, the mass outside, and the score that the sampler expects.

The score of token v at a position is d log p(v) / d theta. A policy gradient adds A times the score of the sampled token. Its
mean over the trainer's own next tokens is 0; over the sampler's it is not. These numbers look along one direction of the logits,
the gap itself: z(v) moves by e x(v), x = log(p / q). There the score of v is s(v) = x(v) - sum_u p(u) x(u), so that its mean
under the sampler is -(KL(q || p) + KL(p || q)), and under the trainer 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Floats, Integers

from ..definitions.divergence import k3
from ..metric import error_of_ratio, ratio
from .support_bins import Bins, at_drawn

TokenValues = Callable[[Bins], Floats]


@dataclass(frozen=True)
class SupportMetric:
    """A ratio of two sums over the usable tokens."""

    name: str
    title: str
    unit: str
    """The unit of the value; 1 for a pure number."""
    formula: str
    """Per token; q is the rollout's probability, p the trainer's, bins are the support and everything outside it."""
    meaning: str
    """In one or two sentences."""
    estimator: str
    """The name of the estimator."""
    range: str
    """The possible values, as an interval."""
    source: str
    """Publisher of the formula."""
    top: TokenValues
    """One value per token, whose sum is divided, (n,)."""
    under: TokenValues = lambda bins: np.ones(len(bins.drawn))
    """One weight per token, by whose sum it is divided, (n,)."""
    weighting: str = "every usable token counts once"
    """The weight of a token in the value."""


@dataclass(frozen=True)
class SupportNumber:
    """A value with its standard error, sequences as the independent units (delta method, as `clustered_error`)."""

    value: float
    """NaN if it is not available."""
    error: float
    """NaN below two sequences."""
    tokens: int
    """Tokens with a weight."""
    sequences: int
    """Sequences with such a token."""

    @property
    def is_beyond_noise(self) -> bool:
        """True if it is two standard errors or more from 0."""
        return bool(abs(self.value) >= 2 * self.error > 0)


def score(bins: Bins) -> Floats:
    """s(v) of every bin along the gap itself, (n, k + 1), nats."""
    return bins.x - _mean(bins.p, bins.x)[:, None]


def size_of_advantage(bins: Bins) -> Floats:
    """|A| of each token, (n,); 0 without one."""
    return np.abs(bins.advantage)


def _mean(weights: Floats, values: Floats) -> Floats:
    return np.asarray((weights * values).sum(axis=1), np.float64)


def _expected(weights: Floats, bins: Bins) -> Floats:
    """The sum over the support alone, without the bin outside."""
    return _mean(weights[:, :-1], score(bins)[:, :-1])


AMINI = "Amini, Vieira and Cotterell 2025, arXiv:2504.10637"
CENTERING = (
    "Marek and Ryabinin 2026, arXiv:2609.20807, as its authors' code and trainers' show it; see docs/bias_and_noise.md"
)
BY_ADVANTAGE = "every usable token counts by |A|"

SUPPORT_METRICS = (
    SupportMetric("support_kl", "KL, at least", "nats/token", "sum over bins of q log(q / p)",
                  "KL(rollout || trainer) at each position, summed over the support and one bin for the rest: a lower bound, by "
                  "data processing, that is exact where nothing lies outside.",
                  "Rao-Blackwellised: the mean over the next token is a sum", "[0, inf)", AMINI,
                  lambda s: -_mean(s.q, s.x)),
    SupportMetric("support_k3", "K3 on the same tokens", "nats/token", "w - 1 - log w of the sampled token",
                  "The usual estimate of the same divergence, from the sampled tokens alone; it has what lies outside, too.",
                  "K3", "[0, inf)", "Schulman 2020", lambda s: np.asarray(k3(s.log_ratio, np), np.float64)),
    SupportMetric("support_total_variation", "Total variation, at least", "1", "sum over bins of |q - p| / 2",
                  "The probability that the two sides choose another next token, if they are coupled as well as can be: a lower "
                  "bound, as above. Twice this is the length of the expected score, in the logits.",
                  "exact on the bins", "[0, 1]", "Cover and Thomas 2006, section 11.6",
                  lambda s: np.abs(s.q - s.p).sum(axis=1) / 2),
    SupportMetric("outside_rollout", "Rollout's mass outside", "1", "1 - sum over the support of q",
                  "The probability that the rollout gives to tokens outside the support.", "exact", "[0, 1]",
                  "definition", lambda s: s.q[:, -1]),
    SupportMetric("outside_trainer", "Trainer's mass outside", "1", "1 - sum over the support of p",
                  "The probability that the trainer gives to tokens outside the support.", "exact", "[0, 1]",
                  "definition", lambda s: s.p[:, -1]),
    SupportMetric("expected_score_rollout", "Expected score under the rollout", "nats/token", "sum over the support of q s",
                  "The mean score along the gap over the rollout's next tokens. Together with what lies outside it is "
                  "-(KL(q || p) + KL(p || q)): an advantage above 0 that all next tokens share narrows the gap by it.",
                  "Rao-Blackwellised", "(-inf, inf)", CENTERING, lambda s: _expected(s.q, s)),
    SupportMetric("expected_score_trainer", "Expected score under the trainer", "nats/token", "sum over the support of p s",
                  "The same over the trainer's next tokens: 0 by construction where nothing lies outside, so that its size is "
                  "what the support misses.",
                  "Rao-Blackwellised", "(-inf, inf)", CENTERING, lambda s: _expected(s.p, s)),
    SupportMetric("score_drift", "Drift of the score", "nats", "sum(A sum over bins of q s) / sum(|A|)",
                  "The expected score in the gradient, which score centering subtracts. Above 0 it widens the gap at an update, "
                  "below 0 it narrows it; it adds up if its sign stays.",
                  "Rao-Blackwellised", "(-inf, inf)", CENTERING, lambda s: s.advantage * _mean(s.q, score(s)),
                  size_of_advantage, BY_ADVANTAGE),
)  # fmt: skip


def clustered_sums(pairs: Sequence[tuple[Floats, Floats]], sequence: Integers, stands_for: Floats) -> Floats:
    """The sums that the value, the error and the counts of each ratio need, (pairs, 7); they add up over sets of sequences.

    pairs: (top, under) of each token. sequence: the sequence of each token. stands_for: how often each token counts.
    """
    names, place = np.unique(sequence, return_inverse=True)
    rows = []
    for top, under in pairs:
        a, n = (np.bincount(place, values * stands_for, minlength=len(names)) for values in (top, under))
        counts = (np.bincount(place, under != 0, minlength=len(names)) > 0).sum(), np.count_nonzero(under)
        rows.append((a.sum(), n.sum(), counts[0], a @ a, a @ n, n @ n, counts[1]))
    return np.asarray(rows, np.float64).reshape(len(pairs), 7)


def numbers(sums: Floats) -> tuple[SupportNumber, ...]:
    """The value, error and counts of each row of `clustered_sums`, added up over any sequences."""
    a, n, m, aa, an, nn, tokens = sums.T
    sign = np.where(n < 0, -1.0, 1.0)
    with np.errstate(all="ignore"):
        values, errors = ratio(sign * a, sign * n), error_of_ratio(sign * a, sign * n, m, aa, an, nn)
    finite = np.isfinite(values)
    columns = zip(np.where(finite, values, np.nan), np.where(finite, errors, np.nan), tokens, m, strict=True)
    return tuple(SupportNumber(float(v), float(e), int(t), int(c)) for v, e, t, c in columns)


def metric_pairs(bins: Bins) -> list[tuple[Floats, Floats]]:
    """(top, under) of each of SUPPORT_METRICS."""
    return [(metric.top(bins), metric.under(bins)) for metric in SUPPORT_METRICS]


def sampled_score(bins: Bins) -> Floats:
    """s of each sampled token's own bin, (n,)."""
    return at_drawn(score(bins), bins.drawn)
