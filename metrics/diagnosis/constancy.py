"""Constancy: what a setting explains keeps its size over the steps. A fit that moves is the shadow of weights that drift apart.

A setting may begin at a later step, and what it explains may follow the mix of tokens, but it does not grow with the updates.
"""

import numpy as np

from ratioscope.arrays import Floats

from .cause import Cause, Result
from .evidence import Evidence, row_sums
from .factors import times
from .history import History, course
from .share import undone_by_leaving
from .subset_faults import FEW_TOKENS

TOLERANCE = 0.15
"""Part of itself by which a fitted setting may differ between steps beyond its errors: the fit is of a model. A convention."""
MOVED = 3.0
"""Standard deviations of chi-squared from which on a setting moves."""
GROWN = 10.0
"""The part that a cause without a parameter explains may grow by this factor with the mix of tokens. A convention."""
LEAST_STEPS = 3
"""The least number of steps that tell whether a setting moves."""


def moved(cause: Cause, evidence: Evidence, result: Result) -> str:
    """The way in which the fit of a constant cause moves over the steps, in words; empty if it is constant or cannot be told."""
    if cause.course != "constant" or not result.holds or not evidence.has("step"):
        return ""
    return _by_setting(cause, evidence) if cause.setting is not None else _by_size(evidence, result)


def _by_setting(cause: Cause, evidence: Evidence) -> str:
    assert cause.setting is not None
    steps, index = evidence.step_codes
    parts = [evidence.kept(index == at) for at in range(len(steps))]
    found = np.array([cause.setting(part) if len(part) >= FEW_TOKENS else (0.0, np.inf) for part in parts])
    known = np.isfinite(found).all(axis=1) & (found[:, 1] > 0)
    values, errors, at = found[known, 0], found[known, 1], steps[known]
    if len(values) < LEAST_STEPS:
        return ""
    left = min(_left(values, errors, onset) for onset in range(len(values) - 1))
    if left <= len(values) + MOVED * np.sqrt(2 * len(values)):
        return ""
    first, last = (f"{values[end]:+.2f} ± {errors[end]:.1g} at step {at[end]}" for end in (0, -1))
    return f"it moves over the steps, which a setting does not: {first} and {last}"


def _left(values: Floats, errors: Floats, onset: int) -> float:
    """Chi-squared that is left by no fault before an index and one setting from it on."""
    before, own, error = values[:onset] / errors[:onset], values[onset:], errors[onset:]
    setting = float(np.median(own))
    return float((before**2).sum() + ((own - setting) ** 2 / (error**2 + (TOLERANCE * setting) ** 2)).sum())


def _by_size(evidence: Evidence, result: Result) -> str:
    """The same of the gap that an undoing takes away, which has a course of its own."""
    if result.undone is not None and len(result.undone) == len(evidence):
        after = result.undone.distance
    elif result.bad is not None:
        after = undone_by_leaving(evidence, result.bad)
    else:
        return ""
    steps, index = evidence.step_codes
    of_row, size = index[evidence.starts], len(steps)
    tokens = np.bincount(of_row, row_sums(evidence, np.ones(len(evidence))), minlength=size).astype(np.float64)
    removed = np.bincount(of_row, row_sums(evidence, evidence.distance - after), minlength=size) / tokens
    left = row_sums(evidence, evidence.distance - after - removed[index])
    error = np.sqrt(np.bincount(of_row, left**2, minlength=size)) / tokens
    level = np.maximum(removed, np.maximum(error, 1e-12))
    own = course(History(steps, level, np.minimum(error / level, 1.0), tokens))
    if own.kind != "rise" or own.factor < GROWN:
        return ""
    return f"what it explains grows {times(own.factor)} from step {own.onset} on, which a setting does not"
