"""A run folder of prime-rl with its annotations; verifiers' own classes wrote its episodes: tests/upstream/prime_rl_traces.py."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.imported import DUMPS, imported, rejected

from ratioscope.ingest.importers.formats import verifiers

KEPT = DUMPS / "prime_rl" / "monitors"
EXPECTED = json.loads((DUMPS / "prime_rl" / "expected.json").read_text())
CHUNK, ORCH, TRAINER = "stream/00001.jsonl", "annotations/orch/00000.jsonl", "annotations/trainer/00000.jsonl"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    shutil.copytree(KEPT, tmp_path / "outputs" / "monitors")
    return tmp_path / "outputs" / "monitors" / "file" / "traces"


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows in the order of traces and of their branches."""
    return sorted(rows, key=lambda row: row["sequence_id"].split("-")[1:2] + [row["sequence_id"]])


def test_each_branch_has_what_verifiers_and_the_annotations_hold(traces: Path, tmp_path: Path) -> None:
    code, rows = imported(traces.parents[2], tmp_path / "run")
    assert code == 0 and not rejected(tmp_path / "run") and len(rows) == len(EXPECTED) == 10
    assert json.loads((tmp_path / "run" / "run.json").read_text())["trainer"] == "prime_rl"
    for row, wanted in zip(_in_order(rows), EXPECTED, strict=True):
        assert wanted["trace"] in row["sequence_id"]
        assert [row["rollout_version_min"], row["rollout_version_max"]] == wanted["versions"]
        for name in (
            "step",
            "generation_step",
            "trainer_version",
            "group_id",
            "reward",
            "prompt_tokens",
            "cached_tokens",
        ):
            assert row[name] == wanted[name], name
        _same_tokens(row, wanted)


def _same_tokens(row: dict[str, Any], wanted: dict[str, Any]) -> None:
    sampled = np.flatnonzero(wanted["sampled"])
    first, end = sampled[0], sampled[-1] + 1
    assert row["prompt_ids"] == wanted["ids"][:first] and row["token_ids"] == wanted["ids"][first:end]
    rollout = np.where(wanted["sampled"], wanted["rollout"], np.nan)[first:end]
    assert np.allclose(row["rollout_logprobs"], rollout, rtol=0, atol=5e-5 + 1e-7, equal_nan=True), "4 decimals"
    turns = [0] * 5 + [1] * (end - first - 5)
    assert row["turn"] == turns, "the tool's tokens are seen first by the second call"
    if wanted["annotated"] is None:
        assert row["current_logprobs"] is None and row["mask"] == wanted["sampled"][first:end]
        return
    for name, column in (("current_logprobs", "trainer_logprobs"), ("entropy", "entropies")):
        values = wanted["annotated"][column]
        full = np.array([*values, *[None] * (len(wanted["ids"]) - len(values))], np.float64)
        assert np.array_equal(np.float32(row[name]), np.float32(full[first:end]), equal_nan=True), name
    assert row["mask"] == row["loss_mask"] == np.isfinite(row["current_logprobs"]).tolist()
    assert np.array_equal(row["advantages"], np.where(wanted["sampled"], 0.5, np.nan)[first:end], equal_nan=True)


def test_lag_of_a_row_is_that_of_the_trainer(traces: Path, tmp_path: Path) -> None:
    _, rows = imported(traces, tmp_path / "run")
    shipped = [row for row in rows if row["trainer_version"] is not None]
    total = {max(0, (row["step"] - 1) - row["rollout_version_min"]) for row in shipped}
    assert total == {row["trainer_version"] - row["rollout_version_min"] for row in shipped} == {1, 2}


