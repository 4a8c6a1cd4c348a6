"""Values that their column cannot hold: the rows at fault lose that column, log-probs are recorded, and it is counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.written_run import CollectingSink

from ratioscope import Collector, open_run
from ratioscope.errors import SchemaError
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.record import MOST_POSITIONS

SIDES: dict[str, Any] = {
    "rollout_logprobs": [[-1.0, -2.0], [-0.5], [-3.0, -1.0]],
    "old_logprobs": [[-1.1, -2.0], [-0.4], [-2.9, -1.0]],
}
HUGE = 1 << 40
PADDED = np.array([[1, 2], [HUGE, 0], [5, 6]])
FORMS: dict[str, Any] = {
    "lists": [[1, 2], [HUGE], [5, 6]],
    "an object beside lists": [[1, 2], [object()], [5, 6]],
    "arrays": [np.array([1, 2]), np.array([HUGE]), np.array([5, 6])],
    "tensors": [torch.tensor([1, 2]), torch.tensor([HUGE]), torch.tensor([5, 6])],
    "padded": PADDED,
    "padded tensor": torch.from_numpy(PADDED),
}


def recorded(**arguments: Any) -> tuple[list[dict[str, Any]], Collector]:
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink) as collector:
        collector.log(step=1, **{**SIDES, **arguments})
    return sink.written, collector


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_row_with_an_id_out_of_range_loses_its_ids_alone(form: str, caplog: pytest.LogCaptureFixture) -> None:
    rows, collector = recorded(token_ids=FORMS[form])
    assert [row["token_ids"] for row in rows] == [[1, 2], None, [5, 6]]
    assert [row["old_logprobs"] for row in rows] == [np.float32(side).tolist() for side in SIDES["old_logprobs"]]
    assert not collector.counts.sequences.dropped and collector.counts.failures == {"columns": 1}
    assert (
        sum("token_ids" in record.message and "No sequence was lost" in record.message for record in caplog.records)
        == 1
    )
    with (
        pytest.raises(SchemaError, match="token_ids"),
        Collector("unused", sink=CollectingSink, strict=True) as collector,
    ):
        collector.log(step=1, **SIDES, token_ids=FORMS[form])


def test_packed_values_are_told_apart_by_their_lengths() -> None:
    sides = {name: np.concatenate(rows) for name, rows in SIDES.items()}
    rows, collector = recorded(**sides, lengths=[2, 1, 2], token_ids=np.array([1, 2, HUGE, 5, 6]))
    assert [row["token_ids"] for row in rows] == [[1, 2], None, [5, 6]]
    assert collector.counts.failures == {"columns": 1}


NUMBERS: dict[str, tuple[Any, str, list[Any]]] = {
    "prompt_tokens": ([7, HUGE, 9], "prompt_tokens", [7, None, 9]),
    "cached_tokens": (np.array([1.5, 2.0, np.nan]), "cached_tokens", [None, 2, None]),
    "rewards": ([1.0, "good", None], "reward", [1.0, None, None]),
    "pack_index": ([0, 1 << 70, 2], "pack_index", [0, None, 2]),
    "generation_step": (1 << 70, "generation_step", [None] * 3),
    "rollout_versions": ([3, 1 << 70, 4], "rollout_version_min", [3, None, 4]),
    "trainer_version": ("newest", "trainer_version", [None] * 3),
    "advantages": ([0.5, "large", -0.5], "advantages", [[0.5], [None], [-0.5]]),
    "prompt_ids": ([[1], [HUGE], [2, 3]], "prompt_ids", [[1], None, [2, 3]]),
}


@pytest.mark.parametrize("argument", NUMBERS, ids=str)
def test_a_number_that_no_column_holds_is_null_and_its_sequence_is_recorded(argument: str) -> None:
    value, column, wanted = NUMBERS[argument]
    rows, collector = recorded(**{argument: value})
    assert [row[column] for row in rows] == wanted
    assert not collector.counts.sequences.dropped and collector.counts.failures == {"columns": 1}


def test_padded_prompts_lose_the_row_at_fault() -> None:
    ids, mask = np.array([[1, 2], [HUGE, 0], [3, 0]]), np.array([[1, 1], [1, 0], [1, 0]])
    rows, _ = recorded(prompt_ids=ids, prompt_mask=mask)
    assert [row["prompt_ids"] for row in rows] == [[1, 2], None, [3]]


@pytest.mark.parametrize("argument", ["old_logprobs", "mask", "positions"])
def test_what_decides_the_measure_still_drops_its_rows(argument: str) -> None:
    rows, collector = recorded(**{argument: [["a", "b"], ["c"], ["d", "e"]]})
    assert not rows and collector.counts.sequences.dropped == 3


@pytest.mark.parametrize("place", [-1, MOST_POSITIONS, 2**31 - 1])
def test_a_place_that_no_response_has_drops_its_row_alone(tmp_path: Path, place: int) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **SIDES, positions=[[0, 1], [place], [4, 5]])
    assert collector.counts.sequences.dropped == 1 and collector.counts.failures == {}
    run = open_run(tmp_path / "run")
    assert run.metrics()["mismatch/tokens"].to_list() == [4] and verify(tmp_path / "run", deep=True).sound


@pytest.mark.parametrize("place", [-2, 2**31 - 1])
def test_a_file_with_places_that_no_response_has_is_set_aside(tmp_path: Path, place: int) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **SIDES, positions=[[0, 1], [0], [4, 5]])
    file = next((tmp_path / "run").rglob("tokens/**/*.parquet"))
    table = pq.read_table(file)
    at = table.schema.get_field_index("positions")
    moved = pa.array([[0, 1], [place], [4, 5]], table.schema.field(at).type)
    pq.write_table(table.set_column(at, table.schema.field(at), moved), file)
    for log in (tmp_path / "run").rglob("*.jsonl"):
        log.unlink()  # a run whose commits are lost is read by its files
    run = open_run(tmp_path / "run")
    assert not len(run.rows(1)) and f"{place}" in str(run.quarantined[0])
