"""Statistics merge: any split, any order, any number of parts gives the same."""

import math

import numpy as np
import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from support.ragged import BROKEN, ORDINARY, Row, rows_of, sampled_rows, stats, table
from support.sizes import examples

from ratioscope.metrics.definitions.registry import STATISTICS
from ratioscope.metrics.distribution import LEVELS, histogram_columns
from ratioscope.metrics.frame import metric_frame
from ratioscope.metrics.merging import KEYS, merge

LAWS = examples(20)
BY = ("gap", "slice", "key")


def assert_same(ours: pl.DataFrame, theirs: pl.DataFrame) -> None:
    """The same keys, and the same statistics to rounding (sums taken in another order)."""
    assert ours.select(BY).equals(theirs.select(BY))
    for statistic in STATISTICS:
        a, b = ours[statistic.name].to_numpy(), theirs[statistic.name].to_numpy()
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=statistic.name)
    for level in LEVELS:
        buckets, counts, *sums = histogram_columns(level)
        assert ours[buckets].to_list() == theirs[buckets].to_list()
        assert ours[counts].to_list() == theirs[counts].to_list()
        for name in sums:
            a, b = (frame[name].explode().to_numpy() for frame in (ours, theirs))
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    for tail in ("token_tail", "sequence_tail"):
        assert ours[tail].to_list() == theirs[tail].to_list()


def parts_of(records: pa.Table, cuts: list[int]) -> list[pa.Table]:
    edges = [0, *sorted(cuts), len(records)]
    return [records.slice(a, b - a) for a, b in zip(edges, edges[1:], strict=False) if b > a]


@LAWS
@given(rows=rows_of(ORDINARY | BROKEN, current=True), data=st.data())
def test_any_split_in_any_order_gives_the_same_statistics(rows: list[Row], data: st.DataObject) -> None:
    records = table([{**row, "step": i % 2, "replica": "ab"[i % 2]} for i, row in enumerate(rows)])
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=4))
    parts = data.draw(st.permutations(parts_of(records, cuts)))
    whole = merge(stats(records), BY)
    if parts:
        assert_same(merge(pl.concat([stats(part) for part in parts]), BY), whole)
        assert_same(merge(pl.concat([merge(stats(part), KEYS) for part in parts]), BY), whole)


def test_many_small_parts_merge_to_what_one_pass_reads() -> None:
    rows = [{**row, "step": i // 50} for i, row in enumerate(sampled_rows(5, sequences=150, longest=30))]
    records = table(rows)
    single = pl.concat([stats(records.slice(i, 1)) for i in range(len(records))])
    assert_same(merge(single.sample(fraction=1.0, shuffle=True, seed=1), BY), merge(stats(records), BY))
    ours, theirs = metric_frame(single), metric_frame(stats(records))
    for name in ours.columns:
        np.testing.assert_allclose(ours[name].to_numpy(), theirs[name].to_numpy(), rtol=1e-6, atol=1e-9, err_msg=name)


def test_an_empty_part_changes_nothing() -> None:
    records = table(sampled_rows(2, sequences=20, longest=9))
    empty = table(
        [
            {"rollout_logprobs": [], "old_logprobs": []},
            {"rollout_logprobs": [-1.0], "old_logprobs": [-1.0], "mask": [False]},
        ]
    )
    ours = metric_frame(pl.concat([stats(records), stats(empty), stats(records.slice(0, 0))]), by=())
    theirs = metric_frame(stats(records), by=())
    for name in theirs.columns:
        if not name.endswith("empty_sequences"):
            np.testing.assert_allclose(ours[name].to_numpy(), theirs[name].to_numpy(), rtol=1e-12, err_msg=name)
    assert ours["mismatch/empty_sequences"][0] == theirs["mismatch/empty_sequences"][0] + 2


def test_a_statistic_nobody_kept_stays_absent() -> None:
    merged = merge(stats(table(sampled_rows(2, sequences=4, longest=9))), BY)
    by_token = merged.filter(slice="position", gap="mismatch")
    assert by_token["sequences"].null_count() == len(by_token)
    assert merged.filter(slice="all", gap="drift")["token_tail"].null_count() == 1


def test_counts_beyond_32_bits_do_not_wrap() -> None:
    part = stats(table(sampled_rows(2, sequences=4, longest=9))).with_columns(pl.lit(3e9).alias("tokens"))
    assert (merge(pl.concat([part] * 4), ("gap", "slice"))["tokens"] >= 1.2e10).all()


def test_merging_by_nothing_gives_one_row() -> None:
    merged = merge(stats(table(sampled_rows(2, sequences=4, longest=9))).filter(gap="mismatch", slice="all"), ())
    assert len(merged) == 1
    assert not math.isnan(merged["sum_k3"][0])
