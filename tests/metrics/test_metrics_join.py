"""Which rows a gap is measured on when a sequence has several: facts in one, current logprobs in others."""

from collections.abc import Sequence

import pytest
from support.ragged import Row, measured, sampled_rows, table

from ratioscope.metrics.engines.join import joined


def split(rows: Sequence[Row]) -> list[Row]:
    """A row of facts per sequence and a row for each of two minibatches."""
    facts = [
        {**{k: v for k, v in row.items() if k not in ("current_logprobs", "entropy")}, "sequence_id": str(i)}
        for i, row in enumerate(rows)
    ]
    updates = [
        {"sequence_id": str(i), "minibatch": k, "current_logprobs": row["current_logprobs"], "entropy": row["entropy"]}
        for k in (0, 1)
        for i, row in enumerate(rows)
    ]
    return [*facts, *updates]


def test_minibatch_rows_get_what_they_lack_from_the_row_of_facts() -> None:
    rows = sampled_rows(1, sequences=5, longest=6)
    whole = joined(table(split(rows)))
    for column in ("rollout_logprobs", "old_logprobs", "mask"):
        values = whole[column].to_pylist()
        assert values[:5] == values[5:10] == values[10:]
    assert whole["current_logprobs"].to_pylist()[:5] == [None] * 5
    assert whole["entropy"].to_pylist()[:5] == [None] * 5


def test_mismatch_counts_a_sequence_once_and_total_every_minibatch() -> None:
    rows = sampled_rows(1, sequences=5, longest=6)
    ours, once = measured(joined(table(split(rows)))), measured(table(rows))
    assert ours["mismatch/tokens"] == once["mismatch/tokens"]
    assert ours["total/tokens"] == 2 * once["total/tokens"]
    assert ours["total/kl_k3"] == pytest.approx(once["total/kl_k3"])
    assert ours["drift/abs_log_ratio"] == pytest.approx(once["drift/abs_log_ratio"])


def test_minibatch_zero_serves_where_there_is_no_row_of_facts() -> None:
    rows = [
        {**row, "sequence_id": str(i), "minibatch": 0} for i, row in enumerate(sampled_rows(1, sequences=5, longest=6))
    ]
    later = [
        {"sequence_id": row["sequence_id"], "minibatch": 1, "current_logprobs": row["current_logprobs"]} for row in rows
    ]
    ours = measured(joined(table([*later, *rows])))
    assert ours["mismatch/sequences"] == measured(table(rows))["mismatch/sequences"]
    assert ours["drift/tokens"] == 2 * ours["mismatch/tokens"]


def test_equal_ids_of_other_steps_or_attempts_are_other_sequences() -> None:
    row = sampled_rows(1, sequences=1, longest=6)[0]
    facts = {"rollout_logprobs": row["rollout_logprobs"], "old_logprobs": row["old_logprobs"], "sequence_id": "a"}
    update = {"current_logprobs": row["current_logprobs"], "sequence_id": "a", "minibatch": 0}
    strangers = [{**update, "step": 1}, {**update, "attempt": 1}]
    whole = joined(table([facts, update, *strangers]))
    assert [value is None for value in whole["rollout_logprobs"].to_pylist()] == [False, False, True, True]


def test_entropy_belongs_to_current_where_the_row_has_it() -> None:
    rows = sampled_rows(1, sequences=30, longest=20)
    of_current = measured(table(rows))
    of_old = measured(table([{k: v for k, v in row.items() if k != "current_logprobs"} for row in rows]))
    assert of_current["mismatch/surprisal_gap"] != of_current["mismatch/surprisal_gap"]  # not available
    assert of_current["total/surprisal_gap"] == of_current["total/surprisal_gap"]
    assert of_old["mismatch/surprisal_gap"] == of_old["mismatch/surprisal_gap"]


def test_rows_without_minibatches_are_left_as_they_are() -> None:
    records = table(sampled_rows(1, sequences=3, longest=6))
    assert joined(records) is records
