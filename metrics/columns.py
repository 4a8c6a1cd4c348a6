"""The columns a formula may read, at the two levels, and how sequence columns follow from token sums.

Outside the set a column speaks of it holds its neutral value, so that formulas need no mask: padding and tokens that were
set aside read 0, log-weights -inf. A token is set aside (and counted) if either logprob is NaN or +inf, or the earlier one
is -inf; a later logprob of -inf is a real weight of 0: it is `token` but not `finite`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .statistic import Array, Namespace

SHIFTS = (-2, -1, 1, 2)
ROUNDING = 1e-6
"""A log-softmax can leave a logprob this far above 0; beyond it the value is no log-probability."""


@dataclass(frozen=True)
class Pair:
    """The later logprob beside the earlier one `shift` positions before it in the same sequence; 0 where there is none."""

    exists: Array
    earlier: Array
    later: Array


@dataclass(frozen=True)
class TokenColumns:
    """One value per token, in nats where it has a unit; shaped (tokens,) or (B, T).

    unmasked, token, finite, has_entropy, positive are 0 or 1; log_ratio and later speak of `finite` tokens, earlier,
    log_weight, weight and the probabilities of `token`s, surprisal_gap of finite tokens with entropy.
    """

    unmasked: Array
    token: Array
    finite: Array
    positive: Array
    earlier: Array
    later: Array
    log_ratio: Array
    log_weight: Array
    weight: Array
    earlier_probability: Array
    later_probability: Array
    has_entropy: Array
    surprisal_gap: Array
    pairs: Mapping[int, Pair]


@dataclass(frozen=True)
class SequenceColumns:
    """One value per whole sequence. `sequence` is 1 if it has a token and none was set aside; else all others are neutral.

    log_weight is S, the sum of log-ratios, mean_log_weight is m; both -inf where a token has weight 0.
    """

    sequence: Array
    empty: Array
    set_aside: Array
    log_weight: Array
    mean_log_weight: Array
    mean_earlier: Array
    mean_later: Array


def token_columns(
    earlier: Array, later: Array, mask: Array, xp: Namespace, *, entropy: Array | None, pairs: Mapping[int, Array]
) -> TokenColumns:
    """Columns from float64 logprobs of one shape. pairs: shift -> the earlier logprob `shift` positions before, else NaN."""
    infinity = float("inf")
    token = mask & xp.isfinite(earlier) & (xp.isfinite(later) | (later == -infinity))
    finite = token & xp.isfinite(later)
    present = finite & xp.isfinite(entropy) if entropy is not None else finite & False
    log_weight = xp.where(token, later - earlier, -infinity)
    floor = xp.where(token, earlier, -infinity)
    at = xp.where(finite, later, 0.0)
    return TokenColumns(
        unmasked=mask * 1.0,
        token=token * 1.0,
        finite=finite * 1.0,
        positive=(mask & ((earlier > ROUNDING) | (later > ROUNDING))) * 1.0,
        earlier=xp.where(token, earlier, 0.0),
        later=at,
        log_ratio=xp.where(finite, log_weight, 0.0),
        log_weight=log_weight,
        weight=xp.exp(log_weight),
        earlier_probability=xp.exp(floor),
        later_probability=xp.exp(xp.where(token, later, -infinity)),
        has_entropy=present * 1.0,
        surprisal_gap=xp.where(present, -at - entropy, 0.0) if entropy is not None else at * 0.0,
        pairs={shift: _pair(shifted, at, finite, xp) for shift, shifted in pairs.items()},
    )


def _pair(shifted: Array, later: Array, finite: Array, xp: Namespace) -> Pair:
    exists = finite & xp.isfinite(shifted)
    return Pair(exists * 1.0, xp.where(exists, shifted, 0.0), xp.where(exists, later, 0.0))


def sequence_columns(sums: Mapping[str, Array], xp: Namespace) -> SequenceColumns:
    """Columns of whole sequences from their token sums, by statistic name."""
    whole = (sums["tokens"] > 0) & (sums["non_finite"] == 0)
    tokens = xp.where(whole, sums["tokens"], 1.0)
    vanishes = sums["zero_weight_tokens"] > 0
    infinity = float("inf")

    def logarithm(name: str) -> Array:
        return xp.where(whole, xp.where(vanishes, -infinity, sums[name]), -infinity)

    return SequenceColumns(
        sequence=whole * 1.0,
        empty=(sums["unmasked_tokens"] == 0) * 1.0,
        set_aside=(sums["non_finite"] > 0) * 1.0,
        log_weight=logarithm("sum_log_ratio"),
        mean_log_weight=logarithm("sum_log_ratio") / tokens,
        mean_earlier=xp.where(whole, sums["sum_earlier"] / tokens, -infinity),
        mean_later=logarithm("sum_later") / tokens,
    )
