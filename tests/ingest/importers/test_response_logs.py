"""Logs of vLLM's and SGLang's responses: echoed prompts are no samples, a second reading joins, batches and streams are read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.imported import imported, rejected, rows_of

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.metrics.analysis.token_classes import token_class

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


def _generated(k: int = 3, name: str = "g") -> dict[str, Any]:
    pairs = [[x, i, None] for i, x in zip(IDS, LOGPS, strict=True)][:k]
    meta = {"id": name, "prompt_tokens": 3, "cached_tokens": 1, "weight_version": "4", "output_token_logprobs": pairs}
    return {"text": "x", "meta_info": meta}


def test_a_batch_of_sglang_is_a_list(tmp_path: Path) -> None:
    (tmp_path / "batch.json").write_text(json.dumps([_generated(), _generated(name="h")]))
    code, rows = imported(tmp_path / "batch.json", tmp_path / "run")
    assert code == 0 and len(rows) == 2 and rows[1]["token_ids"] == IDS
    assert (rows[0]["prompt_tokens"], rows[0]["cached_tokens"], rows[0]["rollout_version_min"]) == (3, 1, 4)


def _stream(*parts: Any) -> str:
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n"


@pytest.mark.parametrize("way", ["all so far", "piece by piece"])
def test_a_stream_of_sglang_is_put_together(way: str, tmp_path: Path) -> None:
    streams = [[_generated(k, name) for k in (1, 2, 3)] for name in "gh"]
    if way == "piece by piece":
        for k, part in (pair for parts in streams for pair in enumerate(parts)):
            part["meta_info"]["output_token_logprobs"] = part["meta_info"]["output_token_logprobs"][k:]
    (tmp_path / "log.sse").write_text(": comment\n" + "".join(_stream(*parts) for parts in streams))
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


SPELLED = [" 3", "€", "<|im_end|>"]


def chat(name: str, content: list[dict[str, Any]], **of_choice: Any) -> dict[str, Any]:
    """A chat completion as vLLM, SGLang and OpenAI return it, without ids."""
    choice = {"index": 0, "message": {"role": "assistant", "content": " 3€"}, "logprobs": {"content": content}}
    return {"id": name, "object": "chat.completion", "model": "qwen", "choices": [{**choice, **of_choice}]}


def spelled(texts: list[str], **more: Any) -> list[dict[str, Any]]:
    """The bytes are those of the text, as engines give them; OpenAI has none for a control token."""
    of = {text: None if text.startswith("<|") else list(text.encode()) for text in texts}
    return [
        {"token": t, "logprob": x, "bytes": of[t], "top_logprobs": [], **more}
        for t, x in zip(texts, LOGPS, strict=True)
    ]


def test_the_text_of_each_token_of_a_chat_log_is_kept_and_its_class_can_be_asked_for(tmp_path: Path) -> None:
    log, other = write(tmp_path / "a.jsonl", chat("r0", spelled(SPELLED))), write(tmp_path / "b.jsonl", scored())
    assert (
        main(["import", "--rollout", str(log), "--train", str(other), "--on", "id", "-o", str(tmp_path / "run")]) == 0
    )
    assert rows_of(tmp_path / "run")[0]["token_texts"] == SPELLED
    by_class = open_run(tmp_path / "run").metrics(by="token_class").sort("token_class")
    assert by_class["token_class"].to_list() == ["digits", "punctuation", "special"]
    assert by_class["mismatch/abs_log_ratio"].to_list() == pytest.approx([0.01, 0, 0.1], rel=1e-4)


def test_a_part_of_a_character_is_one_however_the_server_spells_it(tmp_path: Path) -> None:
    """OpenAI's API has `bytes:\\xe2\\x82` beside the bytes; vLLM and SGLang have U+FFFD, and its bytes."""
    parts = spelled(["bytes:\\xe2\\x82", "\ufffd", "a"])
    parts[0]["bytes"] = [0xE2, 0x82]
    code, rows = imported(write(tmp_path / "chat.jsonl", chat("c", parts)), tmp_path / "run")
    assert code == 0 and rows[0]["token_texts"] == ["\ufffd", "\ufffd", "a"]
    assert [token_class(text) for text in rows[0]["token_texts"]] == ["part of a character"] * 2 + ["word piece"]


def test_ids_that_tokens_are_spelled_as_are_ids_and_their_bytes_are_texts(tmp_path: Path) -> None:
    """vLLM with return_tokens_as_token_ids: `token` has the id, `bytes` the text."""
    content = [
        {**part, "token": f"token_id:{i}", "bytes": list(text.encode())}
        for i, text, part in zip(IDS, SPELLED, spelled(SPELLED), strict=True)
    ]
    code, rows = imported(write(tmp_path / "chat.jsonl", chat("c", content)), tmp_path / "run")
    assert code == 0 and rows[0]["token_ids"] == IDS and rows[0]["token_texts"] == SPELLED
    content[1]["token"] = "€"
    code, rows = imported(write(tmp_path / "mixed.jsonl", chat("c", content)), tmp_path / "mixed")
    assert code == 0 and rows[0]["token_ids"] is None and rows[0]["token_texts"] == SPELLED


