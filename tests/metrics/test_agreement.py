"""Two tables of the same statistics agree whatever machine made them, and a table of anything else does not."""

from collections.abc import Callable
from decimal import Context
from typing import Any

import numpy as np
import polars as pl
import pytest
from support import real_runs, run_folders
from support.kernels import LEVELS, Level, outcome
from support.paths import TESTS
from support.ragged import table

from ratioscope.metrics.distribution import EDGES, THRESHOLDS, bucket_of
from ratioscope.metrics.engines.agreement import disagreement
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.merging import KEYS, merge


def merged(records: Any) -> pl.DataFrame:
    found = pl.DataFrame(statistics(joined(records)))
    return merge(found, KEYS)


@pytest.fixture(scope="module")
def computed() -> pl.DataFrame:
    return merged(run_folders.few(real_runs.records("trl_vllm_stale4"), steps=2, rows=6))


def altered(frame: pl.DataFrame, name: str, change: Callable[[Any], Any]) -> pl.DataFrame:
    """The frame with one value changed, in its first cell that has one."""
    values = frame[name].to_list()
    at = next(row for row, value in enumerate(values) if value not in (None, [], 0.0))
    values[at] = change(values[at])
    return frame.with_columns(pl.Series(name, values, frame.schema[name]))


def first(change: Callable[[float], float]) -> Callable[[list[float]], list[float]]:
    return lambda values: [change(values[0]), *values[1:]]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tokens", lambda tokens: tokens + 1),
        ("sum_k3", lambda total: total * (1 + 1e-7)),
        ("log_sum_weight_sequence", lambda log: log + 1e-7),
        ("token_counts", first(lambda count: count + 1)),
        ("token_counts", lambda counts: [counts[0] + 1, counts[1] - 1, *counts[2:]]),
        ("sequence_buckets", first(lambda bucket: bucket - 1)),
        ("sequence_buckets", first(lambda bucket: 9_999)),
        ("sequence_counts", lambda counts: counts[1:]),
        ("geometric_log_sum_weights", first(lambda log: log + 1e-7)),
        ("token_log_sum_square_weights", first(lambda log: log - 1e-7)),
        ("token_tail", first(lambda largest: largest * 1.00001 + 1e-5)),
        ("sequence_tail", lambda tail: tail[1:]),
    ],
)
def test_what_rounding_does_not_explain_is_named(
    computed: pl.DataFrame, name: str, change: Callable[[Any], Any]
) -> None:
    told = disagreement(altered(computed, name, change), computed)
    assert name.split("_")[0] in told and "its rows give" in told


def test_a_count_above_a_million_that_is_one_off_is_no_rounding(computed: pl.DataFrame) -> None:
    many = computed.with_columns(tokens=pl.lit(5e9))
    assert "tokens" in disagreement(many.with_columns(tokens=pl.lit(5e9 + 1)), many)


def test_infinity_is_near_to_nothing(computed: pl.DataFrame) -> None:
    infinite = altered(computed, "sum_weight", lambda _: float("inf"))
    assert disagreement(infinite, infinite) == ""
    assert disagreement(computed, infinite) and disagreement(infinite, computed)


def test_last_bits_are_rounding(computed: pl.DataFrame) -> None:
    floats = [name for name, kind in computed.schema.items() if kind == pl.Float64]
    other = computed.with_columns(pl.when(pl.col(floats) != pl.col(floats).round()).then(pl.col(floats) * (1 + 4e-16))
                                  .otherwise(pl.col(floats)))  # fmt: skip
    assert not other.equals(computed) and disagreement(other, computed) == ""


@pytest.mark.parametrize(("apart", "agrees"), [([-1.0, 2.25], False), ([-1.0, 2.0], True)])
def test_only_a_sequence_on_the_edge_of_a_bucket_may_lie_on_either_side(apart: list[float], agrees: bool) -> None:
    """-1 + 2 is the edge 1; another order of a sum, or another machine, may leave a hair less of one."""
    frame = merged(table([{"rollout_logprobs": [-3.0, -4.0], "old_logprobs": np.add([-3.0, -4.0], apart).tolist()}]))
    assert bucket_of(1.0) == bucket_of(1.0 - 1e-15) + 1
    assert (disagreement(altered(frame, "sequence_buckets", first(lambda bucket: bucket - 1)), frame) == "") is agrees


def test_the_edges_are_the_floats_next_to_the_logarithms_whatever_computes_them() -> None:
    exact = Context(prec=60)
    assert {float(exact.ln(exact.create_decimal_from_float(float(t)))) for t in THRESHOLDS} <= set(EDGES.tolist())


@pytest.mark.parametrize("level", LEVELS)
def test_the_shipped_statistics_are_those_of_their_rows_by_the_kernels_of_other_processors(level: Level) -> None:
    done = outcome(level, [f"{TESTS / 'project' / 'test_sample_data.py'}", "-k", "its_statistics"])
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout[-2000:]
