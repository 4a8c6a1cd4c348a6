"""Mean length of the sequences that are on record and not measured, from the rows of few steps."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from ratioscope.arrays import Booleans, Integers
from ratioscope.metrics.engines.arrow_columns import gap_rows
from ratioscope.metrics.metric import SAMPLED

from ..rows.token_frame import token_counts
from .step_rows import columns_of

if TYPE_CHECKING:
    from ..run import Run

_LOOKS, _LOOKS_AFAR = 4, 1
"""Steps whose rows are read; of a run on a store, where each is a request."""


def mean_length(run: "Run", by_step: Mapping[int, float], *, masked: bool) -> float | None:
    """Mean tokens of the sequences without a sampled token, or of those with one side alone; None if no row of them has a token.

    by_step: step -> their number. masked: True for the first kind.
    """
    kept = [step for step in by_step if step in run.row_digests()]
    worst = sorted(kept, key=lambda step: -by_step[step])[: _LOOKS_AFAR if run.is_remote else _LOOKS]
    lengths = np.concatenate([np.zeros(0), *(_of_step(run, step, masked) for step in worst)])
    return float(lengths.mean()) if len(lengths) else None


def _of_step(run: "Run", step: int, masked: bool) -> Integers:
    records = columns_of(run, step, ("mask",))
    measured, empty = np.zeros(len(records), np.bool_), np.zeros(len(records), np.bool_)
    for gap in SAMPLED:
        rows = gap_rows(records, gap)
        sampled = np.bincount(np.repeat(np.arange(len(rows.rows)), rows.lengths), rows.mask, len(rows.rows)) > 0
        measured[rows.rows[sampled]], empty[rows.rows[~sampled]] = True, True
    ids = records["sequence_id"]
    known = np.asarray(pc.is_in(ids, value_set=ids.filter(measured | empty).combine_chunks()))
    chosen: Booleans = empty & ~measured if masked else ~known
    lengths: Integers = token_counts(records)[chosen]
    return lengths[lengths > 0]  # the collector cuts a padded row off behind the last true value of its mask
