"""Slices: columns to group by. A slice gives each sequence, or each token, a code; the key of a code is a short string.

A slice by token has token metrics only: it cuts sequences. The cells of such a slice are never merged into whole sequences. The
key of a bucket of numbers is its lower end, so that keys sort as numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ratioscope.arrays import Codes

from ..pieces import places, repeated
from .arrow_columns import ArrowColumn, GapRows, encoded, flat_values, is_recorded, pc, taken, whole
from .loops import NUMPY_LOOPS, Loops

Labels = ArrowColumn | npt.NDArray[np.generic] | Sequence[object]
"""One label per row of the table, or an Arrow list of labels per row (one per token). Null: not in the slice."""

POSITION_EDGES = np.array([0, *(2**k for k in range(31))], np.int64)


def _least_single(probability: float) -> np.float32:
    """The smallest float32 from the logarithm of a probability on, so that float32 are compared as float64 would be."""
    logarithm = np.log(probability)
    single = np.float32(logarithm)
    return single if single >= logarithm else np.nextafter(single, np.float32(np.inf))


PROBABILITY_EDGES = (0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999)
_LOG_PROBABILITY_EDGES = np.array([_least_single(edge) for edge in PROBABILITY_EDGES[1:]])

CONTIGUOUS = ("position", "turn", "lag")
"""Slices by token in which tokens of one code lie next to each other, so that a sequence has few groups of them."""
WRITTEN = ("all", "replica", "lag", "position", "probability", "turn")


@dataclass(frozen=True)
class SliceCodes:
    """A slice of the rows of one gap."""

    name: str
    keys: tuple[str, ...]
    """The key of each code."""
    codes: Codes
    """A code per row of the GapRows, or per token; -1 is in no cell."""
    by_token: bool
    """True if there is a code per token, False for one per sequence."""
    codes_of_earlier: bool = False
    """True if the codes are of the log-probs of the gap's earlier policy."""


def written_slices(records: pa.Table, gap: GapRows, loops: Loops = NUMPY_LOOPS) -> list[SliceCodes]:
    """The slices of every statistics file whose columns are on record."""
    slices = [SliceCodes("all", ("",), np.zeros(len(gap.rows), np.int64), False)]
    if is_recorded(records, "replica"):
        slices.append(labelled("replica", records["replica"], gap))
    slices += lag_slice(records, gap)
    slices += [position_slice(gap), probability_slice(gap, loops)]
    if is_recorded(records, "turn"):
        slices.append(labelled("turn", records["turn"], gap))
    return slices


def labelled(name: str, labels: Labels, gap: GapRows) -> SliceCodes:
    """A slice from labels of the caller. The labels are aligned with the table from which the gap was read."""
    given: Any = labels
    column: ArrowColumn = given if isinstance(given, pa.Array | pa.ChunkedArray) else pa.array(given)
    column = taken(column, gap.rows)
    by_token = pa.types.is_list(column.type)
    keys, codes = encoded(flat_values(column, gap.lengths, None) if by_token else column)
    return SliceCodes(name, keys, codes, by_token)


def lag_slice(records: pa.Table, gap: GapRows) -> list[SliceCodes]:
    """Staleness: trainer version minus rollout version; by token only if some sequence was sampled by several versions.

    A sequence of several versions that has no versions per token counts by its oldest version.
    """
    if not is_recorded(records, "trainer_version"):
        return []
    trainer = whole(taken(records["trainer_version"], gap.rows))
    if is_recorded(records, "rollout_versions"):
        versions = flat_values(taken(records["rollout_versions"], gap.rows), gap.lengths, None)
        row = repeated(np.arange(len(gap.rows)), gap.lengths)
        lag = pc.subtract(trainer.take(pa.array(row)), versions)
        first = pa.array(gap.starts, mask=gap.lengths == 0)
        alone = lag.take(first)
        mixed = pc.any(pc.not_equal(lag, alone.take(pa.array(row)))).as_py() or lag.null_count
        return [_lags(lag, by_token=True) if mixed else _lags(alone, by_token=False)]
    if is_recorded(records, "rollout_version_min"):
        lag = pc.subtract(trainer, whole(taken(records["rollout_version_min"], gap.rows)))
        return [_lags(lag, by_token=False)]
    return []


def position_slice(gap: GapRows) -> SliceCodes:
    """Position in the response, prompt excluded: [0, 1), [1, 2), [2, 4), [4, 8), ..."""
    depth = np.searchsorted(POSITION_EDGES, gap.lengths, side="left")  # number of buckets that a sequence reaches
    code = places(depth)
    ends = np.append(POSITION_EDGES[1:], np.iinfo(np.int64).max)
    size = np.minimum(repeated(gap.lengths, depth), ends[code]) - POSITION_EDGES[code]
    codes = repeated(code.astype(np.int8), size)
    return SliceCodes("position", tuple(str(edge) for edge in POSITION_EDGES), codes, True)


def probability_slice(gap: GapRows, loops: Loops = NUMPY_LOOPS) -> SliceCodes:
    """Probability of the token under the earlier policy. Buckets include their lower end."""
    codes = loops.edge_counts(gap.earlier, _LOG_PROBABILITY_EDGES)
    return SliceCodes("probability", tuple(f"{edge:g}" for edge in PROBABILITY_EDGES), codes, True, True)


def slices_of(
    records: pa.Table, gap: GapRows, extra: Mapping[str, Labels], loops: Loops, *, written: bool
) -> list[SliceCodes]:
    """The written slices if `written`, and one slice for each of `extra`."""
    own = written_slices(records, gap, loops) if written else []
    return own + [labelled(name, labels, gap) for name, labels in extra.items()]


def slices_again(
    gap: GapRows, made: Sequence[tuple[GapRows, list[SliceCodes]]], loops: Loops
) -> list[SliceCodes] | None:
    """The slices of a gap of the same rows, as they are for this one; None if there is none in `made`.

    No slice reads a policy but that of probability, which reads the earlier one.
    """
    for other, slices in made:
        if np.array_equal(other.rows, gap.rows) and np.array_equal(other.lengths, gap.lengths):
            is_same = other.earlier is gap.earlier
            return [
                probability_slice(gap, loops) if piece.codes_of_earlier and not is_same else piece for piece in slices
            ]
    return None


def _lags(values: ArrowColumn, *, by_token: bool) -> SliceCodes:
    keys, codes = encoded(values)
    return SliceCodes("lag", keys, codes, by_token)
