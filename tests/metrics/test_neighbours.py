"""Statistics of neighbours are the same from moved columns as from columns of pairs."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ratioscope.arrays import Integers
from ratioscope.metrics.engines.arrow_columns import gap_rows
from ratioscope.metrics.engines.block_tokens import Tokens, block_tokens, blocks
from ratioscope.metrics.engines.level_statistics import statistics_by_level
from ratioscope.metrics.engines.loops import NUMPY_LOOPS
from ratioscope.metrics.engines.portion import neighbour_sums
from ratioscope.metrics.engines.program import neighbour_programs
from ratioscope.metrics.reduction import first_of_each


def tokens(lengths: list[int], mask: list[bool] | None = None) -> tuple[Tokens, Integers]:
    """The tokens of sequences of these lengths in one block, and the first token of each that has one."""
    random, count = np.random.default_rng(0), sum(lengths)
    drawn = -random.exponential(size=(count, 2))  # a token more changes none of the others
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
    names = ("rollout_logprobs", "old_logprobs")
    lists: dict[str, Any] = {
        name: pa.ListArray.from_arrays(offsets, pa.array(drawn[:, place], pa.float32()))
        for place, name in enumerate(names)
    }
    if mask is not None:
        lists["mask"] = pa.ListArray.from_arrays(offsets, pa.array(mask))
    rows = gap_rows(pa.table(lists), "mismatch")
    (block,) = blocks(rows, 1 << 15)
    found = block_tokens(rows, block, ())
    np.testing.assert_array_equal(found.begins, first_of_each(found.sequence))
    return found, found.begins


@pytest.mark.parametrize(
    "lengths", [[1], [2], [3], [7, 5], [1, 9, 2, 1, 30], [4, 0, 0, 6, 0], [1, 2], [300, 1, 2, 3, 4, 5, 900], [0, 1, 1]]
)
def test_moved_columns_give_the_sums_of_pairs(lengths: list[int]) -> None:
    count = len(statistics_by_level("mismatch").whole)
    moved, begins = tokens(lengths)
    # a masked token behind all others, for which there are no columns to move
    paired, same = tokens([*lengths, 1], [True] * sum(lengths) + [False])
    assert not moved.has_pairs
    assert paired.has_pairs
    found, wanted = (neighbour_sums(*each, count, NUMPY_LOOPS) for each in ((moved, begins), (paired, same)))
    np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=0)  # sums of one sign in another order


def test_tokens_that_a_mask_parts_are_no_neighbours() -> None:
    assert tokens([5], [True, True, False, True, True])[0].has_pairs


def test_each_statistic_of_neighbours_has_one_program() -> None:
    for gap in ("mismatch", "total", "rollout:referee"):
        places = [place for _, of_distance in neighbour_programs(gap).values() for place in of_distance]
        assert sorted(places) == list(range(len(statistics_by_level(gap).whole)))
    assert not neighbour_programs("drift")