def test_what_is_no_row_of_training_is_counted_and_shown(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(traces, tmp_path / "run", "--json", "--strict")[0] == 0
    report = json.loads(capsys.readouterr().out)
    assert report["set_aside"] == {
        "episodes of an evaluation": 1,
        "rollouts of an agent that is not trained": 1,
        "episodes that ended without a rollout": 1,
        "lines that do not end yet, each the last of its file": 2,
        "sampled tokens without a log-prob of the trainer (not in its loss, cut, or no number)": 6,
    }
    assert report["one_side_only"] == [{"rollout": 2}] and not report["passed_over"]
    assert sum(map(len, report["beside"].values())) == 4
    assert imported(traces, tmp_path / "words")[0] == 0
    said = capsys.readouterr().out
    assert (
        "set aside: episodes of an evaluation (1)" in said
        and "2 sequences only in the files of the rollout side" in said
    )


def test_a_stream_that_grows_gives_its_whole_lines(traces: Path, tmp_path: Path) -> None:
    data = (traces / CHUNK).read_bytes()
    ends = [place for place, byte in enumerate(data) if byte == ord("\n")]
    for cut in (ends[0], ends[0] + 1, ends[0] + 500, ends[1] + 1):
        (traces / CHUNK).write_bytes(data[:cut])
        code, rows = imported(traces, tmp_path / f"run{cut}")
        whole = 2 * (1 + (cut > ends[0]) * 0 + (cut > ends[1]))  # a line without its end that is whole JSON is a row
        assert code == 0 and len(rows) == 4 + whole, cut


def test_a_stream_alone_keeps_steps_versions_and_groups(traces: Path, tmp_path: Path) -> None:
    code, rows = imported(traces / CHUNK, tmp_path / "run")
    assert code == 0 and [row["step"] for row in rows] == [2, 2, 2, 2, 3, 3]
    assert {row["group_id"] for row in rows} == {"g2", "g3"} and {row["current_logprobs"] for row in rows} == {None}
    (traces / "stream.jsonl").write_bytes((traces / CHUNK).read_bytes())  # the layout of the first days
    _, first = imported(traces / "stream.jsonl", tmp_path / "first")
    assert [row["token_ids"] for row in first] == [row["token_ids"] for row in rows]


def test_annotations_alone_are_no_rows_and_say_what_to_import(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(traces / TRAINER, tmp_path / "run")[0] == 3
    assert "import the folder that holds what they annotate, too" in " ".join(capsys.readouterr().err.split())


def test_a_chunk_that_is_being_sealed_is_read_once(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (traces / "stream" / "00001.jsonl.zst").write_bytes(b"half a frame")
    assert imported(traces, tmp_path / "run", "--json")[0] == 0
    report = json.loads(capsys.readouterr().out)
    assert report["sequences"] == 10 and report["passed_over"] == [
        "stream/00001.jsonl.zst (files beside it hold all of it)"
    ]


def test_annotations_of_other_traces_and_of_unknown_values_are_counted(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = (traces / TRAINER).read_text().splitlines()
    known = json.loads(first)
    known["branches"][0]["is_masked"] = [0] * 3
    stray = {"version": 1, "trace_id": "nobody", "info": {}, "branches": []}
    (traces / TRAINER).write_text("\n".join([json.dumps(known), *others[:-1], json.dumps(stray)]) + "\n")
    assert imported(traces, tmp_path / "run", "--json")[0] == 0
    report = json.loads(capsys.readouterr().out)
    assert report["one_side_only"] == [{"rollout": 2, "train": 1}]
    assert report["set_aside"]["annotations 'is_masked' of branches, which no column takes"] == 1


def test_annotations_are_folded_in_their_order_and_the_newest_wins(traces: Path, tmp_path: Path) -> None:
    trace = EXPECTED[0]["trace"]
    later = {"trace_id": trace, "info": {"ship": {"step": 9}, "note": "again"}, "branches": []}
    with (traces / ORCH).open("a") as file:
        file.write(json.dumps(later) + "\n")
    _, rows = imported(traces, tmp_path / "run")
    (row, _) = (row for row in rows if trace in row["sequence_id"])
    info = json.loads(row["extra"])["info"]
    assert row["step"] == 9 and row["trainer_version"] == 8
    assert info["ship"] == {"step": 9, "time": 0.0} and info["note"] == "again" and info["effective"] is True


@pytest.mark.parametrize(
    ("lie", "field"),
    [
        ({"branches": [{"index": 0, "trainer_logprobs": [-0.5] * 99}]}, "is no list of at most 19 values"),
        ({"branches": [{"index": 0, "trainer_logprobs": "x"}]}, "is no list of at most"),
        ({"branches": [{"index": 0, "trainer_logprobs": ["x"] * 19}]}, "wanted one number per token"),
        ({"branches": [7]}, "not of the form"),
        ({"info": 7, "branches": [{"index": []}]}, "not of the form"),
    ],
)
def test_annotations_that_do_not_fit_reject_their_trace_and_no_other(
    lie: dict[str, Any], field: str, traces: Path, tmp_path: Path
) -> None:
    with (traces / "annotations" / "zeal.jsonl").open("w") as file:
        file.write(json.dumps({"trace_id": EXPECTED[0]["trace"], **lie}) + "\n")
    code, rows = imported(traces, tmp_path / "run")
    assert code == 1 and {EXPECTED[0]["trace"]} >= {
        wanted["trace"] for wanted in EXPECTED if not any(wanted["trace"] in row["sequence_id"] for row in rows)
    }
    assert all(field in each["reason"] for each in rejected(tmp_path / "run"))


@pytest.mark.parametrize(
    ("victim", "chunk", "others"), [(2, "00000.jsonl.zst", slice(4, 10)), (4, "00001.jsonl", slice(4))]
)
def test_a_chunk_whose_decoder_is_ended_costs_no_row_of_another_one(
    victim: int, chunk: str, others: slice, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, last = verifiers._path, EXPECTED[victim]

    def ends(nodes: list[Any], leaf: int) -> list[int]:
        return os._exit(9) if nodes[0]["token_ids"] == last["ids"][:4] else path(nodes, leaf)

    monkeypatch.setattr(verifiers, "_path", ends)
    code, rows = imported(traces, tmp_path / "run")
    assert code == 1 and [each["file"] for each in rejected(tmp_path / "run")] == [f"stream/{chunk}"]
    ids = [row["sequence_id"] for row in _in_order(rows)]
    kept = [row for row in _in_order(rows) if any(each["trace"] in row["sequence_id"] for each in EXPECTED[others])]
    assert len(set(ids)) == len(ids) and len(kept) == len(EXPECTED[others])
    for row, wanted in zip(kept, EXPECTED[others], strict=True):
        assert (row["current_logprobs"] is None) == (wanted["annotated"] is None)


def test_a_line_of_annotations_that_names_nothing_is_rejected_by_its_number(traces: Path, tmp_path: Path) -> None:
    lines = (traces / ORCH).read_text().splitlines()
    (traces / ORCH).write_text("\n".join([lines[0], '{"trace_id": 5}', "{", *lines[1:]]) + "\n")
    code, rows = imported(traces, tmp_path / "run")
    assert code == 1 and len(rows) == 10
    assert [(each["row"], each["reason"][:20]) for each in rejected(tmp_path / "run")] == [
        (1, "it has no trace_id; "), (2, "the line is no JSON ")]  # fmt: skip


def test_a_folder_of_annotations_of_something_else_is_read_as_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dump" / "annotations").mkdir(parents=True)
    row = {"step": 4, "rollout_logprobs": [-0.5], "old_logprobs": [-0.25]}
    (tmp_path / "dump" / "annotations" / "rows.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "dump" / "annotations" / "people.jsonl").write_text('{"name": "x"}\n')
    code, rows = imported(tmp_path / "dump", tmp_path / "run", "--json")
    assert code == 0 and [row["step"] for row in rows] == [4]
    first = json.loads(capsys.readouterr().out)
    assert imported(tmp_path / "dump" / "annotations", tmp_path / "inside", "--json")[0] == 0
    second = json.loads(capsys.readouterr().out)
    assert first["passed_over"] == ["annotations/people.jsonl"] and second["passed_over"] == ["people.jsonl"]
    assert first["one_side_only"] == second["one_side_only"] == [{}], "no annotations, no sides"
