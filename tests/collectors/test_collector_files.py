"""What the collector leaves on disk: whole files, commits that are true, exact statistics, one run for many writers."""

import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars
import polars.testing
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.broken_disk import files_of_at_most
from support.written_run import commit_lines, token_rows

from ratioscope import Collector, open_run
from ratioscope.app.upkeep.maintenance import compact
from ratioscope.collectors.writing import durable_file, run_file, run_files, step_statistics
from ratioscope.errors import SourceError
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.loops import Loops
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.merging import merge
from ratioscope.record import SCHEMA_VERSION, arrow_schema


def logprobs(step: int, rows: int = 4, tokens: int = 6) -> dict[str, Any]:
    """Log-probs of three policies, a little apart."""
    random = np.random.default_rng(step)
    rollout = -random.exponential(size=(rows, tokens)).astype(np.float32)
    near = {name: rollout + random.normal(0, 0.1, rollout.shape).astype(np.float32) for name in ("old", "current")}
    return {"rollout_logprobs": rollout, **{f"{name}_logprobs": values for name, values in near.items()}}


def segments(run: Path) -> list[pa.Table]:
    return [pq.ParquetFile(file).read() for file in sorted((run / "statistics").glob("[!.]*"))]


def steps_of(table: pa.Table) -> list[Any]:
    return list(np.unique(np.asarray(table["step"])))


def same(one: pa.Table, other: pa.Table) -> bool:
    """Equal tables; the rows of a statistics table have no order of their own."""
    order: Any = [(name, "ascending") for name in ("attempt", "step", "gap", "slice", "key")]
    return bool(one.sort_by(order).equals(other.sort_by(order)))


