"""The probabilities of several tokens at a position, under the rollout and the trainer: a support, and one bin for the rest.

A sampled token shows one draw of a position. Its support shows the distribution that it was drawn from, so expectations over the
next token are sums here and need no sample. Every token outside the support lies in one bin, whose masses are known: 1 minus the
masses on the support. Merging tokens into a bin never raises a divergence (data processing inequality: Cover and Thomas 2006,
theorem 2.8.1 and eq. 11.135), so divergences of the bins bound those of the vocabulary from below.
"""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array, Booleans, Floats, Integers

FLOOR = 1e-6
"""A mass outside the support below this is not told from 0, because log-probs have float32 digits. NeMo-RL's floor, too."""
MOST_MASS = 1.01
"""Log-probs of one distribution have no larger mass; the excess above 1 is what digits of bfloat16 give. A convention."""
NEAR = 0.01
"""Log-probs of one token under one policy that lie farther apart, in nats, are not of one distribution. A convention."""


@dataclass(frozen=True)
class SupportTokens:
    """Sampled tokens, each with k tokens of its position. Log-probs in nats; NaN where absent, which -inf counts as, too."""

    ids: Integers
    """Token ids of the support, (n, k); negative where absent."""
    rollout: Floats
    """Log-probs under the rollout, (n, k), normalised over the vocabulary that it samples from."""
    train: Floats
    """Log-probs of the same ids under the trainer, (n, k)."""
    sampled: Integers
    """The sampled id, (n,)."""
    sampled_rollout: Floats
    """Its log-prob under the rollout, (n,)."""
    sampled_train: Floats
    """Its log-prob under the trainer, (n,)."""
    advantage: Floats
    """(n,), in any unit; NaN where there is none."""
    mask: Booleans
    """True if the token is in the loss, (n,)."""
    sequence: Integers
    """The sequence of the token, (n,): the independent unit of errors."""
    stands_for: Floats
    """1 / the probability with which the sequence was recorded, (n,)."""


@dataclass(frozen=True)
class Bins:
    """The usable tokens, n of them, and k + 1 bins at each: the support, then everything outside it. Both sides sum to 1."""

    q: Floats
    """Probabilities under the rollout, (n, k + 1); 0 where absent."""
    p: Floats
    """Probabilities under the trainer, (n, k + 1); 0 where absent."""
    x: Floats
    """log(p / q) of each bin, (n, k + 1); 0 where absent."""
    drawn: Integers
    """The bin of the sampled token, (n,); k if it lies outside the support."""
    log_ratio: Floats
    """log(p / q) of the sampled token from its own log-probs, (n,)."""
    advantage: Floats
    """(n,), 0 where there is none."""
    sequence: Integers
    stands_for: Floats
    """As in SupportTokens, (n,)."""
    no_support: int
    """Tokens of the loss that are left out: no id has log-probs of both sides."""
    too_much: int
    """Those left out because a side has a mass above MOST_MASS: these are no log-probs of one distribution."""
    not_finite: int
    """Those left out because a log-prob of the sampled token is NaN or infinite."""
    disagreeing: int
    """Tokens that count, whose own log-probs differ by more than NEAR from those in the support: other temperature or filter."""


def bins_of(tokens: SupportTokens) -> Bins:
    """The bins of the tokens of the loss. A repeated id counts once; one without both log-probs lies outside."""
    valid = np.isfinite(tokens.rollout) & np.isfinite(tokens.train) & (tokens.ids >= 0)
    valid &= ~_repeated(tokens.ids, valid)
    # A log-prob far above 0 is no log-prob: its mass is above MOST_MASS, whatever it is.
    q, p = (np.exp(np.minimum(np.where(valid, side, -np.inf), 1.0)) for side in (tokens.rollout, tokens.train))
    known = valid.any(axis=1)
    fits = np.maximum(q.sum(axis=1), p.sum(axis=1)) <= MOST_MASS
    finite = np.isfinite(tokens.sampled_rollout) & np.isfinite(tokens.sampled_train)
    kept = tokens.mask & known & fits & finite
    hit = (tokens.ids == tokens.sampled[:, None]) & valid
    drawn = np.where(hit.any(axis=1), hit.argmax(axis=1) if hit.size else 0, hit.shape[1])
    q, p, x = _bins(q[kept], p[kept])
    advantage = tokens.advantage[kept]
    return Bins(
        q, p, x, drawn[kept],
        log_ratio=(tokens.sampled_train - tokens.sampled_rollout)[kept],
        advantage=np.where(np.isfinite(advantage), advantage, 0.0),
        sequence=tokens.sequence[kept],
        stands_for=tokens.stands_for[kept],
        no_support=_count(tokens.mask & ~known),
        too_much=_count(tokens.mask & known & ~fits),
        not_finite=_count(tokens.mask & known & fits & ~finite),
        disagreeing=_count(kept & _disagrees(tokens, hit)),
    )  # fmt: skip


def at_drawn(values: Floats, drawn: Integers) -> Floats:
    """The value of each token's own bin. values: (n, bins)."""
    return np.take_along_axis(values, drawn[:, None], axis=1)[:, 0]


def _bins(q: Floats, p: Floats) -> tuple[Floats, Floats, Floats]:
    """(q, p, log(p / q)) with the bin outside. A mass below FLOOR there is that of the other side, at most FLOOR."""
    q_rest, p_rest = (np.maximum(1 - side.sum(axis=1), 0.0) for side in (q, p))
    q_rest, p_rest = (np.maximum(own, np.minimum(other, FLOOR)) for own, other in ((q_rest, p_rest), (p_rest, q_rest)))
    q, p = (np.column_stack((side, rest)) for side, rest in ((q, q_rest), (p, p_rest)))
    q, p = (side / np.maximum(side.sum(axis=1, keepdims=True), FLOOR) for side in (q, p))
    both = (q > 0) & (p > 0)
    return q, p, np.log(np.where(both, p, 1.0)) - np.log(np.where(both, q, 1.0))


def _repeated(ids: Integers, valid: Booleans) -> Booleans:
    """True where an id stands at an earlier place of its row, too."""
    shown = np.where(valid, ids, -1 - np.arange(ids.shape[1]))
    order = np.argsort(shown, axis=1, kind="stable")
    sorted_ids = np.take_along_axis(shown, order, axis=1)
    again = np.zeros(ids.shape, np.bool_)
    np.put_along_axis(again, order[:, 1:], sorted_ids[:, 1:] == sorted_ids[:, :-1], axis=1)
    return again


def _disagrees(tokens: SupportTokens, hit: Booleans) -> Booleans:
    """True where the sampled token's log-prob of a side is another one in the support."""
    pairs = ((tokens.rollout, tokens.sampled_rollout), (tokens.train, tokens.sampled_train))
    with np.errstate(invalid="ignore"):  # of two infinities, which agree
        moves = [np.where(hit, side - own[:, None], 0.0) for side, own in pairs]
    apart = [np.nan_to_num(np.abs(each), nan=0.0, posinf=np.inf).max(axis=1, initial=0.0) > NEAR for each in moves]
    return np.asarray(apart[0] | apart[1])


def _count(places: Array) -> int:
    return int(np.count_nonzero(places))
