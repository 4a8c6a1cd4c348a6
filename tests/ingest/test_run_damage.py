"""Damaged, foreign and hostile files are set aside with a named reason; the rest of the run is read."""

import io
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from support import real_runs, run_folders
from support.flipped import flip_a_bit
from support.sizes import FULL, examples

from ratioscope import open_run
from ratioscope.app.upkeep.maintenance import prune
from ratioscope.ingest.maintenance.pruning import Old
from ratioscope.ingest.run import Run
from ratioscope.record import SCHEMA_VERSION

SMALL = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=3, rows=4)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return run_folders.write_run(tmp_path / "run", SMALL, segment_steps=1)


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "Frames"]:
    root = run_folders.write_run(tmp_path_factory.mktemp("whole") / "run", SMALL, segment_steps=1)
    return root, read_everything(open_run(root))


Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]


def read_everything(run: Run) -> Frames:
    records = run.records().collect().sort("step", "sequence_id")
    return run.metrics(), run.sequences().sort("step", "sequence_id"), records


def reason_of(run: Run, path: Path | str) -> str:
    return next(item.reason for item in run.quarantined if item.path == str(path))


def token_file(root: Path) -> str:
    """A token file of the middle step."""
    return sorted(path.relative_to(root).as_posix() for path in root.glob("tokens/*/*.parquet"))[1]


def recommitted(root: Path, path: str, data: bytes, **changes: Any) -> None:
    """The file replaced by other bytes and committed anew, by somebody who means it."""
    (root / path).write_bytes(data)
    writer = run_folders.FakeWriter(root)
    facts = run_folders.token_facts(run_folders.by_step(SMALL)[1])
    writer.say(**{**run_folders.committed(Path(path), data), **facts, **changes})


def test_a_truncated_token_file_is_set_aside_and_its_statistics_stand(root: Path) -> None:
    whole = open_run(root).metrics()
    path = token_file(root)
    (root / path).write_bytes((root / path).read_bytes()[:-100])
    run = open_run(root)
    assert len(run.sequences(run.steps[1])) == 0 and len(run.sequences()) == 8
    assert "bytes, its commit states" in reason_of(run, path)
    assert_frame_equal(run.metrics(), whole)


@pytest.mark.parametrize("rows", ["there", "pruned"])
def test_a_step_is_not_shown_as_whole_where_one_writer_s_part_is_lost(tmp_path: Path, rows: str) -> None:
    root = run_folders.write_run(tmp_path / "run", SMALL, writers=2)
    if rows == "pruned":
        prune(root, Old(keep_steps=1), yes=True)
    segment = sorted(root.glob("statistics/*"))[1]
    segment.write_bytes(segment.read_bytes()[:-9])
    run = open_run(root)
    sequences = run.metrics()["mismatch/sequences"].to_list()
    told = [note for note in run.notes if "are lost" in note]
    if rows == "there":
        assert sequences == [4, 4, 4] and not told
    else:
        assert sequences == [2, 2, 4]
        steps = f"at 2 steps from {run.steps[0]} to {run.steps[1]} are lost"
        assert len(told) == 1 and segment.name.split(".")[0] in told[0] and steps in told[0]


def test_a_lost_segment_is_computed_from_token_rows_and_said_so(root: Path) -> None:
    whole = open_run(root).metrics()
    damaged = sorted(root.glob("statistics/*.parquet"))[1]
    damaged.write_bytes(b"PAR1 not at all")
    run = open_run(root)
    assert_frame_equal(run.metrics(), whole, rel_tol=1e-12)
    assert "bytes, its commit states" in reason_of(run, damaged.relative_to(root)) or run.quarantined
    assert any("computed from token rows, because no statistics of them" in note for note in run.notes)
    damaged.unlink()
    fresh = open_run(root)
    assert_frame_equal(fresh.metrics(), whole, rel_tol=1e-12)
    assert "it is not there" in reason_of(fresh, damaged.relative_to(root))


