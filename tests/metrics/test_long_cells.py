"""A long cell is added up in parts, and gives what it gives as a whole."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratioscope.arrays import Integers
from ratioscope.metrics.engines import portion
from ratioscope.metrics.engines.loops import NUMPY_LOOPS
from ratioscope.metrics.engines.numpy_program import Scattered
from ratioscope.metrics.engines.program import Program, token_program

LONGEST = 16


@given(st.lists(st.integers(1, 70), min_size=1, max_size=8), st.sampled_from((1.0, 900.0)), st.integers(0, 9))
def test_the_parts_of_a_cell_give_its_sums(lengths: list[int], scale: float, seed: int) -> None:
    """scale: with the larger one exponentials overflow."""
    random, tokens = np.random.default_rng(seed), sum(lengths)
    program = token_program("mismatch", whole=False, entropy=False, sound=scale == 1)
    columns = {name: -scale * random.exponential(size=tokens) for name in program.columns}
    starts = np.cumsum(lengths, dtype=np.int64) - np.array(lengths)
    others = [Scattered(random.integers(0, 3, tokens).astype(np.int8), 3 * np.arange(len(starts)), 3 * len(starts))]
    parts: list[Integers] = []

    def noted(program: Program, columns: Any, starts: Integers, scattered: Sequence[Scattered]) -> Any:
        parts.append(np.diff(np.append(starts, tokens)))
        return NUMPY_LOOPS.sums(program, columns, starts, scattered)

    with pytest.MonkeyPatch.context() as patched, np.errstate(all="ignore"):
        patched.setattr(portion, "LONGEST", LONGEST)
        loops = replace(NUMPY_LOOPS, sums=noted)
        found, (scattered,) = portion.sums_of_cells(loops, program, columns, starts, others)
        wanted, (same,) = NUMPY_LOOPS.sums(program, columns, starts, others)
    assert parts[0].max() <= LONGEST
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12 * scale**4)
    short = np.array(lengths) <= LONGEST
    np.testing.assert_array_equal(found[:, short], wanted[:, short])
    np.testing.assert_array_equal(scattered.codes, same.codes)
    np.testing.assert_allclose(scattered.matrix, same.matrix, rtol=1e-12, atol=1e-12 * scale**4)
