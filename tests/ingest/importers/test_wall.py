"""Strangers' bytes are decoded in a child that can take little and reach nothing; what it cannot give is said by name."""

import gzip
import os
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.imported import imported

from ratioscope.errors import UnsafeFile
from ratioscope.ingest.importers import confinement
from ratioscope.ingest.importers.confinement import FileLimits
from ratioscope.ingest.importers.reading import read
from ratioscope.ingest.importers.samples import RecordedRow, Rejected
from ratioscope.ingest.importers.scalars.sources import log_kinds
from ratioscope.ingest.importers.source_files import Options, opened
from ratioscope.ingest.importers.wall import Ended, apart, each_apart

SMALL = FileLimits(nbytes=1 << 26)
SOUND = b'{"rollout_logprobs": [-0.5], "old_logprobs": [-0.25]}\n'


def told(work: Callable[[], Any], limits: FileLimits = SMALL) -> list[bytes]:
    """What a child tells of the value of `work`."""

    def words() -> Iterator[bytes]:
        yield repr(work()).encode()

    return list(map(bytes, apart(words, limits)))


def test_memory_ends_at_the_limit() -> None:
    assert told(lambda: len(bytearray(1 << 25))) == [b"33554432"]
    with pytest.raises(Ended, match="decodes to more than 67108864 bytes.*--most-memory"):
        told(lambda: len(bytearray(1 << 30)))
    with pytest.raises(Ended, match="decodes to more"):
        told(lambda: [np.zeros(1 << 20).sum() for _ in range(3)] and [[n] for n in range(1 << 24)])


def test_processor_time_without_an_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "SECONDS", 0)

    def for_ever() -> None:
        while True:
            pass

    with pytest.raises(Ended, match="seconds of processor time"):
        told(for_ever)


@pytest.mark.skipif(not confinement.IS_BOUND, reason="only Linux can refuse calls to a process")
@pytest.mark.parametrize(
    "reach", [socket.socket, lambda: subprocess.run(["true"], check=True), lambda: os.execv("/bin/true", ["true"])]
)
def test_no_socket_is_opened_and_no_program_started(reach: Callable[[], Any]) -> None:
    with pytest.raises(Ended, match="PermissionError"):
        told(reach)


def test_errors_pass_and_a_crash_is_named() -> None:
    def refused() -> None:
        raise UnsafeFile("it lies")

    with pytest.raises(UnsafeFile, match="it lies"):
        told(refused)
    with pytest.raises(Ended, match="SIGSEGV"):
        told(lambda: os.kill(os.getpid(), 11))


def test_a_child_ends_when_its_answers_are_no_longer_wanted() -> None:
    def numbers() -> Iterator[bytes]:
        yield str(os.getpid()).encode()
        yield b""
        while True:
            yield b"more"

    frames = apart(numbers, SMALL)
    child = int(bytes(next(frames)))
    frames.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="ps of this system is not that of the test")
def test_a_system_that_bounds_no_memory_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("confinement", "wall"):
        monkeypatch.setattr(f"ratioscope.ingest.importers.{module}.IS_BOUND", False)

    def grows() -> None:
        held = []
        while True:
            held.append(bytearray(os.urandom(1 << 24)))

    with pytest.raises(Ended, match="decodes to more"):
        told(grows)


def test_the_kind_of_a_file_that_ends_its_decoder_is_unknown(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.touch()
    asked = each_apart(lambda file: os.kill(os.getpid(), 9) if file.name == "b" else file.name, files)
    assert list(asked) == ["a", None, "c"]


def wide_csv(path: Path, columns: int) -> None:
    names = ",".join(f"c{n}" for n in range(columns))
    path.write_text(f"rollout_logprobs,old_logprobs,{names}\n[-0.5],[-0.25]{',' * columns}\n")


def wide_table(columns: int) -> pa.Table:
    return pa.table({"rollout_logprobs": [[-0.5]], "old_logprobs": [[-0.25]], **{f"c{n}": [n] for n in range(columns)}})


def wide_arrow(path: Path, columns: int) -> None:
    table = wide_table(columns)
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)


WIDE: dict[str, Callable[[Path, int], None]] = {
    "a.csv": wide_csv,
    "a.arrow": wide_arrow,
    "a.parquet": lambda path, columns: pq.write_table(wide_table(columns), path),
}


