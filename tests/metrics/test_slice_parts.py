"""Buckets of a slice: named, ordered, with shares that add up; many of them together measure what merging them does."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edge_runs import made

from ratioscope.ingest.run import open_run
from ratioscope.metrics.analysis.slice_parts import (
    FIXED,
    NUMERIC,
    PARTS,
    bucket_label,
    pooled_value,
    shares,
    slice_parts,
)
from ratioscope.metrics.engines.slices import POSITION_EDGES, PROBABILITY_EDGES, WRITTEN
from ratioscope.metrics.frame import metric_frame

METRICS = ("kl_k3", "kl_direct", "abs_log_ratio", "share_outside_0.5_2", "chi2_token", "ess_token", "max_abs_log_ratio")


@pytest.fixture(scope="module")
def run(runs: Path) -> Path:
    return made(runs, "stale")


@pytest.mark.parametrize("metric", METRICS)
def test_many_buckets_together_measure_what_their_merged_statistics_do(run: Path, metric: str) -> None:
    statistics = open_run(run).statistics("probability")
    frame = metric_frame(statistics, ("probability",))
    parts = slice_parts(frame, "probability", "mismatch", metric, most=4)
    rest = [key for key in frame["probability"] if key not in parts["key"].to_list()]
    assert parts["buckets"].to_list() == [1] * 4 + [len(rest)] and len(rest) == 6

    def merged(rows: pl.DataFrame) -> float:
        one = metric_frame(rows.with_columns(key=pl.lit("x")), ("probability",))
        return float(one[f"mismatch/{metric}"][0])

    assert parts["value"][-1] == pytest.approx(merged(statistics.filter(pl.col("key").is_in(rest))), rel=1e-9)
    assert pooled_value(frame, "mismatch", metric) == pytest.approx(merged(statistics), rel=1e-9)


@pytest.mark.parametrize("gap", ["mismatch", "total", "drift"])
@pytest.mark.parametrize("name", [name for name in WRITTEN if name not in ("all", "replica", "turn")])
def test_shares_add_up_to_all_of_the_gap(run: Path, name: str, gap: str) -> None:
    frame = open_run(run).metrics(name)
    for most in (2, 100):
        parts = slice_parts(frame, name, gap, "abs_log_ratio", most=most)
        assert parts["share_of_gap"].sum() == pytest.approx(1) and parts["share_of_tokens"].sum() == pytest.approx(1)
        assert parts["tokens"].sum() == frame[f"{gap}/tokens"].sum()


def test_numeric_slices_come_in_the_order_of_their_numbers() -> None:
    frame = _frame("lag", {"10": 0.5, "9": 0.1, "-1": 0.9, "0": 0.2})
    assert slice_parts(frame, "lag", "mismatch", "kl_k3")["key"].to_list() == ["-1", "0", "9", "10"]
    assert set(NUMERIC) & set(WRITTEN) == {"position", "probability", "turn", "lag"}


def test_others_come_worst_first_and_equal_ones_by_name() -> None:
    frame = _frame("replica", {"b": 0.1, "a": 0.1, "c": 0.9, "d": None, "e": -0.5})
    signed = frame.with_columns(pl.col("mismatch/kl_k3").alias("mismatch/kl_direct"))  # a K3 is never negative
    assert slice_parts(signed, "replica", "mismatch", "kl_direct")["key"].to_list() == ["c", "e", "a", "b", "d"]
    assert slice_parts(frame, "replica", "mismatch", "ess_token")["key"].to_list() == []
    signs = _frame("reward_sign", dict(zip(reversed(FIXED), (1.0, 2.0, 3.0), strict=True)))
    assert slice_parts(signs, "reward_sign", "mismatch", "kl_k3")["key"].to_list() == list(FIXED)


def test_tokens_come_by_their_part_of_the_gap() -> None:
    frame = _frame("token_id", {"1": 9.0, "2": 0.5}, tokens=[1, 1000])
    assert slice_parts(frame, "token_id", "mismatch", "kl_k3")["key"].to_list() == ["1", "2"]
    assert slice_parts(frame, "token_id", "mismatch", "kl_k3", largest=True)["key"].to_list() == ["2", "1"]


def test_a_slice_or_metric_that_is_not_there_has_no_parts() -> None:
    frame = _frame("replica", {"a": 1.0})
    for name, metric in (("turn", "kl_k3"), ("replica", "no such")):
        assert slice_parts(frame, name, "mismatch", metric).equals(pl.DataFrame(schema=PARTS))
    assert slice_parts(frame.clear(), "replica", "mismatch", "kl_k3").is_empty()
    assert slice_parts(frame, "replica", "drift", "kl_k2").is_empty()


def test_intervals_are_those_the_buckets_are_made_of() -> None:
    keys = [str(edge) for edge in POSITION_EDGES]
    assert [bucket_label("position", key) for key in keys[:4]] == ["[0, 1)", "[1, 2)", "[2, 4)", "[4, 8)"]
    labels = [bucket_label("probability", f"{edge:g}") for edge in PROBABILITY_EDGES]
    assert labels[0] == "[0, 0.001)" and labels[-1] == "[0.999, 1]"
    assert [label.split(", ")[1][:-1] for label in labels[:-1]] == [label[1:].split(",")[0] for label in labels[1:]]
    assert bucket_label("position", "<b>") == "<b>" and bucket_label("probability", "x") == "x"


@given(st.lists(st.floats(0, 1e300) | st.just(math.inf) | st.just(math.nan), max_size=8))
def test_shares_are_of_one_whole(amounts: list[float]) -> None:
    found = shares(np.array(amounts, np.float64))
    known = found[~np.isnan(found)]
    assert ((known >= 0) & (known <= 1)).all() and (not len(known) or known.sum() == pytest.approx(1))
    assert len(known) in (0, sum(not math.isnan(amount) for amount in amounts))


def _frame(name: str, values: dict[str, float | None], tokens: list[int] | None = None) -> pl.DataFrame:
    return pl.DataFrame(
        {
            name: list(values),
            "mismatch/tokens": tokens or [10] * len(values),
            "mismatch/kl_k3": pl.Series(list(values.values()), dtype=pl.Float64),
        }
    )
