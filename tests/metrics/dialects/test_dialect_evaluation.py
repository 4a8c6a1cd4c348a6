"""What goes into a dialect: arrays of any layout, or Records, in one shape; and what is refused."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support import real_runs

from ratioscope.errors import SchemaError
from ratioscope.metrics.dialects.batch import batch_arrays
from ratioscope.metrics.dialects.settings import not_allowed


def test_flat_arrays_are_padded_to_rows_and_come_back_flat() -> None:
    flat = np.arange(5, dtype=np.float32)
    batch = batch_arrays(
        {
            "rollout_logprobs": flat,
            "mask": [1, 1, 0, 1, 1],
            "response_lengths": np.array([2, 0, 3]),
            "rewards": np.ones(3),
        }
    )
    assert batch.shape == (3, 3)
    assert batch.mask.tolist() == [[True, True, False], [False] * 3, [False, True, True]]
    assert batch.flat(batch.needed("rollout_logprobs")).tolist() == flat.tolist()
    assert batch.needed("rewards").shape == (3,)


def test_one_advantage_a_row_is_repeated_over_its_tokens() -> None:
    batch = batch_arrays({"old_logprobs": np.zeros((2, 3)), "advantages": [1.0, -1.0]})
    assert batch.needed("advantages").tolist() == [[1.0] * 3, [-1.0] * 3]


def test_half_precision_becomes_float32_and_double_stays() -> None:
    batch = batch_arrays({"old_logprobs": np.zeros((1, 2), np.float16), "rollout_logprobs": np.zeros((1, 2))})
    assert batch.needed("old_logprobs").dtype == np.float32
    assert batch.needed("rollout_logprobs").dtype == np.float64


def test_prepared_arrays_pass_through() -> None:
    batch = batch_arrays({"old_logprobs": np.zeros((2, 3))})
    assert batch_arrays(batch) is batch


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"old_logprobs": np.zeros(3)}, "flat with 'response_lengths'"),
        ({"old_logprobs": np.zeros((2, 3)), "rollout_logprobs": np.zeros((2, 2))}, r"\(2, 3\), wanted \(2, 2\)"),
        ({"old_logprobs": np.zeros((2, 3)), "mask": np.ones((3, 2))}, "'mask' has shape"),
        ({"old_logprobs": np.zeros((1, 2)), "mask": [[0.5, 1.0]]}, "other than 0 and 1"),
        ({"old_logprobs": np.zeros(3), "response_lengths": np.array([1, 1])}, "add up to 2"),
        ({"rollout_log_probs": np.zeros((1, 2))}, r"it has \['rollout_log_probs'\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(batch: dict[str, object], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        batch_arrays(batch)


def test_an_array_that_is_needed_and_absent_is_named() -> None:
    with pytest.raises(SchemaError, match=r"no 'current_logprobs'.*it has \['old_logprobs', 'mask', 'rewards'\]"):
        batch_arrays({"old_logprobs": np.zeros((1, 2)), "rewards": np.zeros(1)}).needed("current_logprobs")


def test_a_refused_setting_is_named_with_its_value_and_what_is_allowed() -> None:
    assert str(not_allowed("mode", "both", ("one", None))) == "mode is 'both'; allowed: one of 'one', None"


def one_step() -> pa.Table:
    records = real_runs.records("trl_vllm_base")
    return records.filter(pc.equal(records["step"], records["step"][0]))


def test_records_of_one_step_become_arrays() -> None:
    records = one_step()
    batch = batch_arrays(records)
    lists: list[Any] = records["old_logprobs"].to_pylist()
    assert batch.lengths.tolist() == [len(row) for row in lists]
    assert batch.flat(batch.needed("old_logprobs")).tolist() == [value for row in lists for value in row]
    assert batch.needed("advantages").shape == batch.shape
    groups = records["group_id"].to_pylist()
    codes = batch.needed("group_ids").tolist()
    assert all((codes[i] == codes[j]) == (a == b) for i, a in enumerate(groups) for j, b in enumerate(groups))


def test_a_null_mask_means_all_tokens() -> None:
    records = pa.table(
        {"old_logprobs": [[-1.0, -2.0], [-3.0]], "mask": pa.array([None, [False]], pa.list_(pa.bool_()))}
    )
    assert batch_arrays(records).mask.tolist() == [[True, True], [False, False]]


def test_records_of_several_steps_are_refused() -> None:
    with pytest.raises(SchemaError, match="one step at a time"):
        batch_arrays(real_runs.records("trl_vllm_base"))


def test_a_policy_on_record_in_some_rows_only_is_refused() -> None:
    records = pa.table({"rollout_logprobs": [[-1.0], [-2.0]], "old_logprobs": [[-1.0], None]})
    with pytest.raises(SchemaError, match="'old_logprobs' .* in 1 of 2 rows"):
        batch_arrays(records)