@examples(40)
@given(st.data())
def test_a_flipped_bit_gives_equal_data_or_a_named_quarantine(
    whole_run: tuple[Path, Frames], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("flip") / "run"
    shutil.copytree(whole_run[0], root)
    clean = whole_run[1]
    victim = data.draw(st.sampled_from(sorted(p.relative_to(root).as_posix() for p in root.rglob("*.parquet"))))
    flip_a_bit(root / victim, data)
    run = open_run(root)
    metrics, sequences, records = read_everything(run)
    assert [item.path for item in run.quarantined] == [victim]
    assert_frame_equal(metrics, clean[0], rel_tol=1e-12)
    assert_frame_equal(sequences, clean[1].filter(pl.col("step").is_in(sequences["step"].unique().to_list())))
    assert_frame_equal(records, clean[2].filter(pl.col("step").is_in(records["step"].unique().to_list())))


@examples(25)
@given(st.data())
def test_a_flipped_bit_without_a_log_is_caught_by_the_page_checksums(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("flip") / "run"
    run_folders.write_run(root, SMALL)
    clean = pl.DataFrame(SMALL)
    shutil.rmtree(root / "commits")
    victim = root / token_file(root)
    content = bytearray(victim.read_bytes())
    pages = pq.ParquetFile(io.BytesIO(bytes(content))).metadata.row_group(0)
    last = pages.column(pages.num_columns - 1)
    place = data.draw(st.integers(4, last.data_page_offset + last.total_compressed_size - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    victim.write_bytes(content)
    run = open_run(root)
    records = run.records().collect().sort("step", "sequence_id")
    steps = records["step"].unique().to_list()
    assert len(steps) == 3 or victim.relative_to(root).as_posix() in {item.path for item in run.quarantined}
    assert_frame_equal(records, clean.filter(pl.col("step").is_in(steps)).sort("step", "sequence_id"))


def test_a_page_header_that_only_polars_stumbles_over_sets_its_file_aside(tmp_path: Path) -> None:
    root = tmp_path / "run"
    run_folders.write_run(root, SMALL)
    shutil.rmtree(root / "commits")
    victim = root / token_file(root)
    whole = victim.read_bytes()
    found = pq.ParquetFile(io.BytesIO(whole)).metadata.row_group(0)
    column = next(found.column(at) for at in range(found.num_columns) if "old_" in found.column(at).path_in_schema)
    aside = 0
    for place in range(column.data_page_offset, column.data_page_offset + 24):
        for bit in (0, 5, 7) if FULL else (place % 8,):
            victim.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
            run = open_run(root)
            rows = run.records().collect()
            assert len(rows) == len(SMALL) or [item.path for item in run.quarantined] == [token_file(root)]
            aside += len(run.quarantined)
    assert aside > (20 if FULL else 6)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cannot be read as Parquet"),
        (b"hello, I am a text file, not a table", "cannot be read as Parquet"),
        (run_folders.parquet_bytes(pa.table({"logp": [0.5], "step": [1]})), r"no column 'attempt'; it has \['logp', 'step'\]"),
        (run_folders.parquet_bytes(SMALL.drop_columns(["rollout_logprobs", "old_logprobs", "current_logprobs"])), "no log-probs"),
        (
            run_folders.parquet_bytes(run_folders.by_step(SMALL)[1].set_column(0, "attempt", pa.array(["a"] * 4))),
            "column 'attempt' holds string; wanted whole numbers",
        ),
        (run_folders.parquet_bytes(run_folders.by_step(SMALL)[0]), r"rows have step \[18\], its commit states 20"),
        (run_folders.parquet_bytes(run_folders.by_step(SMALL)[1].slice(0, 3)), "it has 3 rows, its commit states 4"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_token_file_is_set_aside(root: Path, data: bytes, reason: str) -> None:
    path = token_file(root)
    recommitted(root, path, data)
    run = open_run(root)
    assert len(run.sequences()) == 8
    assert re.search(reason, reason_of(run, path))


def test_a_foreign_file_is_named_and_a_file_being_written_is_not(root: Path) -> None:
    step = (root / token_file(root)).parent
    (step / "part-0.parquet").write_bytes(run_folders.parquet_bytes(pa.table({"logp": [0.5]})))
    (step / "notes.txt").write_text("hello")
    (root / "tokens" / "archive").mkdir()
    (step / ".r00000.0001.parquet.tmp").write_bytes(b"half")
    (root / "tokens" / "_SUCCESS").write_bytes(b"")
    run = open_run(root)
    named = {Path(item.path).name: item.reason for item in run.quarantined}
    assert set(named) == {"part-0.parquet", "notes.txt", "archive"}
    assert "no column 'attempt'; it has ['logp']" in named["part-0.parquet"]
    assert len(run.sequences()) == len(SMALL) and len(run.metrics()) == 3


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "device", "folder link"])
def test_what_is_no_regular_file_is_never_opened(root: Path, tmp_path: Path, kind: str) -> None:
    victim = root / token_file(root)
    if kind == "folder link":
        victim.parent.rename(tmp_path / "elsewhere")
        victim.parent.symlink_to(tmp_path / "elsewhere")
    else:
        victim.rename(tmp_path / "elsewhere.parquet")
        make: dict[str, Callable[[], None]] = {
            "link": lambda: victim.symlink_to(tmp_path / "elsewhere.parquet"),
            "fifo": lambda: os.mkfifo(victim),
            "folder": lambda: victim.mkdir(),
            "device": lambda: victim.symlink_to("/dev/zero"),
        }
        make[kind]()
    run = open_run(root)
    assert len(run.sequences()) == 8 and len(run.metrics()) == 3
    assert any(item.path.startswith(f"tokens/step={20:09d}") for item in run.quarantined)


def test_a_log_that_is_a_pipe_is_never_opened(root: Path) -> None:
    os.mkfifo(root / "commits" / "r00001-host-2-abcdef.jsonl")
    run = open_run(root)
    assert "a named pipe" in reason_of(run, "commits/r00001-host-2-abcdef.jsonl") and len(run.steps) == 3


def bytes_of_rows(rows: int) -> bytes:
    """A small file that claims a great many rows, all alike."""
    step = run_folders.by_step(SMALL)[1].slice(0, 1)
    columns = {
        "attempt": pa.repeat(pa.scalar(0, pa.int32()), rows),
        "step": pa.repeat(pa.scalar(20, pa.int64()), rows),
        "sequence_id": pa.repeat(pa.scalar("a"), rows).dictionary_encode(),
        "rollout_logprobs": pa.nulls(rows, step.schema.field("rollout_logprobs").type),
    }
    return run_folders.parquet_bytes(pa.table(columns))


def test_absurd_row_counts_are_refused_by_the_footer(root: Path) -> None:
    data = bytes_of_rows((1 << 22) + 1)
    assert len(data) < 100_000
    recommitted(root, token_file(root), data, rows=(1 << 22) + 1)
    run = open_run(root)
    assert len(run.sequences()) == 8
    assert "at most 4194304 are read from one file" in reason_of(run, token_file(root))


def test_a_dictionary_that_decodes_to_gigabytes_is_refused(root: Path) -> None:
    rows = 60_000
    text = "x" * 100_000  # 6 GB decoded, a few KB on disk
    table = pa.table(
        {
            "attempt": pa.repeat(pa.scalar(0, pa.int32()), rows),
            "step": pa.repeat(pa.scalar(20, pa.int64()), rows),
            "sequence_id": pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text])),
            "rollout_logprobs": pa.nulls(rows, pa.list_(pa.float32())),
        }
    )
    data = run_folders.parquet_bytes(table)
    assert len(data) < 100_000
    recommitted(root, token_file(root), data, rows=rows)
    run = open_run(root)
    assert len(run.sequences()) == 8
    assert "'sequence_id' decodes to up to 6000000000 bytes" in reason_of(run, token_file(root))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"file": "../outside.parquet"}, "no path of a token file"),
        ({"file": "/etc/passwd"}, "no path of a token file"),
        ({"file": "tokens/step=000000020/../x.parquet"}, "no path of a token file"),
        ({"file": 7}, "wanted a text"),
        ({"step": 21}, "not the step of its folder"),
        ({"step": 10**30}, "wanted a whole number"),
        ({"rows": -1}, "wanted a whole number"),
        ({"rows": True}, "wanted a whole number"),
        ({"schema": SCHEMA_VERSION + 1}, "git pull && pip install ."),
        ({"attempt": "x"}, "wanted a whole number"),
        ({"sha256": None}, "wanted a text"),
        ({"policies": {"rollout": 1}}, None),
    ],
)
def test_a_commit_that_cannot_be_is_refused(root: Path, changes: dict[str, Any], reason: str | None) -> None:
    path = token_file(root)
    recommitted(root, path, (root / path).read_bytes(), **changes)
    run = open_run(root)
    assert len(run.metrics()) >= 2
    assert run.sequences() is not None
    if reason is not None:
        assert any(reason in item.reason for item in run.quarantined)