def test_an_echoed_prompt_leaves_its_texts_too_and_a_completion_has_them_by_name(tmp_path: Path) -> None:
    code, rows = imported(write(tmp_path / "echo.jsonl", echoed(3)), tmp_path / "run")
    assert code == 0 and rows[0]["token_texts"] == ["a", "b", "c"]


def test_texts_of_sglang_are_kept_where_it_was_asked_for_them(tmp_path: Path) -> None:
    texts, without = _generated(), _generated(2)
    texts["meta_info"]["output_token_logprobs"] = [[x, i, t] for i, x, t in zip(IDS, LOGPS, SPELLED, strict=True)]
    without["meta_info"]["id"] = "h"
    code, rows = imported(write(tmp_path / "log.jsonl", texts, without), tmp_path / "run")
    assert code == 0 and [row["token_texts"] for row in rows] == [SPELLED, None]


def test_likeliest_tokens_by_text_have_no_column_and_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    likeliest = [{"token": "a", "logprob": -0.1, "bytes": [97]}, {"token": "b", "logprob": -2.0, "bytes": [98]}]
    by_id = [{"token": "token_id:4", "logprob": -0.1, "bytes": [97]}]
    content = spelled(SPELLED, top_logprobs=likeliest)
    log = write(
        tmp_path / "chat.jsonl",
        chat("c", content),
        chat("d", spelled(SPELLED, top_logprobs=by_id)),
        chat("e", spelled(SPELLED)),
    )
    assert main(["import", str(log), "-o", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert (
        "set aside: likeliest tokens of a place by text alone" in said
        and "return_tokens_as_token_ids gives (3)" in said
    )


@pytest.mark.parametrize("odd", ["x", 5, [300, -1], ["a"], {}, [None], True])
def test_bytes_that_are_none_do_not_lose_the_text(odd: Any, tmp_path: Path) -> None:
    code, rows = imported(write(tmp_path / "chat.jsonl", chat("c", spelled(SPELLED, bytes=odd))), tmp_path / "run")
    assert code == 0 and rows[0]["token_texts"] == SPELLED


def test_texts_of_a_table_are_mapped_and_a_digit_stays_a_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "sample,lp,piece\n" + "".join(f"s,{x},{t}\n" for x, t in zip(LOGPS, ["01", "1e3", "x"], strict=True))
    )
    options = ["--map", "rollout_logprobs=lp", "--map", "sequence_ids=sample", "--map", "token_texts=piece"]
    code, rows = imported(tmp_path / "t.csv", tmp_path / "run", *options)
    assert code == 0 and rows[0]["token_texts"] == ["01", "1e3", "x"]


def test_texts_that_are_too_few_or_none_reject_their_row_alone(tmp_path: Path) -> None:
    good, few, odd = ({"id": n, "lp": LOGPS, "t": t} for n, t in (("a", SPELLED), ("b", SPELLED[:2]), ("c", [1, 2, 3])))
    options = ["--map", "rollout_logprobs=lp", "--map", "sequence_ids=id", "--map", "token_texts=t"]
    code, rows = imported(write(tmp_path / "t.jsonl", good, few, odd), tmp_path / "run", *options)
    assert code == 1 and [row["sequence_id"] for row in rows] == ["a"]
    assert [
        "2 tokens" in each["reason"] or "no list of texts" in each["reason"] for each in rejected(tmp_path / "run")
    ] == [True] * 2


@pytest.mark.parametrize("is_of_sglang", [False, True])
def test_a_response_that_was_logged_twice_counts_once(
    is_of_sglang: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some servers give every response one id: with other log-probs it is another response, and so is one without an id."""

    def made(name: str | None) -> dict[str, Any]:
        return _generated(name=str(name)) if is_of_sglang else {**sampled(), "id": name}

    other = json.loads(json.dumps(made("a")).replace("-1.5", "-1.75"))
    nameless = json.loads(json.dumps(made(None)).replace('"id": "None"', '"id": null'))
    log = write(tmp_path / "log.jsonl", made("a"), other, made("a"), made("b"), nameless, nameless)
    code, rows = imported(log, tmp_path / "run")
    assert code == 0 and sorted(row["rollout_logprobs"][-1] for row in rows) == [-1.75, *[-1.5] * 4]
    assert "set aside: responses that the log holds twice, with equal id and log-probs (1)" in capsys.readouterr().out
