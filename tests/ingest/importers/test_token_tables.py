"""Tables of one row per token: the rows of a sequence become one sequence, or are named with the reason why not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from support.imported import imported, rejected, rows_of
from support.paths import ROOT

from ratioscope.app.cli import main

OURS = ROOT / "sample_data" / "runs" / "trl-vllm-healthy"
LISTS = ("token_ids", "rollout_logprobs", "old_logprobs", "current_logprobs", "entropy", "mask", "rollout_versions")
Rows = list[dict[str, Any]]
Capture = pytest.CaptureFixture[str]


def tokens() -> Rows:
    """Two sequences of a step and one of the next, which has the name of the first."""
    lengths = {(4, "a"): 3, (4, "b"): 2, (5, "a"): 2}
    return [
        {
            "step": step, "sample": name, "position": place, "id": 10 * step + place, "engine_logprob": -0.5 - place,
            "reward": float(step), "trainer_logprob": -0.25 - place, "prompt": {"name": f"p{step}"},
        }
        for (step, name), length in lengths.items()
        for place in range(length)
    ]  # fmt: skip


def written(rows: Rows, path: Path) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


MAP = ("--map", "rollout_logprobs=engine_logprob", "--map", "sequence_ids=sample", "--map", "token_ids=id",
       "--map", "old_logprobs=trainer_logprob")  # fmt: skip


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl", "feather"])
def test_what_export_writes_by_token_is_imported_whole(ending: str, tmp_path: Path, capsys: Capture) -> None:
    table = tmp_path / f"tokens.{'parquet' if ending == 'feather' else ending}"
    assert main(["export", str(OURS), "--level", "token", "-o", str(table)]) == 0
    if ending == "feather":
        feather.write_feather(pq.read_table(table), tmp_path / "tokens.feather", compression="uncompressed")
        table = tmp_path / "tokens.feather"
    code, rows = imported(table, tmp_path / "run")
    recorded = {(row["step"], row["sequence_id"]): row for row in rows_of(OURS)}
    assert code == 0 and len(rows) == len(recorded) > 100
    for row in rows:
        own = recorded[row["step"], row["sequence_id"]]
        for name in LISTS:
            assert np.array_equal(row[name], own[name]), name
        assert all(row[name] == own[name] for name in ("group_id", "reward", "trainer_version", "minibatch"))


@pytest.mark.parametrize("as_columns", [False, True])
def test_a_table_of_other_names_is_mapped(as_columns: bool, tmp_path: Path) -> None:
    path = written(tokens(), tmp_path / "rows.jsonl")
    if as_columns:
        pl.DataFrame(tokens()).write_parquet(path := tmp_path / "rows.parquet")
    code, rows = imported(path, tmp_path / "run", *MAP, "--map", "group_ids=prompt.name")
    assert code == 0 and [(row["step"], row["sequence_id"]) for row in rows] == [(4, "a"), (4, "b"), (5, "a")]
    assert [row["group_id"] for row in rows] == ["p4", "p4", "p5"]
    assert [list(row["token_ids"]) for row in rows] == [[40, 41, 42], [40, 41], [50, 51]]
    assert [list(row["rollout_logprobs"]) for row in rows] == [[-0.5, -1.5, -2.5], [-0.5, -1.5], [-0.5, -1.5]]
    assert [row["reward"] for row in rows] == [4.0, 4.0, 5.0]


def _without(place: int) -> Callable[[Rows], Rows]:
    return lambda rows: [row for index, row in enumerate(rows) if index != place]


def _changed(place: int, **values: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [row | values if index == place else row for index, row in enumerate(rows)]


FAULTS: dict[str, tuple[Callable[[Rows], Rows], int, str]] = {
    "a token is absent": (_without(1), 0, "its position goes from 0 to 2"),
    "a token is there twice": (lambda rows: [*rows[:4], rows[3], *rows[4:]], 3, "its position goes from 0 to 0"),
    "two rewards": (_changed(4, reward=7.0), 3, "its rows differ in reward"),
    "a text for a log-prob": (_changed(1, engine_logprob="high"), 0, "holds a str"),
    "a log-prob of one token is a list": (_changed(1, trainer_logprob=[-1.0]), 0, "holds a list"),
    "no id of one token": (_changed(1, id=None), 0, "no whole one"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_sequence_that_does_not_hold_together_is_named_and_the_others_are_imported(
    fault: str, tmp_path: Path
) -> None:
    damage, row, reason = FAULTS[fault]
    code, rows = imported(written(damage(tokens()), tmp_path / "rows.jsonl"), tmp_path / "run", *MAP)
    assert code == 1 and len(rows) == 2
    (found,) = rejected(tmp_path / "run")
    assert found["row"] == row and reason in found["reason"]


def test_a_log_prob_that_is_absent_is_unknown_and_not_left_out(tmp_path: Path) -> None:
    rows = _changed(1, trainer_logprob=None)(tokens())
    code, (first, *_) = imported(written(rows, tmp_path / "rows.jsonl"), tmp_path / "run", *MAP)
    assert code == 0 and np.array_equal(first["old_logprobs"], [-0.25, np.nan, -2.25], equal_nan=True)


def test_a_line_that_cannot_be_read_spoils_the_sequences_that_it_may_be_of(tmp_path: Path) -> None:
    path = written(tokens(), tmp_path / "rows.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], "{broken\n", *lines[3:]]))
    code, rows = imported(path, tmp_path / "run", *MAP)
    assert code == 1 and [(row["step"], row["sequence_id"]) for row in rows] == [(5, "a")]
    assert ["row 3, which may be one of its tokens" in found["reason"] for found in rejected(tmp_path / "run")] == [
        True
    ] * 2


def test_the_last_line_that_was_cut_off_spoils_its_own_sequence(tmp_path: Path) -> None:
    path = written(tokens(), tmp_path / "rows.jsonl")
    path.write_bytes(path.read_bytes()[:-9])
    code, rows = imported(path, tmp_path / "run", *MAP)
    assert code == 1 and [row["sequence_id"] for row in rows] == ["a", "b"]
    assert "it was cut off" in rejected(tmp_path / "run")[0]["reason"]


def test_rows_of_sequences_in_turns_are_refused_with_what_to_do(tmp_path: Path) -> None:
    rows = sorted(tokens(), key=lambda row: (row["step"], row["position"], row["sample"]))
    assert imported(written(rows, tmp_path / "rows.jsonl"), tmp_path / "run", *MAP)[0] == 1
    (*_, found) = rejected(tmp_path / "run")
    assert "sort the table by step, sequence and position" in found["reason"]


def test_without_a_field_for_the_sequence_the_error_says_what_to_add(tmp_path: Path, capsys: Capture) -> None:
    path = written(tokens(), tmp_path / "rows.jsonl")
    assert main(["import", str(path), "-o", str(tmp_path / "run"), *MAP[:2]]) == 3
    assert "rows of one token each and --map sequence_ids=FIELD" in capsys.readouterr().err
    assert main(["import", str(path), "-o", str(tmp_path / "run")]) == 3
    told = capsys.readouterr().err
    assert "engine_logprob, trainer_logprob" in told and "--map sequence_ids=FIELD" in told


def test_a_short_file_of_endless_rows_is_refused(tmp_path: Path, capsys: Capture) -> None:
    count = 1 << 20
    same = pa.table(
        {
            "step": pa.array(np.zeros(count, np.int32)),
            "sequence_id": pa.array(np.zeros(count, np.int32)),
            "rollout_logprob": pa.array(np.full(count, -0.5, np.float32)),
        }
    )
    pq.write_table(same, tmp_path / "rows.parquet", compression="zstd")
    assert imported(tmp_path / "rows.parquet", tmp_path / "run") == (3, [])
    assert "less than a byte for a row" in capsys.readouterr().err


def test_a_table_whose_other_side_has_an_unknown_name_says_what_it_leaves_out(tmp_path: Path, capsys: Capture) -> None:
    renamed = {"sample": "sample_id", "engine_logprob": "rollout_logprob"}
    rows = [{renamed.get(name, name): value for name, value in row.items()} for row in tokens()]
    table = written(rows, tmp_path / "tokens.jsonl")
    assert imported(table, tmp_path / "one")[0] == 0
    words = capsys.readouterr().out
    assert (
        "not imported: trainer_logprob of 1 file, which may be log-probs; say whose with --map old_logprobs=trainer_logprob"
        in words
    )
    code, joined = imported(table, tmp_path / "both", "--map", "old_logprobs=trainer_logprob")
    assert code == 0 and joined[0]["old_logprobs"] == [-0.25, -1.25, -2.25]
    assert "not imported" not in capsys.readouterr().out


def test_the_token_files_of_a_run_are_imported_whole(tmp_path: Path, capsys: Capture) -> None:
    code, rows = imported(OURS / "tokens", tmp_path / "run")
    recorded = {(row["step"], row["sequence_id"]): row for row in rows_of(OURS)}
    assert code == 0 and len(rows) == len(recorded)
    for row in rows:
        own = recorded[row["step"], row["sequence_id"]]
        assert all(np.array_equal(row[name], own[name]) for name in (*LISTS, "advantages"))
    assert main(["import", str(OURS), "-o", str(tmp_path / "again")]) == 3
    assert f"is a run already, as a collector or an import made it; to look at it: ratioscope info {OURS}" in (
        capsys.readouterr().err
    )
