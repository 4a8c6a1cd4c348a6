"""Streamed responses of vLLM and SGLang: parts are put together whole, wherever they lie, and no part stands for a response."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.imported import imported, rejected

from ratioscope import open_run

IDS, LOGPS = [4, 5, 6], [-0.5, -0.25, -1.5]


def close(found: list[float], wanted: list[float]) -> bool:
    return np.allclose(np.array(found, float), wanted, atol=1e-6)


def events(*parts: Any) -> str:
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts)


DONE = "data: [DONE]\n\n"


def lines(*parts: Any) -> str:
    return "".join(json.dumps(part) + "\n" for part in parts)


def chat_parts(name: str = "c", less: float = 0.0) -> list[dict[str, Any]]:
    """Parts of a chat completion: the role, three tokens with their likeliest, the end."""
    parts: list[dict[str, Any]] = [{"delta": {"role": "assistant"}, "logprobs": None, "finish_reason": None}]
    for i, x in zip(IDS, LOGPS, strict=True):
        top = [{"token": f"token_id:{i}", "logprob": x - less}, {"token": "token_id:9", "logprob": -3.0}]
        content = [{"token": f"token_id:{i}", "logprob": x - less, "bytes": [97], "top_logprobs": top}]
        parts.append({"delta": {"content": "a"}, "logprobs": {"content": content}, "finish_reason": None})
    parts.append({"delta": {}, "logprobs": None, "finish_reason": "stop"})
    return [{"id": name, "object": "chat.completion.chunk", "choices": [{"index": 0, **part}]} for part in parts]


def completion_parts(echo: int = 0) -> list[dict[str, Any]]:
    """Parts of a completion with the likeliest tokens; echo: tokens of the prompt before it."""
    values = [*([None, -1.0, -1.0][:echo]), *LOGPS]
    ids = [*range(11, 11 + echo), *IDS]
    parts = []
    for at, (i, x) in enumerate(zip(ids, values, strict=True)):
        top = None if x is None else {f"token_id:{i}": x, "token_id:9": -3.0}
        logprobs = {"tokens": [f"token_id:{i}"], "token_logprobs": [x], "text_offset": [at], "top_logprobs": [top]}
        parts.append({"index": 0, "text": "a", "logprobs": logprobs, "finish_reason": None})
    usage = {"prompt_tokens": echo or 2, "completion_tokens": len(LOGPS)}
    made = [{"id": "t", "object": "text_completion", "choices": [part]} for part in parts]
    return [*made, {"id": "t", "object": "text_completion", "choices": [], "usage": usage}]


def generated_parts(whole: bool = True) -> list[dict[str, Any]]:
    """Parts of SGLang's /generate, each with all so far, or with its token alone."""
    parts = []
    for k in range(1, 4):
        own = slice(0 if whole else k - 1, k)
        meta = {
            "id": "g", "finish_reason": {"type": "stop"} if k == 3 else None, "prompt_tokens": 2,
            "output_token_logprobs": [[x, i, None] for i, x in zip(IDS, LOGPS, strict=True)][own],
            "output_top_logprobs": [[[x, i, None], [-3.0, 9, None]] for i, x in zip(IDS, LOGPS, strict=True)][own],
        }  # fmt: skip
        parts.append({"text": "a" * k, "meta_info": meta})
    return parts


def likeliest(run: Path) -> list[dict[int, float]]:
    """id -> log-prob at each token of the only sequence."""
    (table,) = (open_run(run).topk(step) for step in open_run(run).topk_steps)
    ids, values = (np.array(table[name].to_pylist()[0]) for name in ("topk_ids", "rollout_topk_logprobs"))
    ends = np.cumsum(np.array(table["topk_counts"].to_pylist()[0]))[:-1]
    pairs = zip(np.split(ids, ends), np.split(values, ends), strict=True)
    return [dict(zip(map(int, own), map(float, found), strict=True)) for own, found in pairs]


@pytest.mark.parametrize(
    "parts",
    [chat_parts(), completion_parts(), completion_parts(echo=2), generated_parts(), generated_parts(whole=False)],
)
def test_likeliest_tokens_of_a_stream_are_those_of_a_whole_response(parts: list[Any], tmp_path: Path) -> None:
    (tmp_path / "log.sse").write_text(events(*parts) + DONE)
    code, (row,) = imported(tmp_path / "log.sse", tmp_path / "run")
    assert code == 0 and close(row["rollout_logprobs"], LOGPS) and row["token_ids"] == IDS
    assert likeliest(tmp_path / "run") == [{i: x, 9: -3.0} for i, x in zip(IDS, LOGPS, strict=True)]