@pytest.mark.parametrize("name", WIDE)
def test_many_columns_take_time_in_proportion(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quadratic, 30,000 columns took a minute of comparisons."""
    WIDE[name](tmp_path / name, 30_000)
    monkeypatch.setattr(confinement, "SECONDS", 20)
    (row,) = read(opened(tmp_path / name, Options()), Options())
    assert isinstance(row, RecordedRow) and row.values["old_logprobs"].tolist() == [-0.25]


def zeros(path: Path) -> None:
    array = np.zeros((4, 1 << 22), np.float32)
    np.savez_compressed(path, rollout_logprobs=array, old_logprobs=array)


def strides(path: Path) -> None:
    one = torch.zeros(1).expand(64, 1 << 20)
    torch.save({"rollout_logprobs": one, "old_logprobs": one}, path)


def one_value(path: Path) -> None:
    lists = pa.ListArray.from_arrays([0, 1 << 25], pa.array(np.zeros(1 << 25, np.float32)))
    pq.write_table(pa.table({"rollout_logprobs": lists, "old_logprobs": lists}), path, compression="zstd")


def one_value_of_arrow(path: Path) -> None:
    lists = pa.ListArray.from_arrays([0, 1 << 24], pa.array(np.zeros(1 << 24, np.float32)))
    table = pa.table({"rollout_logprobs": lists, "old_logprobs": lists})
    with pa.ipc.new_file(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_table(table)


def one_line(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"rollout_logprobs": [-0.5], "old_logprobs": [-0.25], "x": "' + b"a" * (1 << 27) + b'"}\n')


def one_field(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'rollout_logprobs,old_logprobs,x\n[-0.5],[-0.25],"' + b"a" * (1 << 27) + b'"\n')


BOMBS = {
    "a.npz": zeros, "a.pt": strides, "a.parquet": one_value, "a.arrow": one_value_of_arrow, "a.jsonl.gz": one_line,
    "a.csv.gz": one_field,
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_few_bytes_that_stand_for_many_are_refused_by_name_and_the_others_kept(name: str, tmp_path: Path) -> None:
    BOMBS[name](tmp_path / name)
    (tmp_path / "sound.jsonl").write_bytes(SOUND)
    options = Options(limits=FileLimits(nbytes=1 << 24))
    found = list(read(opened(tmp_path, options), options))
    sound = [row for row in found if isinstance(row, RecordedRow)]
    refused = [row for row in found if isinstance(row, Rejected)]
    assert [row.file for row in sound] == ["sound.jsonl"] and refused
    assert all(row.file == name for row in refused), refused
    assert any(words in refused[-1].reason for words in ("decodes to", "more than", "it takes")), refused[-1]


def test_a_line_longer_than_the_memory_allows_is_rejected_and_its_neighbours_kept(tmp_path: Path) -> None:
    long = b'{"rollout_logprobs": [-0.5], "old_logprobs": [-0.25], "x": "' + b"a" * (1 << 21) + b'"}\n'
    with gzip.open(tmp_path / "a.jsonl.gz", "wb", compresslevel=1) as file:
        file.write(SOUND + long + SOUND)
    options = Options(limits=FileLimits(nbytes=1 << 24))
    found = list(read(opened(tmp_path / "a.jsonl.gz", options), options))
    assert [type(row) for row in found] == [RecordedRow, Rejected, RecordedRow]
    assert "more than 1048576 bytes, the most that one may have" in str(found[1])


def computing_store(path: Path) -> None:
    """A store of MLflow's of some KB whose every row computes gigabytes."""
    computed = ",".join(f"g{n} blob as (zeroblob(250000000))" for n in range(40))
    with closing(sqlite3.connect(path)) as base:
        base.execute("create table runs (run_uuid text, name text, lifecycle_stage text)")
        base.execute("create table experiments (a)")
        base.execute(f"create table metrics (run_uuid text, key text, value real, step int, is_nan int, {computed})")
        base.execute("insert into runs values ('r', 'n', 'active')")
        base.execute("insert into metrics (run_uuid, key, value, step) values ('r', 'loss', 1.0, 1)")
        base.commit()


def test_a_schema_that_computes_is_refused_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    computing_store(tmp_path / "mlruns.db")
    assert [kind and kind.name for kind in log_kinds([tmp_path / "mlruns.db"])] == ["mlflow"]
    code, _ = imported(tmp_path / "mlruns.db", tmp_path / "run", "--most-memory", "0.1")
    said = capsys.readouterr().err
    assert code == 3 and "mlruns.db" in said and "columns that SQLite computes ('g0')" in said
    assert [path.name for path in tmp_path.iterdir()] == ["mlruns.db"]


def test_a_store_whose_values_are_large_takes_no_more_than_it_may(tmp_path: Path) -> None:
    """Few bytes on disk, gigabytes as rows: texts that a JSON of a store repeats."""
    computing_store(tmp_path / "mlruns.db")
    with pytest.raises(Ended, match="decodes to more"):
        told(lambda: sqlite3.connect(tmp_path / "mlruns.db").execute("select * from metrics").fetchall())
