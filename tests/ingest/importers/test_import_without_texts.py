"""`ratioscope import --no-text`: no byte of a prompt, token, message, id or quoted value is in the run; numbers and ids are."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from support.imported import imported, rejected

IDS, LOGPS = [4, 5, 6], [-0.5, -0.25, -1.5]
SECRETS = ("Zanzibar", "Quetzal", "Xylophone", "Wolframite", "Kumquat", "Jabberwock", "Fjord")


def _response(name: str) -> dict[str, Any]:
    content = [{"token": chr(97 + i), "logprob": x, "bytes": [97 + i]} for i, x in zip(IDS, LOGPS, strict=True)]
    choice = {"index": 0, "finish_reason": "stop", "token_ids": IDS, "logprobs": {"content": content}}
    return {"id": name, "object": "chat.completion", "model": "m", "choices": [choice]}


def _lines() -> list[dict[str, Any]]:
    """A log with a text in its request, tokens, message and ids, beside rows that are rejected with a reason that quotes one."""
    spoken = _response(f"{SECRETS[4]} has blanks")
    spoken["choices"][0]["message"] = {"role": "assistant", "content": SECRETS[1]}
    for part, text in zip(spoken["choices"][0]["logprobs"]["content"], SECRETS[1:4], strict=True):
        part |= {"token": text, "bytes": list(text.encode())}
    asked = {"messages": [{"role": "user", "content": SECRETS[0]}], "temperature": 0.5}
    odd = {"step": f"no step but {SECRETS[5]}", "response": _response("c")}
    cut = {
        "step": 1,
        "response": {
            **_response("c"),
            "choices": [{"index": 0, "logprobs": {"content": [{"logprob": f"it's {SECRETS[6]}"}]}}],
        },
    }
    return [{"request": asked, "response": spoken}, odd, cut]


def _everything(run: Path) -> str:
    """The bytes of all files of a run, and the values of its tables, as one text."""
    files = [path for path in run.rglob("*") if path.is_file()]
    tables = [str(pq.read_table(path).to_pylist()) for path in files if path.suffix == ".parquet"]
    return "".join([*(path.read_bytes().decode("latin-1") for path in files), *tables])


def test_no_byte_of_a_text_is_in_a_run_without_texts_and_all_else_is(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in _lines()))
    for name, options in (("full", ()), ("bare", ("--no-text",))):
        code, (row,) = imported(log, tmp_path / name, *options)
        assert code == 1 and len(rejected(tmp_path / name)) == 2
        assert row["rollout_logprobs"] == LOGPS and row["token_ids"] == IDS and row["turn"] == [0, 0, 0]
        assert json.loads(row["extra"])["temperature"] == 0.5
    full, bare = _everything(tmp_path / "full"), _everything(tmp_path / "bare")
    assert [word in full for word in SECRETS[:6]] == [True] * 6
    assert [word in bare for word in SECRETS] == [False] * len(SECRETS)
