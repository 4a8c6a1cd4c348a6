"""The likeliest tokens in logs of vLLM and SGLang, in the shapes that their servers return them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.imported import imported

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.ingest.analysis.support import support_of
from ratioscope.ingest.importers.row import Row
from ratioscope.ingest.importers.topk import last_places, topk, topk_arguments

IDS, LOGPS = [4, 5, 6], [-0.5, -0.25, -1.5]
TOP = [[(4, -0.5), (9, -1.25)], [(5, -0.25), (8, -2.0)], [(7, -0.75), (6, -1.5)]]
"""(id, log-prob) of the likeliest tokens at each place; the third sampled token is the second likeliest."""
PAIR = st.tuples(st.integers(0, 2**31 - 1), st.floats(-30, 0, width=32))
PLACES = st.lists(st.lists(PAIR, max_size=3, unique_by=lambda pair: pair[0]), min_size=1, max_size=4)


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def chat(name: str = "token_id:{}", **more: Any) -> dict[str, Any]:
    """vLLM, /v1/chat/completions with logprobs, top_logprobs=2 and return_tokens_as_token_ids."""
    content = [
        {
            "token": name.format(i), "logprob": x, "bytes": None,
            "top_logprobs": [{"token": name.format(j), "logprob": y, "bytes": None} for j, y in top],
        }
        for i, x, top in zip(IDS, LOGPS, TOP, strict=True)
    ]  # fmt: skip
    choice = {"index": 0, "token_ids": IDS, "finish_reason": "stop", "logprobs": {"content": content}}
    return {"id": "chat-0", "object": "chat.completion", "model": "m", "choices": [choice], **more}


def completion(name: str = "token_id:{}") -> dict[str, Any]:
    """vLLM, /v1/completions with logprobs=2 and return_tokens_as_token_ids."""
    logprobs = {
        "text_offset": [0, 1, 2], "tokens": [name.format(i) for i in IDS], "token_logprobs": LOGPS,
        "top_logprobs": [{name.format(j): y for j, y in top} for top in TOP],
    }  # fmt: skip
    choice = {"index": 0, "text": "abc", "token_ids": IDS, "logprobs": logprobs, "finish_reason": "length"}
    return {"id": "cmpl-0", "object": "text_completion", "model": "m", "choices": [choice]}


def generate() -> dict[str, Any]:
    """SGLang, /generate with return_logprob and top_logprobs_num=2."""
    meta = {
        "id": "g0", "finish_reason": {"type": "stop"}, "prompt_tokens": 3, "completion_tokens": 3,
        "output_token_logprobs": [[x, i, None] for i, x in zip(IDS, LOGPS, strict=True)],
        "output_top_logprobs": [[[y, j, None] for j, y in top] for top in TOP],
    }  # fmt: skip
    return {"text": "abc", "meta_info": meta}


def scored() -> dict[str, Any]:
    """vLLM, prompt_logprobs=2 of prompt and response: the first place has none, others their token and the likeliest."""
    places: list[Any] = [None, {"12": {"logprob": -1.0, "rank": 1, "decoded_token": "b"}}]
    places += [{str(j): {"logprob": y - 0.5, "rank": 1, "decoded_token": "x"} for j, y in top} for top in TOP]
    choice = {"index": 0, "token_ids": [7], "logprobs": None, "prompt_logprobs": places}
    return {"id": "chat-0", "prompt_token_ids": [11, 12, *IDS], "choices": [choice]}


def held(run: Path, side: str) -> list[dict[int, float]]:
    """For each token: id -> the log-prob of a side, where it has one."""
    (table,) = (open_run(run).topk(step) for step in open_run(run).topk_steps)
    names = ("topk_counts", "topk_ids", f"{side}_topk_logprobs")
    counts, ids, values = (np.array(table[name].to_pylist()[0]) for name in names)
    ends = np.cumsum(counts)[:-1]
    parts = zip(np.split(ids, ends), np.split(values, ends), strict=True)
    return [{int(i): float(x) for i, x in zip(*part, strict=True) if not np.isnan(x)} for part in parts]


def test_every_form_of_likeliest_tokens_with_ids_is_taken(tmp_path: Path) -> None:
    for place, row in enumerate((chat(), completion(), generate())):
        run = tmp_path / f"run{place}"
        code, rows = imported(write(tmp_path / f"log{place}.jsonl", row), run)
        assert code == 0 and np.allclose(rows[0]["rollout_logprobs"], LOGPS)
        assert held(run, "rollout") == [dict(top) for top in TOP]


def test_texts_of_tokens_are_no_ids(tmp_path: Path) -> None:
    for place, row in enumerate((chat("{}"), completion("{}"), completion("a{}"))):
        code, rows = imported(write(tmp_path / f"log{place}.jsonl", row), tmp_path / f"run{place}")
        assert code == 0 and rows[0]["token_ids"] == IDS and open_run(tmp_path / f"run{place}").topk_steps == []


def test_two_logs_join_to_the_support_of_both_sides(tmp_path: Path) -> None:
    log, other = write(tmp_path / "a.jsonl", chat()), write(tmp_path / "b.jsonl", scored())
    sides = ["--rollout", str(log), "--train", str(other)]
    assert main(["import", *sides, "--on", "id", "-o", str(tmp_path / "run")]) == 0
    found = support_of(open_run(tmp_path / "run"), 0)
    assert found.sampled_ids.tolist() == IDS and np.allclose(found.sampled_train, np.array(LOGPS) - 0.5)
    assert [set(row.tolist()) for row in found.ids] == [{i for i, _ in top} for top in TOP]
    assert np.allclose(found.train, found.rollout - 0.5) and not np.isnan(found.rollout).any()


def test_an_echoed_prompt_has_no_likeliest_tokens_of_the_response(tmp_path: Path) -> None:
    row = completion()
    logprobs = row["choices"][0]["logprobs"]
    logprobs |= {"token_logprobs": [None, *LOGPS], "top_logprobs": [None, *logprobs["top_logprobs"]]}
    row["usage"] = {"completion_tokens": 3}
    del row["choices"][0]["token_ids"]
    imported(write(tmp_path / "log.jsonl", row), tmp_path / "run")
    assert held(tmp_path / "run", "rollout") == [dict(top) for top in TOP]


def test_logs_of_odd_likeliest_tokens_are_imported_without_them(tmp_path: Path) -> None:
    odd: list[Any] = [
        7, "x", [], [None] * 3, [7, 8, 9], [[["a", 4, None]]] * 3, [[[-1.0, 2**40, None]]] * 3, [[[True, 4]]] * 3,
        [[[-1.0, True, None]]] * 3, [[[-1.0]]] * 3, {"4": -1.0}, [{"token_id:99999999999999999999": -1.0}] * 3,
        [[[-1.0, 4, None]]] * 2, [{"token_id:٣": -1.0}] * 3,
    ]  # fmt: skip
    rows = [generate() for _ in odd]
    for number, (row, top) in enumerate(zip(rows, odd, strict=True)):
        row["meta_info"] |= {"output_top_logprobs": top, "id": f"g{number}"}
    code, found = imported(write(tmp_path / "log.jsonl", *rows), tmp_path / "run")
    assert code == 0 and len(found) == len(odd) and open_run(tmp_path / "run").topk_steps == []


def test_a_whole_vocabulary_is_cut_to_its_likeliest_tokens() -> None:
    packed = topk([{f"token_id:{i}": -0.01 * i for i in range(1000)}], None)
    (grid,) = topk_arguments([({"rollout_topk": packed}, 1)])["topk_ids"]
    assert grid is not None and sorted(grid[0].tolist()) == list(range(128))


@given(places=PLACES, of_response=st.integers(0, 4))
def test_the_end_of_a_text_has_the_alternatives_of_its_places(places: list[Any], of_response: int) -> None:
    tokens = min(of_response, len(places))
    value = [[[x, i, None] for i, x in place] for place in places]
    packed = topk(value, Row(None, None, {}))
    wanted = [dict(place) for place in places[len(places) - tokens :]]
    if packed is None:
        assert not any(map(len, places))
        return
    made = topk_arguments([({"old_topk": last_places(packed, tokens)}, tokens)])
    (ids,), (logprobs,) = made["topk_ids"], made["old_topk_logprobs"]
    assert ids is not None and logprobs is not None
    grids = zip(ids, logprobs, strict=True)
    assert [{int(i): x for i, x in zip(*row, strict=True) if i >= 0} for row in grids] == wanted


def test_a_log_of_another_program_names_its_likeliest_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"step": 3, "lp": LOGPS, "again": LOGPS, "best": [[[y, i, None] for i, y in top] for top in TOP]}
    source, run = write(tmp_path / "log.jsonl", row), tmp_path / "run"
    mapped = ["--map", "rollout_logprobs=lp", "--map", "old_logprobs=again"]
    assert main(["import", str(source), "-o", str(run), *mapped, "--map", "old_topk=best|topk"]) == 0
    assert held(run, "old") == [dict(top) for top in TOP]
    assert open_run(run).topk(3)["rollout_topk_logprobs"].null_count == 1
    assert main(["import", str(source), "-o", str(tmp_path / "odd"), *mapped, "--map", "old_topk=best"]) == 3
    assert "it is no list of alternatives; wanted FIELD|topk" in capsys.readouterr().err
