"""Batches that hold less than the trainer did: the numbers that need what is absent are left out, not guessed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from .evaluation import DialectBatch

Needs = Mapping[str, Sequence[str]]
"""Array -> patterns of the metric names that cannot be told without it, as in file names: `probs_ratio*`."""


def completed(batch: DialectBatch, needs: Needs) -> tuple[DialectBatch, tuple[str, ...]]:
    """The batch with NaN in place of the arrays of `needs` that it lacks, and the names of those arrays."""
    absent = tuple(name for name in needs if getattr(batch, name) is None)
    for name in absent:
        batch = replace(batch, **{name: np.full(batch.shape, np.nan, np.float32)})  # type: ignore[arg-type]
    return batch, absent


def told(metrics: Mapping[str, float], absent: Sequence[str], needs: Needs) -> dict[str, float]:
    """The metrics that do not need the absent arrays."""
    patterns = [pattern for name in absent for pattern in needs[name]]
    return {
        name: value for name, value in metrics.items() if not any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def notes(absent: Sequence[str]) -> tuple[str, ...]:
    """What to say about the absent arrays."""
    return tuple(f"the batch has no {name}: what the trainer tells with it is left out" for name in absent)
