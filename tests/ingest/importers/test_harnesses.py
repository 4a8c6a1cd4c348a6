"""Files of harnesses and of martingale. Those of martingale and Inspect were written by their own code, the others by schema."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.imported import DUMPS, imported, rejected

from ratioscope.ingest.importers.turns import Turn, sequences

FIRST = {"prompt_token_ids": [1, 2], "completion_token_ids": [5, 6], "logprobs": [-0.5, -0.25]}
GOES_ON = {"prompt_token_ids": [1, 2, 5, 6, 9, 9, 9], "completion_token_ids": [7], "logprobs": [-1.0]}
ANEW = {"prompt_token_ids": [1, 2, 50, 9], "completion_token_ids": [8, 8], "logprobs": [-2.0, -3.0]}


def _lists(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}


def test_a_call_that_begins_with_all_before_goes_on_and_another_begins_anew() -> None:
    first, second = map(_lists, sequences(Turn(*each.values()) for each in (FIRST, GOES_ON, ANEW)))
    assert first["prompt_ids"] == [1, 2] and first["token_ids"] == [5, 6, 9, 9, 9, 7] and first["place"] == 0
    assert first["mask"] == [True, True, False, False, False, True] and first["turns"] == [0, 0, 1, 1, 1, 1]
    assert np.array_equal(first["logprobs"], [-0.5, -0.25, np.nan, np.nan, np.nan, -1.0], equal_nan=True)
    assert second["prompt_ids"] == [1, 2, 50, 9] and second["token_ids"] == [8, 8] and second["place"] == 2


def test_calls_without_a_prompt_or_without_ids_are_sequences_of_their_own() -> None:
    calls = [Turn(None, [5], [-1.0]), Turn(None, [6], [-2.0]), Turn(None, None, [-3.0, -4.0]), Turn([5], [7], [-5.0])]
    found = list(map(_lists, sequences(calls)))
    assert [each["logprobs"] for each in found] == [[-1.0], [-2.0], [-3.0, -4.0], [-5.0]]
    assert [each.get("token_ids") for each in found] == [[5], [6], None, [7]]
    with pytest.raises(ValueError, match="call 0 has 2 sampled tokens and 1 log-probs"):
        list(sequences([Turn([1], [5, 6], [-1.0])]))


def _gym(calls: list[dict[str, Any]], rollout: int) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for call in calls:
        ids, sampled, logprobs = call.values()
        tokens = {"prompt_token_ids": ids, "generation_token_ids": sampled, "generation_log_probs": logprobs}
        items += [{"type": "message", "role": "assistant", **tokens}, {"type": "function_call_output", "output": "4"}]
    return {"_ng_task_index": 3, "_ng_rollout_index": rollout, "reward": 0.5, "response": {"id": "r", "output": items}}


def test_rollouts_of_nemo_gym_become_a_row_for_each_sequence(tmp_path: Path) -> None:
    lines = [_gym([FIRST, GOES_ON], 0), _gym([ANEW], 1), _gym([FIRST | {"logprobs": [-1.0]}], 2), _gym([], 3)]
    (tmp_path / "rollouts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    code, rows = imported(tmp_path / "rollouts.jsonl", tmp_path / "run")
    assert code == 1 and [row["sequence_id"] for row in rows] == ["0-3-0-0", "1-3-1-0"]
    assert rows[0]["token_ids"] == [5, 6, 9, 9, 9, 7] and rows[0]["mask"] == [True, True, False, False, False, True]
    assert rows[0]["prompt_ids"] == [1, 2] and rows[0]["reward"] == 0.5 and rows[0]["group_id"] == "3"
    assert rows[1]["rollout_logprobs"] == [-2.0, -3.0] and rows[1]["old_logprobs"] is None
    reasons = [each["reason"] for each in rejected(tmp_path / "run")]
    assert "2 sampled tokens and 1 log-probs" in reasons[0] and "no sample" in reasons[1]


def _trajectory(calls: list[dict[str, Any]]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": "go"}]
    steps += [
        {"step_id": 2, "source": "agent", "message": "", "metrics": {"prompt_tokens": 2, **call}} for call in calls
    ]
    agent = {"name": "terminus-2", "version": "1", "model_name": "m"}
    return {"schema_version": "ATIF-v1.4", "session_id": "s-1", "agent": agent, "steps": steps}


def test_a_trajectory_of_harbor_is_found_and_the_result_of_its_trial_only_if_named(tmp_path: Path) -> None:
    trial = tmp_path / "jobs" / "fix-it__abc"
    (trial / "agent").mkdir(parents=True)
    (trial / "agent" / "trajectory.json").write_text(json.dumps(_trajectory([FIRST, GOES_ON, ANEW])))
    detail = {name: [call[name] for call in (FIRST, GOES_ON)] for name in FIRST}
    result = {"trial_name": "fix-it__abc", "task_name": "fix-it", "agent_result": {"rollout_details": [detail]}}
    (trial / "result.json").write_text(json.dumps(result | {"verifier_result": {"rewards": {"reward": 1.0}}}))
    _, rows = imported(tmp_path / "jobs", tmp_path / "run")
    assert [row["sequence_id"] for row in rows] == ["s-1-0", "s-1-2"] and rows[0]["token_ids"] == [5, 6, 9, 9, 9, 7]
    code, named = imported(trial / "result.json", tmp_path / "named", "--from", "harbor-result")
    assert code == 0 and named[0]["token_ids"] == rows[0]["token_ids"] and named[0]["reward"] == 1.0
    assert named[0]["sequence_id"] == "fix-it__abc-0-0" and named[0]["group_id"] == "fix-it"


def test_a_log_of_inspect_has_log_probs_by_text(tmp_path: Path) -> None:
    code, rows = imported(DUMPS / "inspect", tmp_path / "run")
    assert code == 0 and [row["sequence_id"] for row in rows] == ["arithmetic-a-1-0", "arithmetic-b-1-0"]
    assert [row["rollout_logprobs"] for row in rows] == [[-0.25, -1.5], [-0.5, -0.125, -2.0]]
    assert json.loads(rows[1]["extra"])["texts"] == ["no", " idea", "."] and rows[0]["token_ids"] is None
    assert rows[1]["token_texts"] == ["no", " idea", "."]
    assert rows[0]["finish_reason"] == "stop" and json.loads(rows[0]["extra"])["scores"]["includes"]["value"] == "C"


def test_a_member_that_is_damaged_or_too_large_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    whole = bytearray((DUMPS / "inspect" / "arithmetic.eval").read_bytes())
    with zipfile.ZipFile(DUMPS / "inspect" / "arithmetic.eval") as archive:
        size = archive.getinfo("samples/a_epoch_1.json").file_size
    while (at := whole.find(size.to_bytes(4, "little"))) >= 0:
        whole[at : at + 4] = (size - 40).to_bytes(4, "little")
    (tmp_path / "damaged.eval").write_bytes(whole)
    with zipfile.ZipFile(tmp_path / "large.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        choice = {"logprobs": {"content": [{"token": "a", "logprob": -1.0}]}, "stop_reason": "stop"}
        archive.writestr("samples/b.json", json.dumps({"id": 1, "epoch": 1, "output": {"choices": [choice]}}))
        archive.writestr("samples/a.json", b" " * (1 << 26))
        archive.writestr("samples/c.json", b"[1]")
    for name, wanted in (("damaged", ["it is damaged"]), ("large", ["decodes to 67108864 bytes", "no object"])):
        code, rows = imported(tmp_path / f"{name}.eval", tmp_path / name, "--most-memory", "0.5")
        reasons = [each["reason"] for each in rejected(tmp_path / name)]
        assert code == 1 and len(rows) == 1 and len(reasons) == len(wanted)
        assert all(part in reason for part, reason in zip(wanted, reasons, strict=True)), reasons


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.eval").write_bytes(b"PK\x03\x04 but no archive")
    code, rows = imported(tmp_path / "x.eval", tmp_path / "run")
    assert code != 0 and not rows


def test_a_record_of_martingale_has_a_row_for_each_revision_that_scored(tmp_path: Path) -> None:
    """Written by martingale 0.2.0: three sequences, the first scored by two revisions, the last by none and sampled by two."""
    code, rows = imported(DUMPS / "martingale" / "tokens.db", tmp_path / "run")
    wanted = json.loads((DUMPS / "martingale" / "expected.json").read_text())
    assert code == 0 and len(rows) == len(wanted) == 4
    found = {(row["step"], len(row["token_ids"])): row for row in rows}
    for each in wanted:
        row = found[each["step"], len(each["ids"])]
        assert (
            row["token_ids"] == each["ids"] and row["prompt_ids"] == each["prompt"] and row["reward"] == each["reward"]
        )
        assert np.array_equal(np.float32(row["rollout_logprobs"]), np.float32(each["rollout"]))
        assert (row["rollout_version_min"], row["rollout_version_max"]) == (
            min(each["versions"]),
            max(each["versions"]),
        )
        if each["current"] is None:
            assert row["current_logprobs"] is None and row["trainer_version"] is None
        else:
            assert np.array_equal(np.float32(row["current_logprobs"]), np.float32(each["current"]))
            assert row["trainer_version"] == each["step"]


def _event(call: dict[str, Any], rollout: str, is_trimmed: bool) -> dict[str, Any]:
    prompt, ids, logprobs = call.values()
    trimmed = {
        "prompt_token_ids": prompt,
        "response_token_ids": ids,
        "response_log_probs": logprobs,
        "server": {"version": 7},
    }
    choice = {"token_ids": ids, "logprobs": {"content": [{"logprob": x} for x in logprobs or []]}}
    whole = {
        "model": "m",
        "model_version": 7,
        "response": {"prompt_token_ids": prompt, "choices": [choice]},
        "status": "ok",
    }
    data = trimmed if is_trimmed else whole
    return {"event_type": "model_request", "rollout_id": rollout, "attempt_id": "a", "timestamp": 1.0, "data": data}


@pytest.mark.parametrize("is_trimmed", [True, False])
def test_events_of_agent_lightning_become_a_row_for_each_sequence(tmp_path: Path, is_trimmed: bool) -> None:
    """By the schema of Agent-Lightning 1.0.2, whole and with format=triplet."""
    reward = {"event_type": "reward", "rollout_id": "r", "attempt_id": "a", "timestamp": 2.0, "data": {"value": 0.5}}
    events = [_event(call, "r", is_trimmed) for call in (FIRST, GOES_ON, ANEW, FIRST | {"logprobs": None})]
    (tmp_path / "events.json").write_text(json.dumps([*events, reward, {"event_type": "note", "data": {}}]))
    code, rows = imported(tmp_path / "events.json", tmp_path / "run", "--step", "3")
    assert code == 1 and [row["sequence_id"] for row in rows] == ["r-a-0-0", "r-a-0-2"]
    assert rows[0]["token_ids"] == [5, 6, 9, 9, 9, 7] and rows[0]["prompt_ids"] == [1, 2] and rows[0]["step"] == 3
    assert {row["reward"] for row in rows} == {0.5} and {row["rollout_version_min"] for row in rows} == {7}
    reasons = [each["reason"] for each in rejected(tmp_path / "run")]
    assert len(reasons) == 2 and "its call 3 has no log-probs" in reasons[0] and "no sample" in reasons[1]
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events[:2]))
    code, rows = imported(tmp_path / "lines.jsonl", tmp_path / "lines", "--step", "3")
    assert code == 0 and [row["token_ids"] for row in rows] == [[5, 6], [7]]