def test_half_surrogates_and_control_characters_reach_no_table_unread(root: Path) -> None:
    (root / "commits" / "r00001-\udce4-1.jsonl").write_bytes(b"")
    shutil.copy(root / token_file(root), root / "tokens" / "step=000000020" / "r\udce4.0001.parquet")
    writer = run_folders.FakeWriter(root, "r00001-host-2-abcdef", rank=1)
    writer.open().event("weight_sync\ud800", 18, "\x1b[31m\ud800")
    writer.drop(18, 1, 2, "queue\udfff")
    run = open_run(root)
    assert "\\ud800" in run.events["event"][0] and len(run.drops) == 1
    assert len(run.writers) == 2 and [item.reason for item in run.quarantined] == ["its name is no text"] * 2
    assert all(item.path.encode() for item in run.quarantined) and len(run.sequences()) == len(SMALL)


def test_columns_that_no_record_has_are_left_out_and_noted(root: Path) -> None:
    path = token_file(root)
    rows = run_folders.by_step(SMALL)[1].drop_columns(["entropy", "reward"]).append_column("mine", pa.array([1] * 4))
    recommitted(root, path, run_folders.parquet_bytes(rows))
    run = open_run(root)
    records = run.records().collect()
    assert "mine" not in records.columns and records.filter(step=20)["reward"].null_count() == 4
    assert records["reward"].null_count() == 4
    assert any("mine" in note for note in run.notes) and not run.quarantined


