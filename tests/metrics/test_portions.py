"""Whatever the engine adds up at once, it gives the same bits."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from support.ragged import sampled_rows, table

from ratioscope.metrics.engines import portion
from ratioscope.metrics.engines.arrow_columns import gap_rows
from ratioscope.metrics.engines.loops import NUMPY_LOOPS
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.record import GAPS

BLOCK = replace(NUMPY_LOOPS, block_tokens=64)
"""Blocks of some sequences."""


def records(*, beyond: bool) -> pa.Table:
    """Rows of three steps; beyond: some weights exceed what plain sums of exponentials can hold."""
    made = []
    for number, row in enumerate(sampled_rows(3, sequences=60, longest=40)):
        length = len(row["mask"])
        far = {"old_logprobs": [-1.0] * length, "rollout_logprobs": [-400.0] * length} if number % 20 == 7 else {}
        made.append({**row, **(far if beyond else {}), "step": number % 3, "turn": [t // 7 for t in range(length)]})
    return table(made)


@pytest.mark.parametrize("beyond", [False, True])
@pytest.mark.parametrize("sequences", [1, 7])
def test_statistics_are_the_same_bits_in_small_portions(
    beyond: bool, sequences: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = records(beyond=beyond)
    labels = {"parity": np.arange(len(rows)) % 2}
    together = statistics(rows, slices=labels, loops=BLOCK)
    monkeypatch.setattr(portion, "_SEQUENCES", sequences)
    assert statistics(rows, slices=labels, loops=BLOCK).equals(together)


def test_gaps_that_share_slices_have_the_bits_of_gaps_alone() -> None:
    rows = records(beyond=False)
    alone = [statistics(rows, gaps=(gap,), loops=BLOCK) for gap in GAPS]
    assert statistics(rows, loops=BLOCK).equals(pa.concat_tables(alone).combine_chunks())


@pytest.mark.parametrize("kind", ["masked", "whole", "some masked", "not a number"])
def test_statistics_are_the_same_bits_for_any_number_of_blocks_at_once(kind: str) -> None:
    made = sampled_rows(4, sequences=90, longest=40)
    for number, row in enumerate(made):
        row["mask"] = row["mask"] if kind == "masked" or (kind == "some masked" and number > 60) else None
    if kind == "not a number":
        made[50]["old_logprobs"][0] = float("nan")
    rows = table(made)
    alone = statistics(rows, loops=BLOCK)
    for most in (2, 7, 1000):
        assert statistics(rows, loops=replace(BLOCK, blocks_at_once=most)).equals(alone)


def test_a_portion_ends_with_the_block_that_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = gap_rows(records(beyond=False), "mismatch")
    monkeypatch.setattr(portion, "_SEQUENCES", 10)
    found = list(portion.portions(rows, 64))
    assert len(found) > 2
    assert [block.first for blocks in found for block in blocks[1:]] == [
        block.last for blocks in found for block in blocks[:-1]
    ]
    assert found[-1][-1].last == len(rows.rows)
    assert all(blocks[-1].last - blocks[0].first >= 10 for blocks in found[:-1])
