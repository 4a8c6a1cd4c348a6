"""Two files of one side each become one run, and whatever does not match is counted and listed."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.imported import DUMPS, imported, rejected, rows_of

from ratioscope.app.cli import main
from ratioscope.errors import SourceError
from ratioscope.ingest.importers.joining import JoinStore, decoded, encoded
from ratioscope.ingest.importers.samples import RecordedRow


def _lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _join(folder: Path, rollout: list[dict[str, Any]], train: list[dict[str, Any]], on: str, *more: str) -> int:
    a, b = _lines(folder / "a.jsonl", rollout), _lines(folder / "b.jsonl", train)
    return main(["import", "--rollout", str(a), "--train", str(b), "--on", on, "-o", str(folder / "run"),
                 "--map-rollout", "rollout_logprobs=lp", "--map-train", "old_logprobs=lp", *more])  # fmt: skip


A = [{"sample_id": n, "lp": [-1.0, -float(n)], "token_ids": [5, n], "reward": 1.0} for n in range(6)]
B = [{"sample_id": n, "lp": [-1.5, -float(n)], "token_ids": [5, n], "step": 1 + n // 3} for n in reversed(range(6))]


def test_rows_of_equal_keys_become_one_row_in_whatever_order_they_come(tmp_path: Path) -> None:
    assert _join(tmp_path, A, B, "sample_id") == 0
    rows = rows_of(tmp_path / "run")
    assert [(row["step"], row["sequence_id"]) for row in rows] == [(1 + n // 3, str(n)) for n in range(6)]
    for n, row in enumerate(rows):
        assert row["rollout_logprobs"] == [-1, -n] and row["old_logprobs"] == [-1.5, -n] and row["reward"] == 1


def test_what_does_not_match_is_counted_and_listed_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = [dict(row) for row in B]
    train[0]["token_ids"] = [5, 77]  # sample 5: encoded anew
    train[1] |= {"token_ids": [5, 4, 9], "lp": [-1, -2, -3]}  # sample 4: one token more
    train[2]["sample_id"] = 99  # sample 3: unknown to the rollout
    del train[3]["sample_id"]  # sample 2
    train.append(dict(train[5]))  # sample 0 twice
    assert _join(tmp_path, [*A, A[1]], train, "sample_id", "--json") == 1
    found = json.loads(capsys.readouterr().out)["join"]
    assert found == {"on": ["sample_id"], "matched": 2, "only_rollout": 2, "only_train": 1, "without_key": 1, "duplicates": 2,
                     "other_tokens": 2}  # fmt: skip
    reasons = "\n".join(one["reason"] for one in rejected(tmp_path / "run"))
    assert "the ids differ at position 1: 5 in the rollout, 77 in the trainer" in reasons
    assert "the rollout has 2 ids, the trainer 3; the first 2 are equal" in reasons
    assert len(rejected(tmp_path / "run")) == 8 and len(rows_of(tmp_path / "run")) == 2


def test_token_ids_may_be_the_key(tmp_path: Path) -> None:
    rollout = [{key: value for key, value in row.items() if key != "sample_id"} for row in A]
    assert _join(tmp_path, rollout, B, "token_ids") == 0
    assert [row["rollout_logprobs"][1] for row in rows_of(tmp_path / "run")] == [-n for n in range(6)]


def test_a_cache_of_verl_is_joined_with_the_trainer_s_own_table(tmp_path: Path) -> None:
    wanted = json.loads((DUMPS / "verl" / "expected.json").read_text())
    train = [{"keys": f"u{n // 2}_0_{n % 2}", "old_logprobs": [x - 0.5 for x in row["rollout_logprobs"]],
              "token_ids": row["token_ids"]} for n, row in enumerate(wanted)]  # fmt: skip
    table = _lines(tmp_path / "train.jsonl", train)
    code = main(["import", "--rollout", str(DUMPS / "verl" / "tq_batch.pt"), "--train", str(table), "--on", "keys,token_ids",
                 "-o", str(tmp_path / "run"), "--step", "5"])  # fmt: skip
    rows = rows_of(tmp_path / "run")
    assert code == 0 and len(rows) == 4
    for row in rows:
        np.testing.assert_allclose(np.array(row["old_logprobs"]), np.array(row["rollout_logprobs"]) - 0.5, rtol=1e-6)


@pytest.mark.parametrize(
    "options", [["--rollout", "a"], ["--train", "b", "--on", "x"], ["--rollout", "a", "--train", "b"]]
)
def test_a_join_wants_both_sides_and_a_key(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", *options, "-o", "nowhere-run"]) == 2
    assert "try: ratioscope import --rollout A --train B" in capsys.readouterr().err


def test_a_second_file_of_a_side_is_a_duplicate_and_said_so(tmp_path: Path) -> None:
    for name in ("rollout_3.pt", "train_3.pt"):
        (tmp_path / name).write_bytes((DUMPS / "slime" / name).read_bytes())
    (tmp_path / "train_3_rank1.pt").write_bytes((DUMPS / "slime" / "train_3.pt").read_bytes())
    code, rows = imported(tmp_path, tmp_path / "run")
    listed = rejected(tmp_path / "run")
    assert (
        code == 1 and len(rows) == 4 and len(listed) == 4 and all("duplicate of row" in one["reason"] for one in listed)
    )


@given(
    tokens=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9),
    logprobs=st.lists(st.floats(width=32), max_size=9),
    text=st.text(st.characters(codec="utf-8")),
)
def test_a_row_comes_back_from_the_disk_as_it_was(tokens: list[int], logprobs: list[float], text: str) -> None:
    values: dict[str, Any] = {
        "token_ids": np.array(tokens, np.int64),
        "rollout_logprobs": np.array(logprobs, np.float32),
        "extra": {"a": text},
    }
    found = decoded(encoded(RecordedRow(3, values, {"k": text}, "file", 7)))
    assert (found.step, found.keys, found.file, found.row, found.values["extra"]) == (
        3,
        {"k": text},
        "file",
        7,
        {"a": text},
    )
    for name in ("token_ids", "rollout_logprobs"):
        assert found.values[name].dtype == values[name].dtype
        np.testing.assert_array_equal(found.values[name], values[name])


def _rows(count: int) -> list[RecordedRow]:
    return [RecordedRow(0, {"old_logprobs": np.full(5000, -1.0, np.float32)}, {}, "file", n) for n in range(count)]


def _place(descriptor: str) -> str:
    """The file of a descriptor; empty where another thread has closed it."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:
        return ""


def test_rows_that_wait_on_disk_have_no_name_there() -> None:
    store = JoinStore()
    for row in _rows(400):
        assert store.put(str(row.row), row) is None
    opened = [_place(number) for number in os.listdir("/proc/self/fd")]
    assert [place for place in opened if "etilqs_" in place and place.endswith(" (deleted)")], opened
    found, was_taken = store.take("399")
    assert found is not None and found.row == 399 and not was_taken and store.take("399")[1]
    assert sum(1 for _ in store.left()) == 399
    store.close()


def test_a_full_disk_is_told_with_a_way_out() -> None:
    store = JoinStore()
    store._base.execute("PRAGMA max_page_count = 20")
    with pytest.raises(SourceError, match=r"database or disk is full; wanted room .* try: SQLITE_TMPDIR=FOLDER"):
        for row in _rows(400):
            store.put(str(row.row), row)
    store.close()
