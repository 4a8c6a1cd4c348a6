"""Values that their column cannot hold: the rows at fault lose that column, log-probs are recorded, and it is counted."""

import json
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from chaos.aliasing import Told, change, held
from support.written_run import CollectingSink, commit_lines

from ratioscope import Collector, open_run
from ratioscope.collectors.watching.recording import Recording
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


class Mute:
    """An object of the trainer's without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Proxy:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("working outside of a context")

    __str__ = Mute.__str__


class MuteText(str):
    def __str__(self) -> str:
        raise RuntimeError("no words")


HALF: dict[str, tuple[Any, str, list[Any]]] = {
    "finish_reasons": (["stop", Mute(), "length"], "finish_reason", ["stop", None, "length"]),
    "group_ids": ([MuteText("a"), "b", "c"], "group_id", [None, "b", "c"]),
    "finish_reasons, of which one is a proxy": (["stop", None, Proxy()], "finish_reason", ["stop", None, None]),
    "prompt_texts": (np.array(["a", Mute(), None], object), "prompt_text", ["a", None, None]),
    "sequence_ids": (["a", Mute(), "c"], "sequence_id", ["a", "1-0-1", "c"]),
    "replica": (Mute(), "replica", [None] * 3),
    "prompt_ids": ([[1, 2], {3}, iter([4])], "prompt_ids", [[1, 2], None, None]),
    "token_ids": ([[1, 2], (number for number in [3]), deque([5, 6])], "token_ids", [[1, 2], None, [5, 6]]),
    "token_texts": ([["a", "b"], Mute(), ["d", Mute()]], "token_texts", [["a", "b"], None, None]),
    "rewards": ((reward for reward in [1.0, 2.0, 3.0]), "reward", [None] * 3),
    "advantages": ([1.0, 2.0], "advantages", [None] * 3),
    "rollout_versions": ({"min": [1, 2, 3]}, "rollout_version_min", [None] * 3),
    "entropy": ([[1.0, 2.0], [3.0]], "entropy", [None] * 3),
    "turns": (np.ones((3, 2), np.int32)[:2], "turn", [None] * 3),
}


@pytest.mark.parametrize("argument", HALF, ids=str)
def test_what_only_describes_rows_and_cannot_be_read_is_null_and_told(
    argument: str, caplog: pytest.LogCaptureFixture
) -> None:
    value, column, wanted = HALF[argument]
    rows, collector = recorded(**{argument.split(",")[0]: value})
    assert [row[column] for row in rows] == wanted
    assert [row["old_logprobs"] for row in rows] == [np.float32(side).tolist() for side in SIDES["old_logprobs"]]
    assert not collector.counts.sequences.dropped and collector.counts.failures["columns"] >= 1
    assert (
        sum(
            column.split("_")[0] in record.message and "No sequence was lost" in record.message
            for record in caplog.records
        )
        == 1
    )


def test_padded_ids_of_another_width_are_no_ids_of_these_tokens() -> None:
    sides: dict[str, Any] = {"rollout_logprobs": np.full((2, 3), -1.0), "old_logprobs": np.full((2, 3), -1.5)}
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink) as collector:
        collector.log(step=1, **sides, token_ids=np.arange(8).reshape(2, 4))
    assert [row["token_ids"] for row in sink.written] == [None, None] and collector.counts.failures == {"columns": 1}


@pytest.mark.parametrize("value", [iter([[-1.0, -2.0], [-0.5], [-3.0, -1.0]]), {-1.0}], ids=["iterator", "set"])
def test_log_probs_that_can_be_read_once_or_in_no_order_are_refused(value: Any) -> None:
    rows, collector = recorded(old_logprobs=value)
    assert not rows and collector.counts.reasons == {"malformed": 1}


def test_extra_is_recorded_as_it_was_whatever_lies_in_it() -> None:
    itself: list[Any] = [1]
    itself.append(itself)
    shared: Any = [1]
    for _ in range(40):
        shared = [shared, shared]
    given: list[Any] = [
        {"lists": [1, {"a": [2.5, None]}], "told": Told("before"), "number": np.float32(0.5), "mute": Mute()},
        {"itself": itself, "array": np.zeros(2), "set": {1}},
        {"shared": shared},
    ]
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink) as collector, held():
        collector.log(step=1, **SIDES, extra=given)
        change(given[0])
    first, second, third = (json.loads(row["extra"]) for row in sink.written)
    assert first == {
        "lists": [1, {"a": [2.5, None]}],
        "told": {"word": "before"},
        "number": 0.5,
        "mute": f"<{__name__}.Mute>",
    }
    assert (
        second["array"] == "<numpy.ndarray>"
        and second["set"] == [1]
        and second["itself"][:2] == [1, second["itself"][1]]
    )
    assert "..." in json.dumps(third) and not collector.counts.failures


def test_everything_else_that_is_recorded_is_kept_as_it_was(tmp_path: Path) -> None:
    config: dict[str, Any] = {"lr": [1e-6], "tags": {"a": "before"}}
    digests, note, resolution = {"w": "aa"}, Told("before"), {"rollout": 5e-5}
    with Collector(tmp_path / "run", config=config, resolution=resolution, writer="thread") as collector, held():
        collector.log(step=1, **SIDES)
        collector.event("note", 1, note)  # type: ignore[arg-type]
        collector.event("note", 1, Mute())  # type: ignore[arg-type]
        collector.sync(1, digests=digests)
        change([config, digests, note, resolution])
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["config"] == {"lr": [1e-6], "tags": {"a": "before"}} and info["resolution"] == {"rollout": 5e-5}
    (said,) = [line["note"] for line in commit_lines(tmp_path / "run", "event") if line["event"] == "note"]
    assert said == "before" and collector.counts.failures == {"events": 1}
    (names,) = commit_lines(tmp_path / "run", "weight_names")
    assert "w" in str(names["entries"]) and "new" not in str(names["entries"])


def test_a_configuration_that_an_adapter_was_given_is_that_of_this_moment(tmp_path: Path) -> None:
    config = {"lr": [1e-6]}
    recording = Recording(tmp_path / "run", {"config": config}, "trl")
    change(config)
    recording.log(step=1, **SIDES)
    assert recording.close()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"] == {"lr": [1e-6]}
