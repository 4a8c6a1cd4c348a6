"""The columns that formulas read, per token and per sequence.

Every column is defined on a set of tokens or sequences. Outside this set it holds its neutral value (0, or -inf for
log-weights), so that formulas need no mask. A token is set aside, and counted, if either logprob is NaN or +inf, or if the
earlier one is -inf. A later logprob of -inf is a real weight of 0: such a token is in `token`, but not in `finite`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .metric import Namespace, Operand

SHIFTS = (-2, -1, 1, 2)
ROUNDING = 1e-6
"""Rounding in a log-softmax can give a logprob this far above 0; a larger value is not a log-probability."""


@dataclass(frozen=True)
class ShiftedPair:
    """The later logprob of each token, and the earlier one `shift` positions before it in the same sequence."""

    exists: Operand
    """1 if both are known, else 0."""
    earlier: Operand
    """The earlier logprob `shift` positions before; 0 if it does not exist."""
    later: Operand
    """The later logprob; 0 if the pair does not exist."""


@dataclass(frozen=True)
class TokenColumns:
    """One value per token, shape (tokens,) or (B, T); log-probabilities and their differences in nats."""

    unmasked: Operand
    """1 if the token is in the mask."""
    token: Operand
    """1 if it is also not set aside."""
    finite: Operand
    """1 if its later logprob is also finite."""
    positive: Operand
    """1 if it is unmasked and a logprob exceeds ROUNDING."""
    earlier: Operand
    """The earlier logprob; 0 outside `token`."""
    later: Operand
    """The later logprob; 0 outside `finite`."""
    log_ratio: Operand
    """x = later - earlier; 0 outside `finite`."""
    log_weight: Operand
    """x, -inf for a weight of 0; -inf outside `token`."""
    weight: Operand
    """exp(log_weight)."""
    earlier_probability: Operand
    """exp(earlier); 0 outside `token`."""
    later_probability: Operand
    """exp(later); 0 outside `token`."""
    has_entropy: Operand
    """1 if the token is in `finite` and has an entropy."""
    surprisal_gap: Operand
    """-later - entropy; 0 outside `has_entropy`."""
    has_advantage: Operand
    """1 if the token is in `finite` and has an advantage."""
    advantage: Operand
    """0 outside `has_advantage`."""
    pairs: Mapping[int, ShiftedPair]
    """shift -> Pair."""


@dataclass(frozen=True)
class SequenceColumns:
    """One value per whole sequence. Logarithms are -inf outside `sequence`."""

    sequence: Operand
    """1 if the sequence has a token and none was set aside."""
    empty: Operand
    """1 if it has no unmasked token."""
    set_aside: Operand
    """1 if one of its tokens was set aside."""
    log_weight: Operand
    """S, the sum of its log-ratios in nats; -inf if one of its tokens has weight 0."""
    mean_log_weight: Operand
    """m, the mean of its log-ratios in nats/token; -inf as above."""
    mean_earlier: Operand
    """The mean earlier logprob, nats/token."""
    mean_later: Operand
    """The mean later logprob, nats/token; -inf if one of its tokens has weight 0."""


def token_columns(
    earlier: Operand,
    later: Operand,
    mask: Operand,
    xp: Namespace,
    *,
    entropy: Operand | None,
    advantage: Operand | None = None,
    pairs: Mapping[int, Operand],
) -> TokenColumns:
    """The columns of float64 logprobs of one shape.

    mask: boolean, of that shape. entropy: of the later policy, in nats. advantage: of the token, in any unit. pairs: shift ->
    the earlier logprob `shift` positions before each token, NaN where there is none.
    """
    infinity = float("inf")
    token, log_weight = log_weights(earlier, later, mask, xp)
    finite = token & xp.isfinite(later)
    present = finite & xp.isfinite(entropy) if entropy is not None else finite & False
    weighed = finite & xp.isfinite(advantage) if advantage is not None else finite & False
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
        surprisal_gap=xp.where(present, -at - entropy, 0.0) if entropy is not None else finite * 0.0,
        has_advantage=weighed * 1.0,
        advantage=xp.where(weighed, advantage, 0.0) if advantage is not None else finite * 0.0,
        pairs={shift: _pair(shifted, at, finite, xp) for shift, shifted in pairs.items()},
    )


def log_weights(earlier: Operand, later: Operand, mask: Operand, xp: Namespace) -> tuple[Operand, Operand]:
    """(true where a token is unmasked and not set aside, its log-weight and -inf elsewhere)."""
    infinity = float("inf")
    token = mask & xp.isfinite(earlier) & (xp.isfinite(later) | (later == -infinity))
    return token, xp.where(token, later - earlier, -infinity)


def _pair(shifted: Operand, later: Operand, finite: Operand, xp: Namespace) -> ShiftedPair:
    exists = finite & xp.isfinite(shifted)
    return ShiftedPair(exists * 1.0, xp.where(exists, shifted, 0.0), xp.where(exists, later, 0.0))


def sequence_columns(sums: Mapping[str, Operand], xp: Namespace) -> SequenceColumns:
    """The columns of whole sequences. sums: name of a token statistic -> its sum over each sequence."""
    whole = (sums["tokens"] > 0) & (sums["non_finite"] == 0)
    tokens = xp.where(whole, sums["tokens"], 1.0)
    vanishes = sums["zero_weight_tokens"] > 0
    infinity = float("inf")

    def logarithm(name: str) -> Operand:
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
