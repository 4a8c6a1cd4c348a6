"""The rows of a batch, grouped as the trainer processes them."""

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from ratioscope.arrays import Integers
from ratioscope.errors import SchemaError

from .evaluation import DialectBatch, MicroBatches


def row_groups(micro_batches: MicroBatches | int | None, rows: int, kind: str | None = None) -> list[Integers]:
    """The row numbers of each micro-batch. SchemaError for rows that the batch does not have.

    micro_batches: the row numbers of each micro-batch, or the number of consecutive rows in each. If it is None, a `kind` that
    ends in `_mbN` cuts N rows each; any other kind means one micro-batch of all rows.
    """
    _, named, suffix = (kind or "").rpartition("_mb")
    if micro_batches is None and named and suffix.isdigit():
        micro_batches = int(suffix)
    if micro_batches is None:
        return [np.arange(rows)]
    if isinstance(micro_batches, Sequence):
        groups = [np.asarray(group, dtype=np.int64) for group in micro_batches]
        if any(len(group) == 0 or group.min() < 0 or group.max() >= rows for group in groups):
            raise SchemaError(f"a micro-batch is empty or names a row outside 0..{rows - 1}: {micro_batches!r}")
        return groups
    if micro_batches < 1:
        raise SchemaError(f"a micro-batch of {micro_batches} rows; wanted at least 1")
    return [np.arange(first, min(first + micro_batches, rows)) for first in range(0, rows, micro_batches)]


def selected(batch: DialectBatch, rows: Integers) -> DialectBatch:
    """The batch with these rows only. Arrays of `extra` are cut if they have one entry per row, else kept whole."""
    count = len(batch.mask)
    cut = {
        field.name: value[rows]
        for field in fields(batch)
        if field.name != "extra" and (value := getattr(batch, field.name)) is not None
    }
    extra = {name: value[rows] if value.shape[:1] == (count,) else value for name, value in batch.extra.items()}
    return replace(batch, **cut, extra=extra)