def test_files_are_as_the_commits_say(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Collector(run) as collector:
        collector.log(step=1, **logprobs(1), minibatch=0)
        collector.log(step=2, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
        collector.event("weight_sync", 2, "version 3")
    commits = commit_lines(run, "commit")
    named = {commit["file"] for commit in commits}
    assert named == {str(file.relative_to(run)) for file in run.glob("[ts]*/**/*") if file.is_file()}
    for commit in {commit["file"]: commit for commit in commits}.values():  # a segment's last commit counts
        data = (run / commit["file"]).read_bytes()
        assert (commit["bytes"], commit["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    first, second = (commit for commit in commits if commit["file"].startswith("tokens"))
    assert first["file"].startswith("tokens/step=000000001/")
    assert (first["step"], first["rows"], first["tokens"], first["schema"]) == (1, 4, 24, SCHEMA_VERSION)
    assert (first["policies"], first["gaps"]) == (["rollout", "old", "current"], ["mismatch", "total", "drift"])
    assert (second["policies"], second["gaps"]) == (["rollout", "old"], ["mismatch"])
    assert [line["event"] for line in commit_lines(run, "event")] == ["first_rows", "weight_sync"]
    (close,) = commit_lines(run, "close")
    assert (close["offered"], close["written"], close["dropped"]) == (5, 5, 0)


def test_statistics_are_compressed_by_what_begins_a_column_fast(tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **logprobs(1))
    (file,) = (tmp_path / "run" / "statistics").glob("*")
    metadata = pq.ParquetFile(file).metadata
    kinds = {metadata.row_group(0).column(index).compression for index in range(metadata.num_columns)}
    assert kinds == {"LZ4"}


def test_token_files_keep_to_the_format(tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **logprobs(1), token_ids=np.zeros((4, 6), int), token_texts=[["a"] * 6] * 4)
    (file,) = (tmp_path / "run" / "tokens").glob("*/*")
    parquet = pq.ParquetFile(file)
    assert parquet.schema_arrow.equals(arrow_schema())
    columns = [parquet.metadata.row_group(0).column(index) for index in range(parquet.metadata.num_columns)]
    assert {column.compression for column in columns} == {"ZSTD", "UNCOMPRESSED"}
    zstd = {column.path_in_schema.split(".")[0] for column in columns if column.compression == "ZSTD"}
    assert zstd == {*logprobs(1), "token_ids", "token_texts"}  # the others hold nothing, or some bytes
    assert not any(column.has_dictionary_page for column in columns if column.compression == "UNCOMPRESSED")
    for column in columns:
        assert ("BYTE_STREAM_SPLIT" in column.encodings) == (column.physical_type in ("FLOAT", "DOUBLE"))
    damaged = bytearray(file.read_bytes())
    place = next(c for c in columns if c.path_in_schema.startswith("rollout_logprobs"))
    damaged[place.data_page_offset + place.total_compressed_size - 3] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(OSError, match="(?i)checksum|crc"):
        token_rows(tmp_path / "run")


def test_nobody_else_may_read_a_run(tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **logprobs(1))
    for path in (tmp_path / "run", *(tmp_path / "run").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_statistics_are_those_of_all_tokens(tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        for step in range(1, 4):
            for part in range(3):
                collector.log(step=step, minibatch=0, **logprobs(10 * step + part), rollout_versions=step - part)
    assert same(pa.concat_tables(segments(tmp_path / "run")), statistics(token_rows(tmp_path / "run")))


@pytest.mark.parametrize("flushed", [False, True], ids=["at once", "flushed in between"])
def test_the_two_sides_of_a_gap_may_come_in_two_calls(tmp_path: Path, flushed: bool) -> None:
    values = logprobs(1)
    current = values.pop("current_logprobs")
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **values)
        if flushed:
            collector.flush()
        for minibatch in range(2):
            collector.log(step=1, minibatch=minibatch, current_logprobs=current + minibatch)
    rows = token_rows(tmp_path / "run")
    assert (rows["current_logprobs"].null_count, rows["rollout_logprobs"].null_count) == (4, 8)
    found, wanted = pa.concat_tables(segments(tmp_path / "run")), statistics(joined(rows))
    assert set(found["gap"].to_pylist()) == {"mismatch", "total", "drift"}
    polars.testing.assert_frame_equal(merged(found), merged(wanted))


def merged(table: pa.Table) -> polars.DataFrame:
    """Statistics of whole steps, whatever parts they came in."""
    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)
    keys = ("step", "gap", "slice", "key")
    return merge(frame, keys).sort(keys)


def test_segments_hold_so_many_steps_and_are_then_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratioscope.layout.SEGMENT_STEPS", 8)
    with Collector(tmp_path / "run") as collector:
        for step in range(11):
            collector.log(step=step, **logprobs(step, 1, 2))
        assert collector.flush(None)
    steps = [steps_of(table) for table in segments(tmp_path / "run")]
    assert steps == [list(range(8)), [8, 9, 10]]
    last = [commit for commit in commit_lines(tmp_path / "run", "commit") if commit["file"].startswith("statistics")][
        -1
    ]
    assert last["steps"] == steps[1]


@pytest.mark.parametrize("failing", [None, 3, 4], ids=["all measured", "second part not", "third part not"])
def test_a_step_that_comes_in_parts_where_a_segment_is_full_has_whole_statistics(
    failing: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ratioscope.layout.SEGMENT_STEPS", 2)
    measured = step_statistics.part_statistics
    calls = iter(range(1, 100))

    def measuring(rows: pa.Table, earlier: pa.Table | None, loops: Loops) -> pa.Table:
        if next(calls) == failing:
            raise MemoryError
        return measured(rows, earlier, loops)

    monkeypatch.setattr("ratioscope.collectors.writing.measured_steps.part_statistics", measuring)
    with Collector(tmp_path / "run") as collector:
        for step, part in ((0, 0), (1, 1), (1, 2), (1, 3), (2, 4)):
            collector.log(
                step=step, **logprobs(part, rows=part + 1), sequence_ids=[f"{part}-{n}" for n in range(part + 1)]
            )
            assert collector.flush(None)
    run = open_run(tmp_path / "run")
    assert run.metrics()["mismatch/sequences"].to_list() == [1, 9, 5]
    if failing != 4:  # measured by the next part, which has a next one only where it is not the last
        assert sorted(steps_of(table) for table in segments(tmp_path / "run")) == [[0, 1], [2]]


def test_a_part_of_a_step_that_cannot_be_put_beside_the_others_leaves_no_half_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(tables: Any, **options: Any) -> pa.Table:
        raise MemoryError

    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **logprobs(1))
        assert collector.flush(None)
        with monkeypatch.context() as patch:
            patch.setattr(pa, "concat_tables", failing)
            collector.log(step=1, **logprobs(2), sequence_ids=["a", "b", "c", "d"])
            collector.flush(None)
    assert open_run(tmp_path / "run").metrics()["mismatch/sequences"].to_list() == [8]


@pytest.mark.parametrize("merged", [False, True], ids=["as written", "compacted"])
def test_statistics_that_wait_in_memory_when_the_process_dies_are_not_missed_in_a_step_of_several_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merged: bool
) -> None:
    def failing(root: Path, file: Path, data: bytes) -> None:
        if file.parent.name == "statistics":
            raise OSError(errno.EIO, "Input/output error")
        durable_file.write_whole(root, file, data)

    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **logprobs(1))
        assert collector.flush(None)
        with monkeypatch.context() as patch:
            patch.setattr("ratioscope.collectors.writing.run_files.write_whole", failing)
            collector.log(step=1, **logprobs(2), sequence_ids=["a", "b", "c", "d"])
            assert not collector.flush(None)
            shutil.copytree(tmp_path / "run", tmp_path / "died")
    if merged:
        assert compact(tmp_path / "died", writers_ended=True).written
    run = open_run(tmp_path / "died")
    assert run.metrics()["mismatch/sequences"].to_list() == [8] and "computed from token rows" in run.notes[-1]
    run = open_run(tmp_path / "run")  # it lived, and wrote them when it closed
    assert run.metrics()["mismatch/sequences"].to_list() == [8] and not run.notes


def test_a_name_that_cannot_be_looked_up_is_not_taken_for_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looping(real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def look(path: Any, **options: Any) -> os.stat_result:
            if str(path).endswith(".0000.parquet"):
                raise OSError(errno.ELOOP, "Too many levels of symbolic links")
            return real(path, **options)

        return look

    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **logprobs(1))
        assert collector.flush(None)
        with monkeypatch.context() as patch:
            for name in ("lstat", "stat"):
                patch.setattr(os, name, looping(getattr(os, name)))
            collector.log(step=1, **logprobs(2), sequence_ids=["a", "b", "c", "d"])
            assert not collector.flush(None)
    counts = open_run(tmp_path / "run").conservation
    assert (counts.offered, counts.written, counts.dropped) == (8, 4, 4)
    assert len(token_rows(tmp_path / "run")) == 4


def test_run_json_tells_what_the_run_is_without_its_secrets(tmp_path: Path) -> None:
    config: Any = {
        "learning_rate": 1e-6, "hub_token": "hf_abcdefghijklmnop", "wandb": {"api_key": "0123", "project": "p"},
        "max_tokens": 2048, "eos_token": "<|im_end|>", "tokenizer": "Qwen/Qwen3", "Password": "x", "nothing_secret": None,
        "endpoint": "https://user:hunter2@host/v1", "note": "uses sk-abcdefghijklmnopqrst", "path": Path("/models/x"),
        "infinite": float("inf"), "list": [{"secretKey": "y"}], 7: "seven", "authToken": b"z",
    }  # fmt: skip
    with Collector(tmp_path / "run", trainer="mine 1.2", config=config, name="try 3") as collector:
        collector.log(step=1, **logprobs(1))
    text = (tmp_path / "run" / "run.json").read_text()
    run = json.loads(text)
    assert (run["name"], run["trainer"], run["schema_version"]) == ("try 3", "mine 1.2", SCHEMA_VERSION)
    assert [entry["attempt"] for entry in run["attempts"]] == [0]
    assert not any(secret in text for secret in ("hf_abc", "0123", "hunter2", "sk-abc", '"x"', '"y"', "z'"))
    kept = {name: run["config"][name] for name in ("max_tokens", "eos_token", "tokenizer", "path", "infinite", "7")}
    assert kept == {"max_tokens": 2048, "eos_token": "<|im_end|>", "tokenizer": "Qwen/Qwen3", "path": "/models/x",
                    "infinite": "inf", "7": "seven"}  # fmt: skip
    assert run["config"]["wandb"] == {"api_key": "[redacted]", "project": "p"}


def test_ranks_share_a_folder(tmp_path: Path) -> None:
    collectors = [Collector(tmp_path / "run", rank=rank) for rank in range(3)]
    for collector in collectors:
        collector.log(step=1, **logprobs(1))
    assert all(collector.close() for collector in collectors)
    rows = token_rows(tmp_path / "run").to_pylist()
    assert sorted({row["rank"] for row in rows}) == [0, 1, 2]
    assert {row["attempt"] for row in rows} == {0}
    assert len({row["sequence_id"] for row in rows}) == len(rows) == 12
    assert len(commit_lines(tmp_path / "run", "open")) == 3


def launched(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    """From here on this process counts as another launch, with these variables of a launcher."""
    for name in (*run_file.LAUNCHERS, *run_file.RESTARTS):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run_file.launch.cache_clear()


def start(run: Path, *ranks: int, **options: Any) -> list[Collector]:
    """A start of the run with these ranks, all of them open."""
    collectors = [Collector(run, rank=rank, **options) for rank in ranks]
    for collector in collectors:
        collector.log(step=1, **logprobs(1, 1))
        assert collector.flush()
    return collectors


def close(collectors: list[Collector]) -> None:
    assert all(collector.close() for collector in collectors)


def attempts(run: Path) -> list[tuple[int, int]]:
    """Rank and attempt of every writer, in the order of their opening."""
    lines = sorted(commit_lines(run, "open"), key=lambda line: float(line["time"]))
    return [(line["rank"], line["attempt"]) for line in lines]


def test_a_second_start_is_a_new_attempt_of_the_same_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    close(start(run, 0, 1, config={"seed": 1}))
    close(start(run, 0, 1, config={"seed": 2}, existing="resume"))
    assert attempts(run) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert sorted(
        zip(*(token_rows(run)[name].to_pylist() for name in ("attempt", "rank")), strict=True)
    ) == attempts_by_row(run)
    told = json.loads((run / "run.json").read_text())
    assert [entry["attempt"] for entry in told["attempts"]] == [0, 1]
    assert (told["config"], told["attempts"][1]["config"]) == ({"seed": 1}, {"seed": 2})


def attempts_by_row(run: Path) -> list[tuple[int, int]]:
    return sorted((attempt, rank) for rank, attempt in attempts(run))


def test_a_start_after_a_crash_is_a_new_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched(monkeypatch)
    crashed = start(tmp_path / "run", 0, 1)
    launched(monkeypatch)
    resumed = start(tmp_path / "run", 0, 1)
    assert attempts(tmp_path / "run") == [(0, 0), (1, 0), (0, 1), (1, 1)]
    close(crashed + resumed)


def test_ranks_of_one_launch_meet_in_one_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    for process in range(3):  # three processes that no launcher has named
        launched(monkeypatch)
        close(start(run, process))
    assert attempts(run) == [(0, 0), (1, 0), (2, 0)]
    launched(monkeypatch, TORCHELASTIC_RUN_ID="a", TORCHELASTIC_RESTART_COUNT="1")
    close(start(run, 3, 0))  # a launcher's name is of another launch, even for a rank that is new
    assert attempts(run)[3:] == [(3, 0), (0, 1)]
    launched(monkeypatch, TORCHELASTIC_RUN_ID="a", TORCHELASTIC_RESTART_COUNT="2")
    close(start(run, 9, 0))
    assert attempts(run)[5:] == [(9, 2), (0, 2)]


def test_two_open_writers_of_one_rank_and_launch_are_one_attempt(tmp_path: Path) -> None:
    close(start(tmp_path / "run", 0, 0))  # the engine's side and the trainer's, say
    assert attempts(tmp_path / "run") == [(0, 0), (0, 0)]


def test_an_attempt_may_be_said(tmp_path: Path) -> None:
    close(start(tmp_path / "run", 0, attempt=5))
    assert attempts(tmp_path / "run") == [(0, 5)]


def test_a_file_that_cannot_be_finished_never_shows(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Collector(run) as collector:
        collector.log(step=1, **logprobs(1))
        assert collector.flush()
        before = sorted(path for path in run.rglob("*") if "step=" not in path.name)
        with files_of_at_most(2000):  # room for commit lines, not for a token file
            collector.log(step=2, **logprobs(2))
            assert not collector.flush()
            assert sorted(path for path in run.rglob("*") if "step=" not in path.name) == before
        collector.log(step=3, **logprobs(3))
    assert steps_of(token_rows(run)) == [1, 3]
    counts = collector.counts
    assert (counts.sequences.written, counts.sequences.dropped, counts.tokens.dropped) == (8, 4, 24)
    (gap,) = commit_lines(run, "gap")
    assert (gap["step"], gap["sequences"], gap["tokens"]) == (2, 4, 24)
    assert "File too large" in gap["reason"]


def test_commit_lines_that_cannot_be_written_wait_and_come_whole(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Collector(run) as collector:
        collector.log(step=1, **logprobs(1))
        assert collector.flush()
        (log,) = (run / "commits").iterdir()
        with files_of_at_most(log.stat().st_size + 10):
            for number in range(3):
                collector.event("note", number)
            assert not collector.flush()
            told = [line["event"] for line in commit_lines(run, "event")]  # which would find a torn line
            assert told == ["first_rows"]
    assert [line["step"] for line in commit_lines(run, "event") if line["event"] == "note"] == [0, 1, 2]
    assert collector.counts.failures == {"commit log": 3}


def test_a_deleted_run_comes_back_as_a_whole_run_without_the_steps_that_were_deleted(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Collector(run) as collector:
        collector.log(step=1, **logprobs(1))
        assert collector.flush()
        shutil.rmtree(run)
        collector.log(step=2, **logprobs(2))
        collector.log(step=3, **logprobs(3))
        assert collector.flush()
    assert (collector.counts.sequences.written, collector.counts.reasons) == (12, {})
    assert steps_of(token_rows(run)) == [2, 3]
    assert open_run(run).metrics()["step"].to_list() == [1, 2, 3]  # the statistics were still in memory
    assert commit_lines(run)[0]["kind"] == "open" and (run / "run.json").exists()
    assert verify(run).sound and commit_lines(run, "close")[0]["written"] == 8  # of this log, not of the deleted one
    (told,) = [line["note"] for line in commit_lines(run, "event") if line["event"] == "state"]
    assert "deleted or replaced" in told


def test_a_folder_that_does_not_answer_once_is_not_taken_for_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the writer began its log anew, over all that it had committed."""
    run, real = tmp_path / "run", Path.stat
    with Collector(run) as collector:
        collector.log(step=1, **logprobs(1))
        assert collector.flush()
        failing = [True]

        def stat(path: Path, **options: Any) -> os.stat_result:
            if path == run and failing and failing.pop():
                raise OSError(errno.ESTALE, "Stale file handle")
            return real(path, **options)

        monkeypatch.setattr(Path, "stat", stat)
        collector.log(step=2, **logprobs(2))
        collector.flush()
        assert not failing
        collector.log(step=3, **logprobs(3))
        assert collector.flush()
    assert [len(open_run(run).sequences(step)) for step in (1, 2, 3)] == [4, 4, 4]
    assert [line["kind"] for line in commit_lines(run)].count("open") == 1


def test_a_folder_that_was_mounted_anew_keeps_its_log(tmp_path: Path) -> None:
    """Another device and another inode, the same files."""
    run = tmp_path / "run"
    with Collector(run) as collector:
        collector.log(step=1, **logprobs(1))
        assert collector.flush()
        shutil.copytree(run, tmp_path / "elsewhere")
        shutil.rmtree(run)
        shutil.move(tmp_path / "elsewhere", run)
        collector.log(step=2, **logprobs(2))
        assert collector.flush()
    assert [len(open_run(run).sequences(step)) for step in (1, 2)] == [4, 4]
    assert not [line for line in commit_lines(run, "event") if line["event"] == "state"]


@pytest.mark.parametrize("can_be_read", [True, False])
def test_a_segment_that_was_replaced_although_an_error_was_told_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_be_read: bool
) -> None:
    """Else the second part of the step came again in a smaller segment, beside the one that holds both."""
    run, real, failing = tmp_path / "run", os.replace, [False]

    def replace(source: Any, target: Any, **descriptors: Any) -> None:
        real(source, target, **descriptors)
        if failing[0] and str(target).endswith(".000000.parquet"):
            failing[0] = False
            raise OSError(errno.ENOSPC, "No space left on device")

    def unreadable(*_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "replace", replace)
    with Collector(run) as collector:
        collector.log(step=1, **logprobs(1, rows=1))
        assert collector.flush()
        failing[0] = True
        if not can_be_read:
            monkeypatch.setattr(run_files, "content", unreadable)
        collector.log(step=1, **{**logprobs(2, rows=3), "sequence_ids": ["a", "b", "c"]})
        assert collector.flush()
    assert not failing[0]
    assert open_run(run).metrics()["mismatch/sequences"].to_list() == [4]


def test_a_file_system_that_syncs_no_folder_and_knows_no_size_takes_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, statvfs = os.fsync, os.statvfs

    def of_files_alone(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", of_files_alone)
    monkeypatch.setattr(
        os, "statvfs", lambda path: os.statvfs_result((*statvfs(path)[:2], 0, 0, 0, *statvfs(path)[5:]))
    )
    with Collector(tmp_path / "run", writer="thread") as collector:
        collector.log(step=1, **logprobs(1))
        assert collector.flush()
    assert collector.counts.sequences.written == 4
    assert open_run(tmp_path / "run").metrics()["step"].to_list() == [1]


def test_a_write_that_takes_no_byte_is_an_error_and_is_not_asked_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", lambda descriptor, data: 0)
    with pytest.raises(OSError, match="takes no byte more"):
        durable_file.write_whole(tmp_path, "file", b"bytes")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_costs_steps_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("a file")
    with Collector(tmp_path / "taken" / "run") as collector:
        collector.log(step=1, **logprobs(1))
        assert not collector.flush()
        (tmp_path / "taken").unlink()
        collector.log(step=2, **logprobs(2))
    assert "cannot be made" in caplog.text
    assert collector.counts.reasons == {"not written": 4}
    assert token_rows(tmp_path / "taken" / "run")["step"].to_pylist() == [2] * 4
    assert commit_lines(tmp_path / "taken" / "run", "gap")[0]["step"] == 1
    (tmp_path / "other").write_text("a file")
    with pytest.raises(SourceError, match="give a folder that can be written"):
        Collector(tmp_path / "other" / "run", strict=True)


def test_statistics_that_fail_cost_no_row(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Collector(run) as collector:
        collector.log(step=1, **logprobs(1))
        assert collector.flush()
        shutil.rmtree(run / "statistics")
        (run / "statistics").write_text("a file")
        collector.log(step=2, **logprobs(2))
    assert (collector.counts.sequences.written, collector.counts.failures) == (8, {"statistics": 1})
    assert steps_of(token_rows(run)) == [1, 2]


def test_a_step_may_be_written_in_parts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Collector(run) as collector:
        for step in (1, 2, 1):
            collector.log(step=step, **logprobs(step))
            assert collector.flush()
    parts = sorted((run / "tokens" / "step=000000001").iterdir())
    assert [part.name.split(".")[1] for part in parts] == ["0000", "0001"]
    assert len(token_rows(run)) == 12


def test_a_run_file_that_was_changed_is_noted_and_never_sealed_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    close(start(run, 0, config={"seed": 1}))
    assert open_run(run).info["config"] == {"seed": 1} and not open_run(run).notes
    contents = ((run / "run.json").read_text().replace('"seed": 1', '"seed": 3'), "[]", '{"name": "other program"}')
    for content in contents:
        (run / "run.json").write_text(content)
        (collector,) = start(run, 0)
        assert collector.close() and collector.counts.sequences.written == 1
        assert (run / "run.json").read_text() == content
        if content is contents[0]:
            assert any(note.startswith("run.json") for note in open_run(run).notes)


def test_a_start_beside_a_run_that_lost_its_run_file_keeps_its_id(tmp_path: Path) -> None:
    run = tmp_path / "run"
    close(start(run, 0))
    known = open_run(run).info["id"]
    (run / "run.json").unlink()
    close(start(run, 0))
    assert open_run(run).info["id"] == known and not open_run(run).notes


OTHER_JOB = """
import sys
from ratioscope import Collector
collector = Collector(sys.argv[1])
collector.log(step=1, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
assert collector.flush()
print("recording", flush=True)
sys.stdin.read()
collector.close()
"""


def test_a_second_run_into_a_folder_in_use_is_refused_until_the_first_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-c", OTHER_JOB, str(run)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "recording\n"
        with Collector(run, existing="resume") as collector:
            collector.log(step=1, **logprobs(1))
            assert not collector.flush()
            assert collector.counts.reasons == {"not written": 4}
            assert f"process {other.pid} is recording another start" in caplog.text
            other.communicate("")
            collector.log(step=2, **logprobs(2))
    assert collector.counts.sequences.written == 4
    assert [(line["pid"] == other.pid, line["attempt"]) for line in commit_lines(run, "open")].count((True, 0)) == 1
    assert set(token_rows(run)["step"].to_pylist()) == {1, 2} and len(open_run(run).sequences()) == 5


@pytest.mark.parametrize("again", [False, True], ids=["other sequences", "the same sequences"])
def test_a_step_too_large_to_keep_until_it_ends_is_measured_once_or_by_its_reader(tmp_path: Path, again: bool) -> None:
    """Rows of a step that wait for its end, or for what an update makes of them, are bounded in bytes."""
    step: dict[str, Any] = {name: value for name, value in logprobs(1).items() if name != "current_logprobs"}
    for name, most in (("small", 1 << 10), ("large", 1 << 28)):
        with Collector(tmp_path / name, queue_bytes=most, when_full="wait") as collector:
            for part in range(6):
                ids = [f"{0 if again else part}-{k}" for k in range(len(step["rollout_logprobs"]))]
                minibatch = {"minibatch": part, "current_logprobs": step["old_logprobs"]} if again and part else {}
                collector.log(step=1, sequence_ids=ids, **{**step, **minibatch})
    small, large = (open_run(tmp_path / name).metrics() for name in ("small", "large"))
    assert small["mismatch/sequences"].to_list() == large["mismatch/sequences"].to_list()
    assert small["mismatch/kl_k3"].to_list() == pytest.approx(large["mismatch/kl_k3"].to_list())
    if again:
        assert small["total/tokens"].to_list() == large["total/tokens"].to_list()
