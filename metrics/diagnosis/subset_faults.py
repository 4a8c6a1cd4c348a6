"""Tests of faults that only some tokens have: those tokens against the others of equal probability."""

from collections.abc import Mapping

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from .cause import Parameter, Result, undecided
from .evidence import Evidence, once
from .factors import LARGEST, gap_of, times
from .fits import least_squares
from .share import level_ratios, share_explained, strata, undone_by_leaving

CLEAR = 4.0
"""Standard errors from which on a difference is beyond chance. About thirty causes are tested: a convention."""
CLEAR_LABEL = 3.3
"""The same for a label on record: few labels are tried, and nothing is chosen by its gap but the worst one."""
CLEAR_AGAIN = 3.0
"""The same for a clear difference without the largest tokens, most of which belong to the fault if there is one. A convention."""
FEW_ROWS = 4
"""The least number of sequences on either side of a comparison."""
FAR = 8.0
"""A log-ratio of so many times the median is far off. A convention."""
FEW_TOKENS = 16
"""The least number of tokens on either side of a comparison."""


def ratio_of(evidence: Evidence, bad: Booleans) -> tuple[float, float]:
    """(gap of the bad tokens divided by that of the others, both relative to the usual gap at their probability; log error)."""
    ratios, errors, _ = level_ratios(evidence, bad.astype(np.int64))
    return float(ratios[1] / max(ratios[0], 1e-300)), float(np.hypot(errors[0], errors[1]))


def subset_fault(
    evidence: Evidence,
    bad: Booleans,
    words: str,
    least: float,
    parameters: Mapping[str, Parameter] | None = None,
    clear: float = CLEAR,
    by_size: bool = False,
) -> Result:
    """The test of a fault of the bad tokens.

    words: the bad tokens as a plural subject. least: the least ratio of the gaps that counts as a fault. clear: standard errors
    from which on the ratio is beyond chance. by_size: the robust sizes of the tokens may show it, too: few tokens with very
    different distances are then enough.
    """
    if min(bad.sum(), (~bad).sum()) < FEW_TOKENS:
        return undecided(f"{words} are {int(bad.sum())} of {len(bad)} tokens: too few on one side of the comparison")
    rows = min(len(np.unique(evidence.units[side])) for side in (bad, ~bad))
    if rows < FEW_ROWS:
        return undecided(f"{words} or the others are of {rows} sequences: too few for a comparison")
    ratio, error = ratio_of(evidence, bad)
    error *= 1 + 4 / rows  # few sequences understate their own scatter
    share = share_explained(evidence, undone_by_leaving(evidence, bad))
    # The ratio of the gaps without the tokens that may be outlying, too: a fault is not one of single tokens.
    others, kept = _without_largest(evidence)
    again, its_error = ratio_of(others, bad[kept])
    sure = bool(least < ratio and np.log(ratio) > clear * error)
    sure = sure and bool(least < again and np.log(again) > CLEAR_AGAIN * its_error)
    if by_size and not sure:
        columns = np.stack([bad.astype(np.float64), np.ones(len(bad))], axis=1)
        coefficients, errors = least_squares(columns, log_sizes(evidence), evidence)
        sure = bool(coefficients[0] > clear * errors[0] * (1 + 4 / rows) and ratio > least)
    if not sure and not np.isfinite(error) and evidence.distance.any():
        return undecided(gap_of(words, ratio, error))
    shown = max(least, float(np.exp(min(clear * error, 50.0))))
    larger = f"{words} with more than {times(float(f'{shown:.2g}'))} the gap of the others would show"
    return Result(
        sure,
        gap_of(words, ratio, error),
        larger if shown < LARGEST else "",
        share,
        evidence.kept(~bad),
        {} if parameters is None else parameters,
        bad=bad,
    )


PATTERN = (5, 0.003)
"""A pattern that vanishes without so many tokens, this share of all or the outlying ones, is one of heavy tails."""
OUTLYING = 3
"""At most so many tokens are outlying: single bad tokens do not make a pattern, however few tokens there are. A convention."""


@once
def largest(evidence: Evidence) -> Integers:
    """The tokens with the largest log-ratios that may be outlying, the largest first."""
    order = np.argsort(-np.abs(evidence.log_ratio), kind="stable")
    return order[:OUTLYING]


@once
def _without_largest(evidence: Evidence) -> tuple[Evidence, Booleans]:
    """(the evidence without the few tokens that alone must make no pattern, the tokens that are kept). Copies are one token."""
    few = min(PATTERN[0], max(int(len(evidence) * PATTERN[1]), OUTLYING))
    own = evidence.units * (int(evidence.position.max(initial=0)) + 1) + evidence.position
    in_order = own[np.argsort(-np.abs(evidence.log_ratio), kind="stable")]
    distinct, first = np.unique(in_order, return_index=True)
    kept = ~np.isin(own, distinct[np.argsort(first)[:few]])
    return evidence.kept(kept), kept


@once
def far_off(evidence: Evidence) -> Booleans:
    """True for a token whose log-ratio is FAR times the median of those that are not 0, shape (tokens,)."""
    size = np.abs(evidence.log_ratio)
    return np.asarray(size > FAR * np.median(size[size > 0]) if size.any() else np.zeros(len(size)), np.bool_)


@once
def log_sizes(evidence: Evidence) -> Floats:
    """Log of |x| relative to the median of the token's stratum, bounded on both sides: a robust size for finding clusters."""
    stratum = strata(evidence)
    size = np.abs(evidence.log_ratio)
    medians = np.array(
        [np.median(size[stratum == k]) if (stratum == k).any() else 1.0 for k in range(stratum.max() + 1)]
    )
    with np.errstate(all="ignore"):
        relative = np.log(size / np.maximum(medians[stratum], 1e-300) + 0.05)
    return np.asarray(np.clip(relative, -3.0, 4.0))


def behind(evidence: Evidence, bad: Booleans) -> Booleans:
    """True for each bad token and for every token behind one in its sequence, shape (tokens,)."""
    counts = np.cumsum(bad)
    return np.asarray(counts > (counts - bad)[evidence.starts][evidence.row_codes])


def codes(labels: Integers) -> tuple[Integers, Integers]:
    """(distinct labels ascending, index of each token's label among them)."""
    distinct, index = np.unique(labels, return_inverse=True)
    return distinct, np.asarray(index, np.int64)


def mean_by(index: Integers, values: Floats, size: int) -> tuple[Floats, Integers]:
    """(mean of the values, number of values) of each index below size; 0 for none."""
    counts = np.bincount(index, minlength=size)
    return np.bincount(index, values, minlength=size) / np.maximum(counts, 1), counts
