"""Batches that lack some of the trainer's arrays. Metrics that need an absent array are left out, not guessed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from ratioscope.arrays import Array
from ratioscope.errors import SchemaError

from .evaluation import DialectBatch

Needs = Mapping[str, Sequence[str]]
"""Array name -> the names of the metrics that need it, as patterns like those of file names: `probs_ratio*`."""


def completed(batch: DialectBatch, needs: Needs) -> tuple[DialectBatch, tuple[str, ...]]:
    """(the batch with arrays of NaN for those in `needs` that it lacks, the names of these arrays)."""
    absent = tuple(name for name in needs if getattr(batch, name) is None)
    for name in absent:
        batch = replace(batch, **{name: np.full(batch.shape, np.nan, np.float32)})  # type: ignore[arg-type]
    return batch, absent


def metrics_without(metrics: Mapping[str, float], absent: Sequence[str], needs: Needs) -> dict[str, float]:
    """The metrics that need none of the absent arrays."""
    patterns = [pattern for name in absent for pattern in needs[name]]
    return {
        name: value for name, value in metrics.items() if not any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def notes(absent: Sequence[str]) -> tuple[str, ...]:
    """A note for each absent array."""
    return tuple(
        f"the batch has no {name}: the metrics that the trainer computes with it are left out" for name in absent
    )


def needed(tokens: object, name: str, reader: str) -> Array:
    """The attribute of that name. SchemaError if it is None; the message names `reader`, the setting that reads it."""
    value = getattr(tokens, name)
    if value is None:
        column = name if name == "advantages" else f"{name}_logprobs"
        raise SchemaError(f"the batch has no '{column}', which {reader} reads: log {column}, or choose another setting")
    return np.asarray(value)
