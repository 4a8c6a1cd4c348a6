"""Regressions and means with errors that take sequences as independent units; two levels in a row; tokens after one prefix."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Booleans, Floats, Integers

from .evidence import ODD, Evidence, once, unit_sums


def best_changes(values: Floats, row: Integers, least: float) -> tuple[Integers, Booleans]:
    """(index of the first value of the second level of each row that has two, whether that level is the larger one).

    Two levels by least squares. least: the drop of the squared error that is clear. A level has two values or more.
    """
    if not len(values):
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    starts = np.flatnonzero(np.concatenate(([True], np.diff(row) != 0)))
    counts = np.diff(np.append(starts, len(values)))
    of_row = np.repeat(np.arange(len(starts)), counts)
    count, k = counts[of_row], np.arange(len(values)) - starts[of_row]
    sums = np.concatenate(([0.0], np.cumsum(values)))[:-1]
    before = sums - sums[starts][of_row]
    total = np.add.reduceat(values, starts)[of_row]
    inside = (k >= 2) & (k < count - 1)
    with np.errstate(all="ignore"):
        rise = (total - before) / (count - k) - before / k
        gain = np.where(inside, k * (count - k) / count * rise**2, -1.0)
    best = np.maximum.reduceat(gain, starts)
    is_best = np.flatnonzero((gain == best[of_row]) & (gain > least))
    at = is_best[np.unique(of_row[is_best], return_index=True)[1]]
    return at, rise[at] > 0


Hashes = npt.NDArray[np.uint64]


@once
def prompts(evidence: Evidence) -> Integers:
    """Number of each token's prompt, from 0, shape (tokens,). A prompt that returns at another step counts as another one."""
    groups, group = np.unique(evidence.facts["group"], return_inverse=True)
    step = evidence.step_codes[1] if evidence.has("step") else np.zeros(len(evidence), np.int64)
    return np.asarray(np.unique(step * len(groups) + group, return_inverse=True)[1], np.int64)


@once
def kinds(evidence: Evidence) -> Integers:
    """A number of each token, from 0, that those share which have one prompt and the same ids up to them, shape (tokens,)."""
    keys = (evidence.row_codes, _hash_so_far(evidence), evidence.position, prompts(evidence))
    order = np.lexsort(keys)
    again = np.logical_and.reduce([np.diff(values[order]) == 0 for values in keys[1:]])
    number = np.zeros(len(evidence), np.int64)
    number[order[1:]] = np.cumsum(~again)
    return number


@once
def firsts(evidence: Evidence) -> Booleans:
    """True if no earlier response of the prompt has the same ids up to and including the token, shape (tokens,)."""
    first = np.zeros(len(evidence), np.bool_)
    first[np.unique(kinds(evidence), return_index=True)[1]] = True
    return first


class Repeats(NamedTuple):
    """Tokens that stand in several responses of a prompt after the same ids."""

    tokens: int
    """Their number, less one of each kind."""
    prompts: int
    earlier: float
    """Variance of the sampler's log-probs of one kind, relative to the mean squared log-ratio of these tokens."""
    later: float
    """The same of the trainer's."""


@once
def repeats(evidence: Evidence) -> Repeats:
    """The spread of the log-probs that each side gives one token after the same ids."""
    kind = kinds(evidence)
    counts = np.bincount(kind)
    own = counts[kind] > 1
    if not own.any():
        return Repeats(0, 0, 0.0, 0.0)
    extra = int((counts[counts > 1] - 1).sum())
    size = max(float((evidence.log_ratio[own] ** 2).mean()), 1e-300)

    def variance(values: Floats) -> float:
        means = np.bincount(kind, values) / np.maximum(counts, 1)
        return float(((values - means[kind])[own] ** 2).sum() / extra)

    varies = (variance(side) / size for side in (evidence.earlier, evidence.later))
    return Repeats(extra, len(np.unique(prompts(evidence)[own])), *varies)


def _hash_so_far(evidence: Evidence) -> Hashes:
    """A hash of the ids of the response up to and including each token, shape (tokens,).

    Behind a hole, such as the text of a tool, the ids are not known, and no other response counts as having the same ones.
    """
    place, token = evidence.position.astype(np.uint64), evidence.facts["token"].astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (token + np.uint64(1)) * ((np.uint64(2) * place + np.uint64(1)) * ODD) ** np.uint64(3)
        so_far = np.cumsum(mixed ^ (mixed >> np.uint64(29)), dtype=np.uint64)
        before = np.concatenate((np.zeros(1, np.uint64), so_far))[evidence.starts]
        is_behind = evidence.position > np.arange(len(evidence)) - evidence.starts[evidence.row_codes]
        return so_far - before[evidence.row_codes] + is_behind * (evidence.row_codes.astype(np.uint64) + np.uint64(1))


MOST = 5.0
"""A log-ratio above this counts as this in the mean weight. Clipping can only lower the mean."""


def least_squares(columns: Floats, values: Floats, evidence: Evidence) -> tuple[Floats, Floats]:
    """(coefficients, standard errors) of a linear regression; shapes (k,). columns: shape (tokens, k).

    The errors are clustered by sequence: Liang and Zeger 1986.
    """
    root = np.sqrt(evidence.weights)
    coefficients = np.linalg.lstsq(columns * root[:, None], values * root, rcond=None)[0]
    residual = values - columns @ coefficients
    scores = np.stack([unit_sums(evidence, column * residual) for column in columns.T], axis=1)
    inverse = np.linalg.pinv((columns * evidence.weights[:, None]).T @ columns)
    rows = len(scores)
    covariance = inverse @ (scores.T @ scores) @ inverse * rows / max(rows - 1, 1)
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return coefficients.astype(np.float64), errors.astype(np.float64)


def correlation(first: Floats, second: Floats, *, undefined: float = 0.0) -> float:
    """Pearson's correlation, in -1..1; `undefined` for fewer than three values, or where a side has one value only."""
    is_defined = len(first) > 2 and np.ptp(first) > 0 and np.ptp(second) > 0
    return float(np.corrcoef(first, second)[0, 1]) if is_defined else undefined


def slope(of: Floats, over: Floats) -> float:
    """Rise of the values for a rise by 1 of `over`, by least squares; 0 where `over` has one value only."""
    return float(np.polyfit(over, of, 1)[0]) if len(over) > 1 and np.ptp(over) > 0 else 0.0


@once
def mean_weight(evidence: Evidence) -> tuple[float, float]:
    """(mean importance weight, its standard error). 1 for any trainer, if the sampler's log-probs are those it sampled from."""
    values = np.exp(np.minimum(evidence.log_ratio, MOST))
    mean = evidence.mean(values)
    residual = unit_sums(evidence, values - mean)
    rows = max(len(residual), 2)
    return mean, float(np.sqrt((residual**2).sum() * rows / (rows - 1)) / max(float(evidence.weights.sum()), 1e-300))


@once
def surprisal_gap(evidence: Evidence) -> tuple[float, float]:
    """(mean of -later - entropy in nats, its standard error). 0 if tokens were sampled from the later policy."""
    gap = -evidence.later - evidence.facts["entropy"]
    known = np.isfinite(gap)
    if known.sum() < 2:
        return np.nan, np.inf
    # A martingale difference given the prefix: tokens are uncorrelated.
    own, weights, tokens = gap[known], evidence.weights[known], int(known.sum())
    mean = float((weights * own).sum() / weights.sum())
    squares = ((weights * (own - mean)) ** 2).sum() * tokens / (tokens - 1)
    return mean, float(np.sqrt(squares) / weights.sum())
