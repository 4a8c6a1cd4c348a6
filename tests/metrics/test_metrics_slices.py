"""Slices group tokens or sequences; whatever the slice, its cells add up to all."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from support.ragged import Row, sampled_rows, stats, table

from ratioscope.metrics.engines.arrow_columns import gap_rows
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.engines.slices import POSITION_EDGES, position_slice
from ratioscope.metrics.frame import metric_frame
from ratioscope.metrics.merging import merge


def rows() -> Sequence[Row]:
    made = []
    for i, row in enumerate(sampled_rows(7, sequences=40, longest=40)):
        length = len(row["mask"])
        facts = {
            "replica": "ab"[i % 2],
            "trainer_version": 9,
            "rollout_version_min": 9 - i % 3,
            "rollout_version_max": 9,
        }
        made.append({**row, **facts, "turn": [t // 7 for t in range(length)], "group_id": str(i // 4)})
    return made


@pytest.mark.parametrize("name", ["replica", "lag", "position", "turn", "probability"])
def test_the_cells_of_a_slice_add_up_to_all(name: str) -> None:
    frame = stats(table(rows())).filter(gap="mismatch")
    cells, whole = merge(frame.filter(slice=name), ()), merge(frame.filter(slice="all"), ())
    for statistic in (
        "tokens",
        "sum_k3",
        "sum_abs_log_ratio",
        "sum_surprisal_gap",
        "log_sum_square_weight",
        "max_log_ratio",
    ):
        assert cells[statistic][0] == pytest.approx(whole[statistic][0], rel=1e-12), statistic


def test_a_slice_by_token_has_no_sequence_metrics_and_a_slice_by_sequence_has() -> None:
    frame = stats(table(rows()))
    by_position, by_replica = metric_frame(frame, ("position",)), metric_frame(frame, ("replica",))
    assert by_position["mismatch/ess_sequence"].null_count() == len(by_position)
    assert by_position["mismatch/kl_k3"].null_count() == 0
    assert by_replica["mismatch/ess_sequence"].null_count() == 0


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 9, 1000])
def test_the_bucket_of_a_position_is_found_for_each_token(length: int) -> None:
    lists = [[-1.0] * size for size in (length, 1, 2 * length)]
    gap = gap_rows(table([{"rollout_logprobs": each, "old_logprobs": each} for each in lists]), "mismatch")
    buckets = [max(b for b, edge in enumerate(POSITION_EDGES) if edge <= t) for each in lists for t in range(len(each))]
    assert position_slice(gap).codes.tolist() == buckets


def test_position_buckets_are_powers_of_two_counted_from_the_response() -> None:
    frame = metric_frame(stats(table([{"rollout_logprobs": [-1.0] * 9, "old_logprobs": [-1.0] * 9}])), ("position",))
    assert dict(zip(frame["position"], frame["mismatch/tokens"], strict=True)) == {
        "0": 1,
        "1": 1,
        "2": 2,
        "4": 4,
        "8": 1,
    }


def test_probability_buckets_are_of_the_earlier_policy_and_closed_below() -> None:
    records = table([{"rollout_logprobs": list(np.log([0.05, 0.3, 0.95, 0.9999])), "old_logprobs": [-1.0] * 4}])
    frame = metric_frame(stats(records), ("probability",))
    assert frame["probability"].to_list() == ["0.01", "0.25", "0.9", "0.999"]


def test_lag_is_per_token_where_versions_are() -> None:
    row = {
        "rollout_logprobs": [-1.0] * 3,
        "old_logprobs": [-1.0] * 3,
        "trainer_version": 5,
        "rollout_versions": [3, 4, 4],
    }
    frame = stats(table([row])).filter(slice="lag")
    assert dict(zip(frame["key"], frame["tokens"], strict=True)) == {"2": 1, "1": 2}
    assert frame["sequences"].null_count() == len(frame)


def test_lag_goes_by_the_oldest_version_of_a_sequence() -> None:
    frame = metric_frame(stats(table(rows())), ("lag",))
    assert frame["lag"].to_list() == ["0", "1", "2"]
    assert frame["mismatch/sequences"].null_count() == 0


def test_any_labels_slice_by_sequence_or_by_token() -> None:
    records = table(rows())
    parity = pa.array([[t % 2 for t in range(len(row["mask"]))] for row in rows()])
    extra = {"group": records["group_id"], "parity": parity}
    frame = pl.DataFrame(statistics(records, slices=extra, written=False))
    assert set(frame["slice"]) == {"group", "parity"}
    groups = metric_frame(frame.filter(gap="mismatch"), ("group",))
    assert (
        len(groups) == 10
        and groups["mismatch/sequences"].sum() == metric_frame(stats(records), ())["mismatch/sequences"][0]
    )
    assert sorted(set(frame.filter(slice="parity")["key"])) == ["0", "1"]


def test_a_null_label_is_in_no_cell() -> None:
    records = table(rows()[:4])
    frame = pl.DataFrame(statistics(records, slices={"sign": ["+", None, "-", "+"]}, written=False))
    assert frame.filter(gap="mismatch")["key"].to_list() == ["+", "-"]


def test_two_slices_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="one slice at a time"):
        metric_frame(stats(table(rows())), ("lag", "replica"))


def test_steps_and_attempts_are_groups_in_whatever_order_rows_come() -> None:
    made = [{**row, "step": 3 - i % 4, "attempt": i % 2} for i, row in enumerate(rows())]
    frame = stats(table(made)).filter(gap="mismatch", slice="all")
    assert len(frame) == 4
    alone = stats(table([row for row in made if row["step"] == 2])).filter(gap="mismatch", slice="all")
    assert frame.filter(step=2)["sum_k3"][0] == pytest.approx(alone["sum_k3"][0], rel=1e-12)
    assert frame.filter(step=2)["token_counts"][0].to_list() == alone["token_counts"][0].to_list()


@pytest.mark.parametrize("by", [(), ("step",), ("step", "replica")])
def test_a_metric_of_one_gap_alone_can_be_asked_for(by: tuple[str, ...]) -> None:
    frame = stats(table(rows()))
    every, one = metric_frame(frame, by), metric_frame(frame, by, names=("ppo_kl",))
    assert one["drift/ppo_kl"].equals(every["drift/ppo_kl"])
    assert not any(name.startswith(("mismatch/", "total/")) for name in one.columns)
