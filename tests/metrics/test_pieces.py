"""Numpy keeps Python's lock in some calls: the engine gives none of them all tokens of a step at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratioscope.metrics import pieces, reduction
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.reduction import numbered

RANDOM = np.random.default_rng(0)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 7)), max_size=12),
    st.lists(st.tuples(st.integers(0, 4), st.floats(-9, 9)), max_size=30),
    st.integers(1, 9),
)
def test_pieces_have_the_bits_of_the_whole(
    runs: list[tuple[int, int]], elements: list[tuple[int, float]], piece: int
) -> None:
    values, counts = (np.array([run[k] for run in runs], np.int64) for k in (0, 1))
    cells = np.array([one[0] for one in elements], np.int64)
    weights = np.array([one[1] for one in elements], np.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE", piece)
        assert pieces.repeated(values, counts).tolist() == np.repeat(values, counts).tolist()
        for each in (None, weights):
            assert pieces.totals(cells, each, 5).tobytes() == np.bincount(cells, each, 5).tobytes()


@pytest.mark.parametrize("combine", ["sum", "max", "logsumexp"])
def test_a_large_matrix_is_reduced_row_by_row_to_the_bits_of_the_whole(
    combine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix, codes = RANDOM.normal(size=(3, 4000)) * 100, np.sort(RANDOM.integers(0, 50, 4000))
    whole = reduction.reduced(matrix, codes, [combine] * 3)
    monkeypatch.setattr(reduction, "PIECE", 0)
    assert reduction.reduced(matrix, codes, [combine] * 3).matrix.tobytes() == whole.matrix.tobytes()


@pytest.mark.parametrize("lengths", [[300_000, 5], [10] * 30_000], ids=["long", "short"])
@pytest.mark.parametrize("extra", [(), ("mask", "rollout_versions"), ("entropy",)], ids=str)
def test_no_call_that_keeps_the_lock_makes_more_than_a_piece(
    lengths: list[int], extra: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def noted(function: Callable[..., Any], size: Callable[..., int]) -> Callable[..., Any]:
        def of(*args: Any, **options: Any) -> Any:
            result = function(*args, **options)
            made.append(size(result, args))
            return result

        return of

    monkeypatch.setattr(np, "repeat", noted(np.repeat, lambda result, args: result.size))
    monkeypatch.setattr(np, "bincount", noted(np.bincount, lambda result, args: len(args[0])))
    assert len(statistics(table(lengths, extra)))
    assert 0 < max(made) <= pieces.PIECE


def table(lengths: list[int], extra: tuple[str, ...]) -> pa.Table:
    """Rows of one step. old_logprobs lacks a token in the last row."""
    rows, tokens = len(lengths), sum(lengths)
    cut: Any = np.append(0, np.cumsum(lengths)).astype(np.int32)
    values: dict[str, Any] = {
        "rollout_logprobs": -RANDOM.random(tokens),
        "mask": RANDOM.random(tokens) < 0.9,
        "rollout_versions": RANDOM.integers(3, 5, tokens),
        "entropy": RANDOM.random(tokens),
    }
    chosen = ("rollout_logprobs", *extra)
    lists = {name: pa.ListArray.from_arrays(cut, pa.array(values[name])) for name in chosen}
    shorter: Any = np.append(cut[:-1], cut[-1] - 1)
    lists["old_logprobs"] = pa.ListArray.from_arrays(shorter, pa.array(values["rollout_logprobs"][:-1] - 0.01))
    return pa.table(
        {
            "attempt": pa.array(np.zeros(rows, np.int32)),
            "step": pa.array(np.zeros(rows, np.int64)),
            "sequence_id": pa.array(list(map(str, range(rows)))),
            "trainer_version": pa.array(np.full(rows, 5)),
            **lists,
        }
    )


@given(st.lists(st.integers(0, 50), max_size=40), st.sampled_from((1, 1000)))
def test_codes_are_numbered_as_by_a_sort(codes: list[int], apart: int) -> None:
    given_codes = np.array(codes, np.int64) * apart
    for found, wanted in zip(numbered(given_codes), np.unique(given_codes, return_inverse=True), strict=True):
        np.testing.assert_array_equal(found, wanted)