@pytest.mark.parametrize("parts", [chat_parts(), completion_parts()])
def test_parts_that_were_logged_as_lines_are_one_response(parts: list[Any], tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(lines(*parts))
    code, (row,) = imported(tmp_path / "log.jsonl", tmp_path / "run")
    assert code == 0 and close(row["rollout_logprobs"], LOGPS)


@pytest.mark.parametrize("parts", [chat_parts()[1:4], generated_parts()[:2]])
def test_a_part_among_whole_responses_is_no_response(parts: list[Any], tmp_path: Path) -> None:
    whole: dict[str, Any] = generated_parts()[2]
    if "choices" in parts[0]:
        content = [{"token": "a", "logprob": x} for x in LOGPS]
        whole = {"id": "w", "choices": [{"index": 0, "finish_reason": "stop", "logprobs": {"content": content}}]}
    (tmp_path / "log.jsonl").write_text(lines(whole, *parts))
    code, rows = imported(tmp_path / "log.jsonl", tmp_path / "run")
    assert code == 1 and len(rows) == 1 and close(rows[0]["rollout_logprobs"], LOGPS)
    assert ["one part of a streamed response" in each["reason"] for each in rejected(tmp_path / "run")] == [True] * len(
        parts
    )


def test_whole_responses_among_events_are_read_and_other_lines_are_listed(tmp_path: Path) -> None:
    content = [{"token": "a", "logprob": x} for x in LOGPS]
    whole = {"id": "w", "choices": [{"index": 0, "finish_reason": "stop", "logprobs": {"content": content}}]}
    text = f": hello\nevent: message\nretry: 3\n{json.dumps(whole)}\n{events(*chat_parts())}{DONE}What is this\n"
    (tmp_path / "log.sse").write_text(text)
    code, rows = imported(tmp_path / "log.sse", tmp_path / "run")
    assert code == 1 and len(rows) == 2 and all(close(row["rollout_logprobs"], LOGPS) for row in rows)
    assert ["no server-sent event" in each["reason"] for each in rejected(tmp_path / "run")] == [True]


def test_the_end_of_one_stream_does_not_cut_another(tmp_path: Path) -> None:
    one, other = chat_parts("one"), chat_parts("other", less=1.0)
    mixed = [part for pair in zip(one, other, strict=True) for part in pair]
    (tmp_path / "log.sse").write_text(events(*mixed[:-1]) + DONE + events(mixed[-1]) + DONE)
    code, rows = imported(tmp_path / "log.sse", tmp_path / "run")
    assert code == 0 and len(rows) == 2
    assert close(rows[0]["rollout_logprobs"], LOGPS) and close(rows[1]["rollout_logprobs"], [x - 1 for x in LOGPS])


def test_an_error_within_a_stream_is_listed_as_one(tmp_path: Path) -> None:
    (tmp_path / "log.sse").write_text(events(*chat_parts()[:3], {"error": {"message": "gone"}}))
    code, rows = imported(tmp_path / "log.sse", tmp_path / "run")
    assert code == 1 and close(rows[0]["rollout_logprobs"], LOGPS[:2])
    assert [each["reason"] for each in rejected(tmp_path / "run")] == ["the server answered with an error"]


def test_the_ids_of_a_prompt_are_kept_wherever_the_first_part_has_them(tmp_path: Path) -> None:
    for place, inside_choice in enumerate((False, True)):
        parts = chat_parts()
        (parts[0]["choices"][0] if inside_choice else parts[0])["prompt_token_ids"] = [1, 2]
        (tmp_path / f"log{place}.sse").write_text(events(*parts) + DONE)
        code, (row,) = imported(tmp_path / f"log{place}.sse", tmp_path / f"run{place}")
        assert code == 0 and row["prompt_ids"] == [1, 2]


def test_tokens_that_the_usage_counts_beyond_the_log_probs_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reasoning parser of a server may drop the log-probs of what it hides."""
    usage = {"id": "c", "choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 8}}
    (tmp_path / "log.sse").write_text(events(*chat_parts(), usage) + DONE)
    code, (row,) = imported(tmp_path / "log.sse", tmp_path / "run")
    assert code == 0 and close(row["rollout_logprobs"], LOGPS)
    assert "the log has no log-prob of, such as hidden reasoning (5)" in capsys.readouterr().out


def test_the_last_part_of_a_stream_of_sglang_by_itself_counts_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = generated_parts(whole=False)[2]
    last["meta_info"]["completion_tokens"] = 3
    (tmp_path / "log.jsonl").write_text(lines(last))
    assert imported(tmp_path / "log.jsonl", tmp_path / "run")[0] == 0
    assert "the log has no log-prob of, such as hidden reasoning (2)" in capsys.readouterr().out


def test_an_echo_without_a_leading_null_is_told_by_the_usage(tmp_path: Path) -> None:
    logprobs = {"tokens": list("pqabc"), "token_logprobs": [-9.0, -1.0, *LOGPS]}
    line = {
        "id": "t",
        "choices": [{"index": 0, "logprobs": logprobs}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3},
    }
    (tmp_path / "log.jsonl").write_text(lines(line))
    code, (row,) = imported(tmp_path / "log.jsonl", tmp_path / "run")
    assert code == 0 and close(row["rollout_logprobs"], LOGPS) and row["prompt_tokens"] == 2
