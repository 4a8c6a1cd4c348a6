"""Chooses the sequences of a step that are kept if a budget has no room for all: by a hash of their id, and the worst.

Sequences are kept whole. The hash is the same in every process, so that all minibatches and ranks keep the same sequences, and a
smaller share keeps a subset of what a larger share keeps. Each is kept with a known probability, which is stored in its row.
"""

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ratioscope.arrays import Integers
from ratioscope.metrics.engines.arrow_columns import gap_rows
from ratioscope.record import GAPS

from ..batch.breaths import breathing, listed

_SPAN = float(1 << 64)


def chosen(rows: pa.Table, share: float, *, worst: int, seed: int) -> pa.Table:
    """The rows that are kept, with `inclusion_probability`: 1 for the worst, `share` for the others. All rows if `share` is 1.

    worst: how many sequences are kept because their log-ratios are largest, by the mean and by the maximum of the absolute value.
    """
    if share >= 1 or not len(rows):
        return rows
    ids: list[Any] = list(listed(rows["sequence_id"]))
    worst_ids = _worst(rows, ids, worst) if worst else set()
    certain = np.array([name in worst_ids for name in breathing(ids)])
    lucky = np.array([_fraction(seed, name) for name in breathing(ids)]) < share
    selected = certain | lucky
    place = rows.schema.get_field_index("inclusion_probability")
    probability = pa.array(np.where(certain, 1.0, share)[selected])
    return rows.filter(pa.array(selected)).set_column(place, rows.schema.field(place), probability)


def _fraction(seed: int, name: str) -> float:
    """A number in [0, 1) for the sequence, the same in every process."""
    digest = blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "big") / _SPAN


def _worst(rows: pa.Table, ids: list[str], most: int) -> set[str]:
    """Ids of the worst sequences: the first of each gap and measure, then the second of each, until there are enough."""
    rankings = [[ids[row] for row in ranking] for gap in GAPS for ranking in _rankings(rows, gap, most)]
    found: dict[str, None] = {}
    for place in range(max(map(len, rankings), default=0)):
        found |= dict.fromkeys(ranking[place] for ranking in rankings if place < len(ranking))
    return set(list(found)[:most])


def _rankings(rows: pa.Table, gap: str, most: int) -> list[Integers]:
    """Two rankings of the rows that have the gap: by the largest mean, and by the largest single absolute log-ratio."""
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
