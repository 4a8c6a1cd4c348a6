"""Requests beside logged responses: the prompt is kept as text or ids, and each choice has its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.imported import imported

from ratioscope.conversation import conversation_text

IDS, LOGPS = [4, 5, 6], [-0.5, -0.25, -1.5]
ASKED = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image_url", "image_url": {}}]},
]
WRITTEN = "system: be brief\nuser: hi\nassistant: hello\nuser: Look: [image_url]"


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def chat(choices: int = 1, **more: Any) -> dict[str, Any]:
    content = [{"token": chr(97 + i), "logprob": x, "bytes": [97 + i]} for i, x in zip(IDS, LOGPS, strict=True)]
    listed = [
        {"index": k, "finish_reason": "stop", "token_ids": IDS, "logprobs": {"content": content}}
        for k in range(choices)
    ]
    return {"id": "c", "object": "chat.completion", "model": "m", "choices": listed, **more}


def completion(*order: int) -> dict[str, Any]:
    """Choices with these numbers, in this order; the usage counts all of them together."""
    listed = [
        {
            "index": k,
            "text": "x",
            "finish_reason": "stop",
            "logprobs": {"tokens": list("abc"), "token_logprobs": [x - k for x in LOGPS]},
        }
        for k in order
    ]
    usage = {"prompt_tokens": 40, "completion_tokens": 3 * len(order)}
    return {"id": "t", "object": "text_completion", "choices": listed, "usage": usage}


def generated(name: str = "g") -> dict[str, Any]:
    pairs = [[x, i, None] for i, x in zip(IDS, LOGPS, strict=True)]
    return {"text": "x", "meta_info": {"id": name, "prompt_tokens": 2, "output_token_logprobs": pairs}}


@pytest.mark.parametrize(
    "line",
    [
        {"request": {"messages": ASKED, "temperature": 0.7}, "response": chat()},
        {"request": {"method": "POST", "body": {"messages": ASKED, "temperature": 0.7}}, "response": {"body": chat()}},
        {"body": {"messages": ASKED, "temperature": 0.7}, "response": {"status_code": 200, "body": chat()}},
    ],
)
def test_the_messages_of_a_request_are_the_prompt_and_tell_the_turn(line: dict[str, Any], tmp_path: Path) -> None:
    code, (row,) = imported(write(tmp_path / "log.jsonl", line), tmp_path / "run")
    assert code == 0 and row["prompt_text"] == WRITTEN and row["turn"] == [1, 1, 1]
    assert json.loads(row["extra"])["temperature"] == 0.7


def test_messages_beside_the_response_count_and_a_message_that_is_continued_is_no_turn(tmp_path: Path) -> None:
    begun = {"messages": ASKED[:3], "continue_final_message": True}
    lines = {"messages": ASKED[:2], "response": chat()}, {"request": begun, "response": chat(id="d")}
    code, rows = imported(write(tmp_path / "log.jsonl", *lines), tmp_path / "run")
    assert code == 0 and [row["turn"][0] for row in rows] == [0, 0]
    assert rows[0]["prompt_text"] == "system: be brief\nuser: hi"


def test_calls_of_tools_and_messages_without_content_are_lines() -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    said = [{"role": "assistant", "content": None, "tool_calls": [call, 7]}, {"role": "tool", "content": "2"}, "odd"]
    assert conversation_text(said) == 'assistant: [add({"a": 1})][None(None)]\ntool: 2\nodd'


def test_each_choice_of_several_prompts_has_its_own_and_not_the_count_of_all(tmp_path: Path) -> None:
    line = {"request": {"prompt": ["one", "two"]}, "response": completion(2, 3, 1, 0)}
    code, rows = imported(write(tmp_path / "log.jsonl", line), tmp_path / "run")
    by_first = {row["rollout_logprobs"][0]: row for row in rows}
    assert code == 0 and [by_first[-0.5 - k]["prompt_text"] for k in range(4)] == ["one", "one", "two", "two"]
    assert {row["prompt_tokens"] for row in rows} == {None}
    line = {"request": {"prompt": ["one"]}, "response": completion(0)}
    code, rows = imported(write(tmp_path / "one.jsonl", line), tmp_path / "one")
    assert code == 0 and (rows[0]["prompt_text"], rows[0]["prompt_tokens"]) == ("one", 40)


@pytest.mark.parametrize("prompt", [[11, 12], [[11, 12]]])
def test_ids_of_a_prompt_are_ids(prompt: Any, tmp_path: Path) -> None:
    line = {"request": {"prompt": prompt}, "response": completion(0)}
    code, rows = imported(write(tmp_path / "log.jsonl", line), tmp_path / "run")
    assert code == 0 and rows[0]["prompt_ids"] == [11, 12] and rows[0]["prompt_text"] is None


def test_a_request_beside_a_response_of_sglang_is_read_and_one_for_several(tmp_path: Path) -> None:
    asked = {"text": ["why?", "who?"], "sampling_params": {"temperature": 0.6}}
    line = {"step": 3, "request": asked, "response": [generated("g0"), generated("g1")]}
    code, rows = imported(write(tmp_path / "log.jsonl", line), tmp_path / "run")
    assert code == 0 and [row["prompt_text"] for row in rows] == ["why?", "who?"]
    assert {row["step"] for row in rows} == {3} and json.loads(rows[0]["extra"]) == {"temperature": 0.6}


ODD: list[Any] = [5, [], [1, "a"], [None], {"role": "user"}, [[]], [["a"]], [1.5], True, [{"content": "x"}], [True]]


def test_odd_prompts_lose_no_row_and_are_no_text(tmp_path: Path) -> None:
    asked = [{name: each} for name in ("messages", "prompt") for each in ODD]
    lines = [{"request": each, "response": chat(id=str(n))} for n, each in enumerate([*asked, *ODD, "text"])]
    code, rows = imported(write(tmp_path / "log.jsonl", *lines), tmp_path / "run")
    assert code == 0 and len(rows) == len(lines) and {row["prompt_text"] for row in rows} == {None}
