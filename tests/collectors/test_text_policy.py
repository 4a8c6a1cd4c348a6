"""What `text="ids"` and `"none"` keep of a prompt that stands where no text is expected: nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ratioscope import Collector, open_run
from ratioscope.collectors.batch.text_policy import Text, without_texts
from ratioscope.collectors.process.failures import ENOUGH
from ratioscope.collectors.watching.recording import Recording

PROMPT = "What is the patient's name?"
ROWS: list[dict[str, Any]] = [
    {
        "sequence_id": "7-0-1", "group_id": PROMPT, "finish_reason": "length", "replica": "10.0.0.1:8000",
        "extra": json.dumps({"score": 0.5, "is_right": True, "n": None, "answer": PROMPT, PROMPT: 3,
                             "all": [1, PROMPT, {"a": PROMPT}]}),
    },
    {"sequence_id": PROMPT, "group_id": "g1", "finish_reason": PROMPT, "replica": None, "extra": PROMPT},
    {"sequence_id": "7-0-2", "group_id": PROMPT, "finish_reason": None, "replica": PROMPT, "extra": json.dumps(PROMPT)},
    {"sequence_id": "s" * 500, "group_id": None, "finish_reason": "stop", "replica": None, "extra": "[" * 100_000},
]  # fmt: skip


def rows() -> pa.RecordBatch:
    names = list(ROWS[0])
    return pa.RecordBatch.from_arrays([pa.array([row[name] for row in ROWS], pa.string()) for name in names], names)


def test_a_prompt_leaves_no_trace_and_numbers_and_names_stay() -> None:
    found = without_texts(rows())
    assert found.schema == rows().schema
    table = found.to_pylist()
    assert "patient" not in json.dumps(table)
    first, second, third, last = table
    assert (first["sequence_id"], first["finish_reason"], first["replica"]) == ("7-0-1", "length", "10.0.0.1:8000")
    extra = json.loads(first["extra"])
    assert (extra["score"], extra["is_right"], extra["n"], extra["answer"]) == (0.5, True, None, None)
    assert extra["all"] == [1, None, {"a": None}]
    assert (second["group_id"], second["finish_reason"], second["extra"]) == ("g1", None, None)
    assert json.loads(third["extra"]) is None and last["extra"] is None and last["finish_reason"] == "stop"
    assert len(last["sequence_id"]) < 30


def test_equal_prompts_stay_one_group() -> None:
    groups = [row["group_id"] for row in without_texts(rows()).to_pylist()]
    assert groups[0] == groups[2] != groups[1]


@pytest.mark.parametrize("text", ["ids", "none"])
def test_no_file_of_a_run_without_texts_holds_a_prompt(text: Text, tmp_path: Path) -> None:
    class Quoting:
        def __float__(self) -> float:
            raise ValueError(f"cannot read {PROMPT}")

    sides: Any = {"rollout_logprobs": [[-1.0], [-2.0]], "old_logprobs": [[-1.0], [-2.0]]}
    with Collector(tmp_path / "run", text=text) as collector:
        collector.log(
            step=0, **sides, group_ids=[PROMPT] * 2, sequence_ids=["a", PROMPT], finish_reasons=["stop", PROMPT], replica=PROMPT,
            extra=[{"answer": PROMPT, "score": 0.5}, {PROMPT: 1}], prompt_texts=[PROMPT] * 2, token_texts=[[PROMPT], [PROMPT]],
            token_ids=[[1], [2]], prompt_ids=[[987654], [987654, 3]],
        )  # fmt: skip
        collector.log(step=1, rollout_logprobs=[Quoting()], old_logprobs=[[-1.0]])
        collector.sync(1, replica=PROMPT, digests={PROMPT: "0" * 16})
    run = open_run(tmp_path / "run")
    rows = run.records().collect()
    assert len(rows) == 2 and rows["group_id"].n_unique() == 1 and rows["sequence_id"].n_unique() == 2
    assert json.loads(rows["extra"][0])["score"] == 0.5 or json.loads(rows["extra"][1])["score"] == 0.5
    assert "patient" not in str(rows.to_dicts())
    assert ("987654" in str(rows.to_dicts())) == (text == "ids")
    assert run.drops["reason"].to_list() == ["malformed: ValueError"]
    assert not any("patient" in path.read_text() for path in (tmp_path / "run").rglob("*.json*"))


def test_what_adapters_say_of_failures_quotes_no_prompt(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "run", {"text": "none"}, "toy")

    def look() -> None:
        raise ValueError(PROMPT)

    recording.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
    for _ in range(ENOUGH):
        recording.watch(look)
    assert recording.close()
    (note,) = open_run(tmp_path / "run").events.filter(event="adapter_failed")["note"]
    assert "first with ValueError" in note and "patient" not in note


def test_of_an_object_in_extra_nothing_is_kept_that_its_str_might_hold(tmp_path: Path) -> None:
    class Private:
        def __str__(self) -> str:
            return PROMPT

    with Collector(tmp_path / "run") as collector:
        extra = [{"of": Private(), "score": np.float32(0.5)}]
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]], extra=extra)
    (kept,) = open_run(tmp_path / "run").records().collect()["extra"]
    assert "patient" not in kept and "Private>" in kept and json.loads(kept)["score"] == 0.5
