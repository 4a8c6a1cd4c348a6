"""Every row of a dump is in the run or in the list of rejected rows, and an import that does not finish leaves no run."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.imported import DUMPS, imported, rejected
from support.sizes import FULL
from support.waiting import PATIENCE

from ratioscope.app.cli import main
from ratioscope.app.cli.import_folder import new_run
from ratioscope.ingest.importers.reading import read
from ratioscope.ingest.importers.row import Row
from ratioscope.ingest.importers.samples import RecordedRow, Rejected, sample
from ratioscope.ingest.importers.source_files import Options, opened
from ratioscope.ingest.importers.steps import STEPS
from ratioscope.ingest.importers.table import FileKind, column, columns

ROWS: list[dict[str, Any]] = [
    {"step": step, "sample_id": f"s{step}-{n}", "lp": [-0.5, -0.25 * n, -1.0], "train": [-0.5, -0.5, -1.0],
     "token_ids": [1, 2, n], "mask": [True, n > 0, True], "reward": float(n)}
    for step in (1, 2) for n in range(3)
]  # fmt: skip
MAPS = ("--map", "rollout_logprobs=lp", "--map", "old_logprobs=train")


def _written(folder: Path, kind: str) -> Path:
    """The rows in a table of this kind."""
    path = folder / f"rows.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif kind == "json":
        path.write_text(json.dumps(ROWS))
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=2)
    elif kind == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(ROWS[0]))
            writer.writeheader()
            writer.writerows({k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()} for row in ROWS)
    else:
        arrays: dict[str, Any] = {name: np.array([row[name] for row in ROWS]) for name in ROWS[0]}
        if kind == "safetensors":
            from safetensors.numpy import save_file

            save_file({name: array for name, array in arrays.items() if name != "sample_id"}, path)
        else:
            np.savez_compressed(path, **arrays)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "csv", "npz", "safetensors"])
def test_a_table_of_any_kind_becomes_the_same_run(tmp_path: Path, kind: str) -> None:
    code, rows = imported(_written(tmp_path, kind), tmp_path / "run", *MAPS)
    assert code == 0 and len(rows) == len(ROWS)
    for row, wanted in zip(rows, ROWS, strict=True):
        assert row["step"] == wanted["step"] and row["rollout_logprobs"] == wanted["lp"]
        assert row["old_logprobs"] == wanted["train"] and row["token_ids"] == wanted["token_ids"]
        assert row["mask"] == wanted["mask"] and row["reward"] == wanted["reward"]


LISTS = st.lists(st.floats(-20, 0, width=32) | st.sampled_from([np.nan, -np.inf]), min_size=0, max_size=5)
BAD: list[Any] = ["text", {"a": 1}, [[1.0]], ["x"], 3.5, [10**400], True]
LINES = st.fixed_dictionaries(
    {"step": st.integers(0, 3)},
    optional={
        "rollout_logprobs": LISTS | st.sampled_from(BAD), "old_logprobs": LISTS | st.sampled_from(BAD), "mask": LISTS,
        "token_ids": st.lists(st.integers(-5, 2**40), max_size=5) | st.sampled_from(BAD),
        "reward": st.none() | st.floats() | st.text(), "unknown": st.text(),
        "sequence_id": st.sampled_from(["a", "b", "c"]) | st.none(),
    },
)  # fmt: skip


@settings(max_examples=10)
@given(lines=st.lists(LINES | st.sampled_from(["", "{", "[1]", "\x00", "null"]), min_size=1, max_size=12))
def test_every_line_is_in_the_run_or_in_the_list_of_rejected_rows(lines: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, run = Path(folder, "rows.jsonl"), Path(folder, "run")
        sound = {"step": 3, "rollout_logprobs": [-1.0], "sequence_id": "sound"}
        texts = [line if isinstance(line, str) else json.dumps(line) for line in [sound, *lines]]
        source.write_text("\n".join(texts) + "\n")
        code, rows = imported(source, run)
        listed = rejected(run)
        assert len(rows) + len(listed) == sum(bool(text.strip()) for text in texts) and code == int(bool(listed))
        assert all(one["reason"] and one["file"].endswith("rows.jsonl") and one["row"] is not None for one in listed)
        assert len({(row["step"], row["sequence_id"]) for row in rows}) == len(rows)
        assert main(["verify", str(run)]) == 0


@pytest.mark.parametrize("bad", ["text", 3.5, True, "-2.5"])
def test_rows_without_lists_do_not_make_a_sound_row_a_row_of_one_token(bad: Any, tmp_path: Path) -> None:
    sound = {"rollout_logprobs": [-1.0], "old_logprobs": [-1.0], "sequence_id": "sound"}
    lines = [sound, *({"rollout_logprobs": bad, "old_logprobs": bad, "sequence_id": name} for name in "ab")]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    code, rows = imported(tmp_path / "rows.jsonl", tmp_path / "run")
    assert code == 1 and [row["sequence_id"] for row in rows] == ["sound"]
    assert [(one["row"], one["field"]) for one in rejected(tmp_path / "run")] == [
        (n, "rollout_logprobs") for n in (1, 2)
    ]


def test_a_cut_off_line_is_named_as_such(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps({"rollout_logprobs": [-1.0]}) + '\n{"rollout_logprobs": [-1.')
    assert imported(source, tmp_path / "run")[0] == 1
    assert "it was cut off" in rejected(tmp_path / "run")[0]["reason"]


def test_strict_stops_at_the_first_row_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.jsonl").write_text('{"rollout_logprobs": [-1]}\n{"rollout_logprobs": "x"}\n')
    assert main(["import", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "run"), "--strict"]) == 3
    assert "row 1, rollout_logprobs" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_an_import_never_writes_into_a_run_that_exists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(DUMPS / "nemo_rl", tmp_path / "run")
    before = sorted(path.name for path in (tmp_path / "run").rglob("*"))
    assert main(["import", str(DUMPS / "slime"), "-o", str(tmp_path / "run")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == before


ENDED = [
    (signal.SIGTERM, "commits/*"),
    (signal.SIGKILL, "tokens/*/*"),
    (signal.SIGINT, "tokens/*/*"),
    (signal.SIGKILL, ""),
]


@pytest.mark.parametrize(("end", "begun"), ENDED if FULL else ENDED[:2])
def test_an_import_that_is_ended_leaves_no_run_and_the_next_one_works(
    tmp_path: Path, end: signal.Signals, begun: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe_like = tmp_path / "rows.jsonl"
    line = json.dumps({"step": 1, "rollout_logprobs": [-1.0] * 1000}) + "\n"
    pipe_like.write_text(line * 8_000)
    run = tmp_path / "run"
    command = [sys.executable, "-m", "ratioscope", "import", str(pipe_like), "-o", str(run)]
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE
    while not list(tmp_path.glob(f".run.importing/{begun}")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(job.pid, end)
    assert job.wait(PATIENCE) != 0 and not run.exists()
    assert (tmp_path / ".run.importing").exists() == (end == signal.SIGKILL)
    pipe_like.write_text(line)
    capsys.readouterr()
    code, rows = imported(pipe_like, run)
    assert code == 0 and len(rows) == 1 and sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl", "run"]
    assert ("was interrupted" in capsys.readouterr().err) == (end == signal.SIGKILL)


def test_two_imports_into_one_run_do_not_disturb_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text('{"rollout_logprobs": [-1]}\n')
    with new_run(tmp_path / "run") as staged:
        (staged / "kept").touch()
        assert main(["import", str(source), "-o", str(tmp_path / "run")]) == 2
        assert "another import writes" in capsys.readouterr().err
        assert (staged / "kept").exists()
    assert (tmp_path / "run/kept").exists()


def test_a_link_below_the_source_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "rows.jsonl").write_text('{"rollout_logprobs": [-1]}\n')
    (tmp_path / "secret.jsonl").write_text('{"rollout_logprobs": [-2]}\n')
    (tmp_path / "dumps" / "other.jsonl").symlink_to(tmp_path / "secret.jsonl")
    code, rows = imported(tmp_path / "dumps", tmp_path / "run")
    assert code == 0 and [row["rollout_logprobs"] for row in rows] == [[-1]]


@pytest.mark.parametrize(
    ("line", "row", "wanted"),
    [
        ("x = a | span(m)", {"a": [1, 2, 3, 4], "m": [0, 1, 0, 1]}, [2, 3, 4]),
        ("x = a | before(m)", {"a": [1, 2, 3], "m": [0, 0, 1]}, [1, 2]),
        ("x = a | where(m)", {"a": [0, 2, 3], "m": [0, 1, 1]}, [2, 3]),
        ("x = a | last(n)", {"a": [1, 2, 3], "n": 2}, [2, 3]),
        ("x = a | but_last(n)", {"a": [1, 2, 3], "n": "1"}, [1, 2]),
        ("x = a | first(n)", {"a": [1, 2, 3], "n": [1, 0, 1]}, [1, 2]),
        ("x = a | spread_over(m)", {"a": [1, 2], "m": [1, 0, 1]}, [1, np.nan, 2]),
        ("x = a | shift(1)", {"a": [1, 2, 3]}, [np.nan, 1, 2]),
        ("x = a | shift(-1)", {"a": [1, 2, 3]}, [2, 3, np.nan]),
        ("x = a | padded(0)", {"a": [1, 0, 2, 0, 0]}, [1, 0, 2]),
        ("x = a | run_lengths", {"a": [[5, 2], [6, 1]]}, [5, 5, 6]),
        ("x = b or a | pick(1)", {"a": [[0, 7], [0, 8]]}, [7, 8]),
    ],
)
def test_each_step_of_a_table_does_what_its_line_says(line: str, row: dict[str, Any], wanted: list[float]) -> None:
    made = column(line)
    value = next(v for place in made.places if (v := Row(row, row, {}).at(place)) is not None)
    for step in made.steps:
        value = STEPS[step.name](value, Row(row, row, {}), *step.arguments)
    np.testing.assert_array_equal(np.asarray(value, float), wanted)


@given(mask=st.lists(st.booleans(), min_size=1, max_size=30))
def test_spreading_compact_values_and_taking_them_back_changes_nothing(mask: list[bool]) -> None:
    row = Row({"m": mask}, None, {})
    values = np.arange(sum(mask), dtype=float)
    spread = STEPS["spread_over"](values, row, "m")
    assert len(spread) == len(mask) and STEPS["where"](spread, row, "m").tolist() == values.tolist()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("rollout_logprobs", "is no line of a table"),
        ("rollout_logprobs=a|system(x)", "there is no step 'system(x)'"),
        ("logprobs=a", "there is no column logprobs"),
        ("rollout_logprobs=__import__('os')", "is no line of a table"),
    ],
)
def test_a_line_that_is_none_is_refused_before_anything_is_read(
    option: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "nowhere", "-o", "nowhere-run", "--map", option]) == 2
    assert said in capsys.readouterr().err


def test_a_named_format_takes_lines_of_the_user_too(tmp_path: Path) -> None:
    source = tmp_path / "own-name.jsonl"
    source.write_bytes((DUMPS / "nemo_rl" / "train_data_step1.jsonl").read_bytes())
    code, rows = imported(
        source, tmp_path / "run", "--from", "nemo-rl", "--map", "group_ids=content|item(0)", "--step", "4"
    )
    assert code == 0 and [row["group_id"] for row in rows] == ["question a", "question a", "question b", "question b"]
    assert rows[0]["step"] == 4 and rows[0]["old_logprobs"]


HOSTILE: dict[str, tuple[str, list[Any], int]] = {
    "steps": ("rows.jsonl", [{"step": n, "rollout_logprobs": [-1]} for n in (-1, 2**70, 1.5, "x", [1])], 5),
    "whole numbers": ("rows.jsonl", [{name: number, "rollout_logprobs": [-1]} for name, number in (
        ("minibatch", 2**40), ("turns", [1e9]))], 2),
    "traces": ("traces.jsonl", [{"traces": [{"nodes": nodes}]} for nodes in (
        [{"parent": [1], "token_ids": [1], "mask": [True], "logprobs": [-1]}],
        [{"token_ids": 5, "mask": 7, "logprobs": 3}], [])], 3),
    "a loop of parents": ("traces.jsonl", [{"traces": [{"nodes": [
        {"parent": 1, "token_ids": [1], "mask": [True], "logprobs": [-1]}, {"parent": 0}]}]}], 1),
    "choices": ("log.jsonl", [{"choices": [5, None, {"token_ids": [1], "logprobs": {"content": [{"logprob": "x"}]}}]},
        {"choices": []}], 4),
}  # fmt: skip


@pytest.mark.parametrize("trick", HOSTILE)
def test_a_line_of_another_form_is_rejected_and_the_others_are_imported(tmp_path: Path, trick: str) -> None:
    name, lines, bad = HOSTILE[trick]
    known: dict[str, dict[str, Any]] = {
        "rows.jsonl": {"rollout_logprobs": [-1]},
        "traces.jsonl": {"traces": [{"nodes": [{"token_ids": [1], "mask": [True], "logprobs": [-1]}]}]},
        "log.jsonl": {"choices": [{"token_ids": [1], "logprobs": {"content": [{"logprob": -1}]}}]},
    }
    (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in [*lines, known[name]]))
    code, rows = imported(tmp_path / name, tmp_path / "run")
    assert (
        code == 1 and len(rows) == 1 and rows[0]["rollout_logprobs"] == [-1] and len(rejected(tmp_path / "run")) == bad
    )


@pytest.mark.parametrize("offsets", [[-8, 8], [0, 99], [8, 0], ["0", 8], [0.0, 8.0]])
def test_a_safetensors_header_that_points_elsewhere_is_refused(tmp_path: Path, offsets: list[Any]) -> None:
    header = json.dumps({"rollout_logprobs": {"dtype": "F32", "shape": [1, 2], "data_offsets": offsets}}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    assert imported(tmp_path / "a.safetensors", tmp_path / "run")[0] == 3


def test_a_file_that_decodes_to_too_much_is_refused_before_it_is_decoded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez_compressed(tmp_path / "a.npz", rollout_logprobs=np.zeros((1000, 30_000), np.float32))
    pq.write_table(pa.table({"rollout_logprobs": [[0.0] * 100_000] * 100}), tmp_path / "a.parquet")
    for name in ("a.npz", "a.parquet"):
        assert (tmp_path / name).stat().st_size < 1 << 19
        assert imported(tmp_path / name, tmp_path / "run", "--most-memory", "0.05")[0] == 3
        assert "decodes to" in capsys.readouterr().err


def test_a_message_of_a_role_is_found_in_a_conversation() -> None:
    part = FileKind("", "", "json lines", columns("prompt_texts = chat | role(user)\nrollout_logprobs = lp"))
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    found = sample(part, Row({"chat": chat, "lp": [-1.0]}, None, {"row": 0}), "f")
    assert isinstance(found, RecordedRow) and found.values["prompt_texts"] == "c"
    assert isinstance(sample(part, Row({"chat": chat}, None, {"row": 0}), "f"), Rejected)


def test_memory_does_not_grow_with_the_number_of_rows(tmp_path: Path) -> None:
    """Rows are read one after the other: only the list of files grows with a source."""
    line = json.dumps({"step": 1, "rollout_logprobs": [-1.0] * 400, "old_logprobs": [-1.0] * 400}) + "\n"
    peaks = []
    for rows in (50, 1_000):
        (tmp_path / "rows.jsonl").write_text(line * rows)
        options = Options()
        reading = opened(tmp_path / "rows.jsonl", options)
        tracemalloc.start()
        try:
            assert sum(isinstance(one, RecordedRow) for one in read(reading, options)) == rows
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + 100_000 < len(line) * 1_000


def test_an_import_shows_its_bytes_and_its_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.jsonl").write_text('{"rollout_logprobs": [-1]}\n' * 200)
    options, told = Options(), list[int]()
    reading = opened(tmp_path / "rows.jsonl", options)
    assert len(list(read(reading, options, told.append))) == 200
    assert told == sorted(told) and len(told) == 4 and 0 < told[-1] <= reading.size
    assert main(["import", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "run")]) == 0
    assert re.search(r"200 tokens, [\d.]+ [KM]?B/s", capsys.readouterr().out)


def test_padding_among_the_ids_of_a_table_is_not_counted_as_sampled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A padded batch, saved as it is: ids of -100 with log-probs of 0 on both sides would halve the gap."""
    columns = {
        "token_ids": [[5, 6, -100], [7, -100, -100]], "rollout_logprobs": [[-0.5, -1.0, 0.0], [-2.0, 0.0, 0.0]],
        "old_logprobs": [[-0.75, -1.0, 0.0], [-2.5, 0.0, 0.0]], "kept": [[1, 1, 0], [1, 0, 0]],
    }  # fmt: skip
    arrays: dict[str, Any] = {name: np.array(values) for name, values in columns.items()}
    np.savez(tmp_path / "batch.npz", **arrays)
    assert imported(tmp_path / "batch.npz", tmp_path / "none")[0] == 3
    assert "1 of 3 ids are below 0, such as -100: padding" in " ".join(capsys.readouterr().err.split())
    cut = [f"{name}={name}|where(kept)" for name in ("token_ids", "rollout_logprobs", "old_logprobs")]
    code, rows = imported(tmp_path / "batch.npz", tmp_path / "cut", *(each for line in cut for each in ("--map", line)))
    assert code == 0 and [row["token_ids"] for row in rows] == [[5, 6], [7]]
    code, rows = imported(tmp_path / "batch.npz", tmp_path / "masked", "--map", "mask=kept")
    assert code == 0 and [row["mask"] for row in rows] == [[True, True, False], [True, False, False]]
