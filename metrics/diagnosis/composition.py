"""Composition: the change of a mean distance, split into another mix of tokens and another distance of equal tokens.

The mean over parts is the sum of share times size. Its change is split symmetrically (Kitagawa 1955, Oaxaca 1973):

    composition = sum over parts of (share after - share before) * (size before + size after) / 2
    size        = sum over parts of (size after - size before) * (share before + share after) / 2

The two add up to the change, and exchange of before and after negates both.
"""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Floats, Integers

BLOCKS = 20
"""Neighbouring steps share a block where there are more: steps of one block may depend on each other, blocks do not."""
LEAST_CLEAR = 2.0
"""A change that is smaller than so many standard errors has no shares."""


@dataclass(frozen=True)
class Mix:
    """Tokens by step and part, such as buckets of probability. Both shapes (steps, parts)."""

    tokens: Floats
    sums: Floats
    """Sum of the distance over these tokens, nats."""

    def at(self, chosen: slice | Integers) -> "Mix":
        """The mix of some of the steps."""
        return Mix(self.tokens[chosen], self.sums[chosen])


@dataclass(frozen=True)
class Split:
    """The change of a mean distance in two parts. Arrays have one value per part of the mix."""

    before: float
    """Mean distance before, nats/token."""
    after: float
    """Mean distance after, nats/token."""
    change_error: float
    """Standard error of after - before, with blocks of steps as the independent units; NaN if a side has one step."""
    composition: float
    """The part of the change that another mix makes, nats/token."""
    composition_error: float
    """Its standard error, likewise."""
    size: float
    """The part that another distance of equal tokens makes, nats/token."""
    size_error: float
    """Its standard error, likewise."""
    share: float
    """composition divided by the change; NaN if the change is within LEAST_CLEAR standard errors."""
    share_error: float
    """Its standard error, likewise."""
    shares: tuple[Floats, Floats]
    """Share of each part in the tokens before and after."""
    sizes: tuple[Floats, Floats]
    """Mean distance of each part before and after; a part that one side lacks has that of the other side."""
    compositions: Floats
    """The composition of each part, relative to the mean of all: positive if a part of large distance grew."""
    tokens: tuple[float, float]
    """Tokens before and after."""
    steps: tuple[int, int]
    """Steps before and after."""

    @property
    def change(self) -> float:
        """after - before, nats/token: composition and size together."""
        return self.after - self.before

    @property
    def size_factor(self) -> float:
        """The distance of equal tokens after / before: sizes weighted by the mean shares."""
        weights = (self.shares[0] + self.shares[1]) / 2
        low = float(weights @ self.sizes[0])
        return float(weights @ self.sizes[1]) / low if low > 0 else np.nan


def split(before: Mix, after: Mix) -> Split | None:
    """The change from one mix to another, in composition and size. None if a side has no token, or an infinite distance."""
    if not all(side.tokens.sum() > 0 and np.isfinite(side.sums).all() for side in (before, after)):
        return None
    shares = _shares(before), _shares(after)
    sizes = _filled(_sizes(before), _sizes(after)), _filled(_sizes(after), _sizes(before))
    moved, grown = shares[1] - shares[0], sizes[1] - sizes[0]
    size, share = (sizes[0] + sizes[1]) / 2, (shares[0] + shares[1]) / 2
    composition, own = float(moved @ size), float(grown @ share)
    # Influence of each step on both parts: the delta method. A share moves by (tokens - share * all) / total.
    sides = [
        _influences(before, shares[0], sizes[0], (-size, moved / 2), (grown / 2, -share)),
        _influences(after, shares[1], sizes[1], (size, moved / 2), (grown / 2, share)),
    ]
    covariance = _covariance(sides[0]) + _covariance(sides[1])
    change = composition + own
    error = _root(covariance.sum())
    clear = change != 0 and not abs(change) < LEAST_CLEAR * error
    part = composition / change if clear else np.nan
    slope = np.array([1 - part, -part]) / change if clear else np.zeros(2)
    return Split(
        float(shares[0] @ sizes[0]), float(shares[1] @ sizes[1]), error,
        composition, _root(covariance[0, 0]), own, _root(covariance[1, 1]),
        part, _root(float(slope @ covariance @ slope)) if clear else np.nan, shares, sizes,
        moved * (size - float(share @ size)), (float(before.tokens.sum()), float(after.tokens.sum())),
        (len(before.tokens), len(after.tokens)),
    )  # fmt: skip


def at_fixed_mix(mix: Mix) -> Floats:
    """Mean distance of each step as it would be at the mix of all steps, shape (steps,); NaN for a step without tokens.

    Indirect standardisation: observed divided by expected, times the mean of all. The expected distance of a part is its median
    over blocks of steps, so that one huge token does not decide.
    """
    blocks = [_sizes(mix.at(part)) for part in _blocks(len(mix.tokens))]
    known = [column[~np.isnan(column)] for column in np.array(blocks).T]
    usual = np.array([np.median(values) if len(values) else 0.0 for values in known])
    expected = mix.tokens @ usual
    if not expected.sum() > 0:
        return np.full(len(expected), np.nan)
    overall = expected.sum() / mix.tokens.sum()
    return np.where(expected > 0, mix.sums.sum(axis=1) / np.where(expected > 0, expected, 1.0) * overall, np.nan)


def _blocks(steps: int) -> list[slice]:
    edges = np.unique(np.linspace(0, steps, min(steps, BLOCKS) + 1).astype(int)).tolist()
    return [slice(first, last) for first, last in zip(edges, edges[1:], strict=False)]


def _shares(mix: Mix) -> Floats:
    tokens: Floats = mix.tokens.sum(axis=0)
    return np.asarray(tokens / tokens.sum())


def _sizes(mix: Mix) -> Floats:
    """Mean distance of each part; NaN for a part without tokens."""
    tokens = mix.tokens.sum(axis=0)
    sizes: Floats = np.where(tokens > 0, mix.sums.sum(axis=0) / np.where(tokens > 0, tokens, 1.0), np.nan)
    return sizes


def _filled(sizes: Floats, others: Floats) -> Floats:
    """The sizes, those of the other side where this one has no tokens, and 0 where neither has any."""
    return np.nan_to_num(np.where(np.isnan(sizes), others, sizes))


def _influences(mix: Mix, shares: Floats, sizes: Floats, *slopes: tuple[Floats, Floats]) -> Floats:
    """Influence of each block of steps on some sums, shape (blocks, sums).

    slopes: of each sum, its derivatives to the share and to the size of each part.
    """
    steps = [part.start for part in _blocks(len(mix.tokens))]
    tokens, sums = np.add.reduceat(mix.tokens, steps), np.add.reduceat(mix.sums, steps)
    of_share = (tokens - shares * tokens.sum(axis=1, keepdims=True)) / tokens.sum()
    own = tokens.sum(axis=0)
    of_size = (sums - sizes * tokens) / np.where(own > 0, own, 1.0)
    return np.stack([of_share @ share + of_size @ size for share, size in slopes], axis=1)


def _root(variance: float) -> float:
    """The standard error of a variance that rounding may have made negative."""
    return float(np.sqrt(np.maximum(variance, 0.0)))


def _covariance(influences: Floats) -> Floats:
    """Covariance of sums of independent influences, shape (sums, sums); NaN for a single one."""
    count = len(influences)
    return np.asarray(influences.T @ influences * (count / (count - 1) if count > 1 else np.nan))
