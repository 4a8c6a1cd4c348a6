"""Logs of vLLM's and SGLang's responses: echoed prompts are no samples, a second reading joins, batches and streams are read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.imported import imported, rejected, rows_of

from ratioscope import open_run
from ratioscope.app.cli import main

PROMPT, IDS, LOGPS = [11, 12, 13], [4, 5, 6], [-0.5, -0.25, -1.5]
AGAIN = [-0.51, -0.25, -1.4]


def close(found: list[float], wanted: list[float]) -> bool:
    return np.allclose(np.array(found, float), wanted, atol=1e-6)


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sampled(name: str = "r0") -> dict[str, Any]:
    content = [{"token": f"token_id:{i}", "logprob": x} for i, x in zip(IDS, LOGPS, strict=True)]
    usage = {"prompt_tokens": 3, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    choice = {"index": 0, "token_ids": IDS, "finish_reason": "stop", "logprobs": {"content": content}}
    return {"id": name, "model": "qwen", "prompt_token_ids": PROMPT, "choices": [choice], "usage": usage}


def scored(name: str = "r0", prompt: list[int] = PROMPT) -> dict[str, Any]:
    """vLLM's prompt_logprobs: keys are ids, the token's own among others."""
    places = [
        {str(i): {"logprob": x}, "99": {"logprob": -0.01}}
        for i, x in zip([*prompt, *IDS], [-1.0] * 3 + AGAIN, strict=True)
    ]
    choice = {"index": 0, "token_ids": [7], "logprobs": None, "prompt_logprobs": [None, *places[1:]]}
    return {"id": name, "prompt_token_ids": [*prompt, *IDS], "choices": [choice]}


def echoed(new: int, **more: Any) -> dict[str, Any]:
    values = [None, -1.0, -1.0, *AGAIN]
    logprobs = {"token_logprobs": values, "tokens": list("pppabc"), "text_offset": list(range(6))}
    return {"id": "r0", "choices": [{"index": 0, "logprobs": logprobs}], "usage": {"completion_tokens": new}, **more}


def test_an_echoed_prompt_is_no_sample(tmp_path: Path) -> None:
    code, rows = imported(write(tmp_path / "echo.jsonl", echoed(3)), tmp_path / "run")
    assert code == 0 and close(rows[0]["rollout_logprobs"], AGAIN) and rows[0]["prompt_tokens"] == 3


def test_the_text_of_the_prompt_says_where_the_response_begins(tmp_path: Path) -> None:
    row = {"request": {"prompt": "ppp"}, "response": {**echoed(0), "usage": None}}
    code, rows = imported(write(tmp_path / "echo.jsonl", row), tmp_path / "run")
    assert code == 0 and close(rows[0]["rollout_logprobs"], AGAIN)


def test_an_echo_that_does_not_say_where_the_response_begins_is_rejected(tmp_path: Path) -> None:
    assert (
        main(
            [
                "import",
                str(write(tmp_path / "e.jsonl", sampled(), {**echoed(0), "usage": None})),
                "-o",
                str(tmp_path / "r"),
            ]
        )
        == 1
    )
    (row,) = rejected(tmp_path / "r")
    assert row["row"] == 1 and "where the response begins" in row["reason"]


@pytest.mark.parametrize("again", [scored(), echoed(0), echoed(0, prompt_token_ids=[*PROMPT, *IDS])])
def test_a_second_reading_joins_the_log_that_sampled(again: dict[str, Any], tmp_path: Path) -> None:
    log, other = write(tmp_path / "a.jsonl", sampled()), write(tmp_path / "b.jsonl", again)
    sides = ["--rollout", str(log), "--train", str(other)]
    assert main(["import", *sides, "--on", "id", "-o", str(tmp_path / "run")]) == 0
    run = open_run(tmp_path / "run")
    (row,) = rows_of(tmp_path / "run")
    assert close(row["rollout_logprobs"], LOGPS) and close(row["old_logprobs"], AGAIN) and row["token_ids"] == IDS
    assert run.metrics()["mismatch/abs_log_ratio"].to_list() == pytest.approx([np.mean([0.01, 0, 0.1])], rel=1e-5)


def test_a_reading_of_another_prompt_does_not_join(tmp_path: Path) -> None:
    log, other = write(tmp_path / "a.jsonl", sampled()), write(tmp_path / "b.jsonl", scored(prompt=[11, 12, 14]))
    assert (
        main(["import", "--rollout", str(log), "--train", str(other), "--on", "id", "-o", str(tmp_path / "run")]) != 0
    )


def test_a_reading_alone_says_how_to_join_it_and_a_missing_key_which_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, other = write(tmp_path / "a.jsonl", sampled()), write(tmp_path / "b.jsonl", scored())
    assert main(["import", str(other), "-o", str(tmp_path / "run")]) != 0
    assert "--rollout LOG --train THIS --on id" in capsys.readouterr().err
    sides = ["--rollout", str(log), "--train", str(other)]
    assert main(["import", *sides, "--on", "sample", "-o", str(tmp_path / "run")]) != 0
    assert "it has no sample, by which it would be joined; it has cached_tokens" in capsys.readouterr().err


def _generated(k: int = 3) -> dict[str, Any]:
    pairs = [[x, i, None] for i, x in zip(IDS, LOGPS, strict=True)][:k]
    meta = {"id": "g", "prompt_tokens": 3, "cached_tokens": 1, "weight_version": "4", "output_token_logprobs": pairs}
    return {"text": "x", "meta_info": meta}


def test_a_batch_of_sglang_is_a_list(tmp_path: Path) -> None:
    (tmp_path / "batch.json").write_text(json.dumps([_generated(), _generated()]))
    code, rows = imported(tmp_path / "batch.json", tmp_path / "run")
    assert code == 0 and len(rows) == 2 and rows[1]["token_ids"] == IDS
    assert (rows[0]["prompt_tokens"], rows[0]["cached_tokens"], rows[0]["rollout_version_min"]) == (3, 1, 4)


def _stream(*parts: Any) -> str:
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n"


@pytest.mark.parametrize("way", ["all so far", "piece by piece"])
def test_a_stream_of_sglang_is_put_together(way: str, tmp_path: Path) -> None:
    parts = [_generated(k) for k in (1, 2, 3)]
    if way == "piece by piece":
        for k, part in enumerate(parts):
            part["meta_info"]["output_token_logprobs"] = part["meta_info"]["output_token_logprobs"][k:]
    (tmp_path / "log.sse").write_text(": comment\n" + _stream(*parts) * 2)
    code, rows = imported(tmp_path / "log.sse", tmp_path / "run")
    assert code == 0 and len(rows) == 2 and all(close(row["rollout_logprobs"], LOGPS) for row in rows)


def test_a_stream_of_openai_is_put_together_choice_by_choice(tmp_path: Path) -> None:
    parts = []
    for token, value in zip(IDS, LOGPS, strict=True):
        for index in (0, 1):
            logprobs = {"content": [{"logprob": value - index}]}
            parts.append(
                {"id": "c", "choices": [{"index": index, "delta": {}, "logprobs": logprobs, "token_ids": [token]}]}
            )
    parts.append({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    (tmp_path / "log.sse").write_text(_stream(*parts, {"id": "c", "choices": [], "usage": {"prompt_tokens": 3}}))
    code, rows = imported(tmp_path / "log.sse", tmp_path / "run")
    assert code == 0 and [row["token_ids"] for row in rows] == [IDS, IDS] and rows[0]["finish_reason"] == "stop"
    assert close(rows[1]["rollout_logprobs"], [x - 1 for x in LOGPS]) and rows[0]["prompt_tokens"] == 3


def test_tokens_of_a_prompt_and_of_the_cache_are_kept(tmp_path: Path) -> None:
    code, rows = imported(write(tmp_path / "log.jsonl", sampled()), tmp_path / "run")
    assert (
        code == 0
        and (rows[0]["prompt_tokens"], rows[0]["cached_tokens"]) == (3, 2)
        and rows[0]["finish_reason"] == "stop"
    )


def test_the_prompt_of_sglang_is_kept_where_all_of_it_was_scored(tmp_path: Path) -> None:
    """logprob_start_len=0 asks for it; without it the engine scores the end of the prompt alone."""
    meta = {"id": "x", "prompt_tokens": 2, "output_token_logprobs": [[-0.5, 7, None]]}
    scored = [[None, 3, None], [-1.0, 4, None]]
    lines = [{"text": "a", "meta_info": {**meta, "id": str(n), "input_token_logprobs": scored[n:]}} for n in range(2)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, rows = imported(tmp_path / "log.jsonl", tmp_path / "run")
    assert code == 0 and [row["prompt_ids"] for row in rows] == [[3, 4], None]
