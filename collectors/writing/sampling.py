"""Which sequences of a step are kept when not all of them may be: whole ones, by a hash of their id, and the worst.

The hash is the same in every process, so that all minibatches and ranks keep the same sequences, and a smaller share keeps a part
of what a larger one keeps. A sequence is kept with a known probability, which is stored with it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from ratioscope.metrics.engines.arrow_columns import gap_rows
from ratioscope.record import GAPS

_SPAN = float(1 << 64)


def chosen(rows: pa.Table, share: float, *, worst: int, seed: int) -> pa.Table:
    """The rows that are kept, with `inclusion_probability`: 1 of the worst, `share` of the others; all rows if it is 1.

    worst: how many sequences are kept because a gap is largest there, by the mean and by the largest absolute log-ratio.
    """
    if share >= 1 or not len(rows):
        return rows
    ids: list[Any] = rows["sequence_id"].to_pylist()
    certain = np.isin(np.array(ids, object).astype(str), list(_worst(rows, ids, worst)))
    lucky = np.array([_fraction(seed, name) for name in ids]) < share
    kept = certain | lucky
    place = rows.schema.get_field_index("inclusion_probability")
    probability = pa.array(np.where(certain, 1.0, share)[kept])
    return rows.filter(pa.array(kept)).set_column(place, rows.schema.field(place), probability)


def _fraction(seed: int, name: str) -> float:
    """In [0, 1), the same for the same sequence wherever it is asked."""
    digest = blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big") / _SPAN


def _worst(rows: pa.Table, ids: list[str], most: int) -> set[str]:
    """Names of the worst sequences: of each gap and measure the first, then the second, until there are enough."""
    rankings = [[ids[row] for row in ranking] for gap in GAPS for ranking in _rankings(rows, gap, most)]
    found: dict[str, None] = {}
    for place in range(max(map(len, rankings), default=0)):
        found |= dict.fromkeys(ranking[place] for ranking in rankings if place < len(ranking))
    return set(list(found)[:most])


def _rankings(rows: pa.Table, gap: str, most: int) -> list[NDArray[np.int64]]:
    """Rows with the gap, those with the largest mean, and the largest single, absolute log-ratio first."""
    found = gap_rows(rows, gap)
    filled = np.flatnonzero(found.lengths)
    if not len(filled):
        return []
    with np.errstate(all="ignore"):
        size = np.abs(found.later.astype(np.float64) - found.earlier)
    size = np.where(found.mask & np.isfinite(size), size, 0.0)
    starts = found.starts[filled]
    mean = np.add.reduceat(size, starts) / found.lengths[filled]
    largest = np.maximum.reduceat(size, starts)
    return [found.rows[filled[np.argsort(-measure, kind="stable")[:most]]] for measure in (mean, largest)]