def test_wider_types_of_another_writer_are_read(root: Path) -> None:
    rows = run_folders.by_step(SMALL)[1]
    frame = pl.DataFrame(rows)
    path = token_file(root)
    buffer = io.BytesIO()
    frame.with_columns(pl.col("step").cast(pl.Int32), pl.col("old_logprobs").cast(pl.List(pl.Float64))).write_parquet(
        buffer
    )
    before = open_run(root)
    expected = before.records().collect().sort("step", "sequence_id"), before.sequences(20)
    recommitted(root, path, buffer.getvalue())
    run = open_run(root)
    assert_frame_equal(run.records().collect().sort("step", "sequence_id"), expected[0])
    assert_frame_equal(run.sequences(20), expected[1])


def test_a_file_that_was_mended_is_read_again(root: Path) -> None:
    path = root / token_file(root)
    content = path.read_bytes()
    path.unlink()
    run = open_run(root)
    assert len(run.sequences()) == 8 and len(run.quarantined) == 1
    path.write_bytes(content)
    assert run.refresh()
    assert len(run.sequences()) == 12 and not run.quarantined


def test_a_file_that_is_committed_anew_is_read_again(root: Path) -> None:
    path = token_file(root)
    content = bytearray((root / path).read_bytes())
    footer = content.rindex(b"ratioscope") if b"ratioscope" in content else content.rindex(b"parquet-cpp-arrow")
    content[footer] ^= 1  # who wrote it: no number changes
    (root / path).write_bytes(content)
    run = open_run(root)
    assert len(run.sequences()) == 8 and "bytes have changed" in reason_of(run, path)
    recommitted(root, path, bytes(content))
    assert run.refresh()
    assert len(run.sequences()) == 12 and not run.quarantined


def test_lists_of_unequal_length_within_a_row_are_shown_as_unknown(root: Path) -> None:
    rows = run_folders.by_step(SMALL)[1]
    first, *others = rows["old_logprobs"].to_pylist()
    lists = [list(first or ())[:-1], *others]
    path = token_file(root)
    broken = run_folders.replaced(rows, "old_logprobs", pa.array(lists, pa.list_(pa.float32())))
    recommitted(root, path, run_folders.parquet_bytes(broken))
    run = open_run(root)
    sequence = run.sequence(20, rows["sequence_id"][0].as_py())
    assert sequence["old_logprob"].null_count() == len(sequence) and sequence["rollout_logprob"].null_count() == 0
    table = run.sequences(20)
    assert table["mismatch/log_ratio_sum"].null_count() == 1 and table["total/log_ratio_sum"].null_count() == 0
