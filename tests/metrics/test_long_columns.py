"""Columns of more tokens than one Arrow list array can have."""

import numpy as np
import pyarrow as pa

from ratioscope.metrics.engines.arrow_columns import flat_values, list_lengths, taken

CHUNK = 1 << 26
CHUNKS = (1 << 31) // CHUNK + 1


def test_values_of_lists_are_flat_beyond_the_offsets_of_one_array() -> None:
    part = pa.ListArray.from_arrays(pa.array([0, CHUNK // 2, CHUNK], pa.int32()), pa.nulls(CHUNK, pa.null()))
    column = pa.chunked_array([part] * CHUNKS)  # one chunk in memory, again and again
    rows = np.arange(len(column))
    flat = flat_values(taken(column, rows), list_lengths(column), None)
    assert len(flat) == CHUNK * CHUNKS > 1 << 31
