"""Arrow files of each form have the rows that Parquet would have; a bomb, a cut and a lie are refused by name."""

import io
import json
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.hostile_columns import ROWS, plain, sound
from support.imported import imported
from support.no_wall import no_wall  # noqa: F401

from ratioscope.errors import SourceError
from ratioscope.ingest.importers.arrow_rows import arrow_rows
from ratioscope.ingest.importers.confinement import FileLimits
from ratioscope.ingest.importers.reading import read
from ratioscope.ingest.importers.samples import RecordedRow, Rejected
from ratioscope.ingest.importers.source_files import Options, opened
from ratioscope.ingest.importers.wall import apart, bounded

SMALL = FileLimits(nbytes=1 << 20)
pytestmark = pytest.mark.usefixtures("no_wall")


def table() -> pa.Table:
    columns = {name: pa.array(plain(column)) for name, column in sound().items()}
    texts = pa.array(["what is 2 + 2?", None, "ü" * 40, ""])
    return pa.table({**columns, "prompt_text": texts, "replica": pa.array(["a", "b", "a", "b"]).dictionary_encode()})


def stream(path: Path, rows: pa.Table, **options: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    with pa.ipc.new_stream(str(path), rows.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(rows, max_chunksize=3)


def file(path: Path, rows: pa.Table, **options: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    with pa.ipc.new_file(str(path), rows.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(rows, max_chunksize=3)


def of_polars(path: Path, rows: pa.Table, **options: Any) -> None:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    (frame.write_ipc_stream if path.suffix == ".arrows" else frame.write_ipc)(path, **options)


FORMS: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {
    "stream.arrow": (stream, {}), "zstd.arrow": (stream, {"compression": "zstd"}), "lz4.arrows": (stream, {"compression": "lz4"}),
    "deltas.arrow": (stream, {"emit_dictionary_deltas": True}), "old.arrow": (stream, {"use_legacy_format": True}),
    "file.arrow": (file, {}), "packed.feather": (file, {"compression": "zstd"}),
    "polars.feather": (of_polars, {}), "packed_by_polars.arrow": (of_polars, {"compression": "zstd"}),
    "polars.arrows": (of_polars, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_an_arrow_file_of_each_form_has_the_rows_of_parquet(name: str, tmp_path: Path) -> None:
    write, options = FORMS[name]
    write(tmp_path / name, table(), **options)
    pq.write_table(table(), tmp_path / "rows.parquet")
    code, rows = imported(tmp_path / name, tmp_path / "run")
    assert code == 0 and len(rows) == ROWS
    assert rows == imported(tmp_path / "rows.parquet", tmp_path / "same")[1]


def test_a_dataset_that_was_saved_is_one_table_whose_parts_name_no_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "dataset" / "train"
    folder.mkdir(parents=True)
    rows = table().drop_columns(["step"])
    for part in range(2):
        stream(folder / f"data-{part:05d}-of-00002.arrow", rows.slice(2 * part, 2))
    stream(folder / "cache-0f3a9c1b2d4e5f60.arrow", rows)
    (folder / "state.json").write_text('{"_data_files": []}')
    (folder / "dataset_info.json").write_text("{}")
    code, found = imported(tmp_path / "dataset", tmp_path / "run", "--json")
    report = json.loads(capsys.readouterr().out)
    assert code == 0 and [row["step"] for row in found] == [0] * ROWS
    assert sum(each["without_step"] for each in report["files"]) == ROWS
    assert report["beside"] == {
        "copy of rows": ["train/cache-0f3a9c1b2d4e5f60.arrow"],
        "facts of a dataset": ["train/dataset_info.json", "train/state.json"],
    }


def test_completions_that_lie_in_a_dataset_keep_the_table_of_their_trainer(tmp_path: Path) -> None:
    logprobs = {"sampling_per_token_logps": [[-0.5, -1.0]] * 2, "old_per_token_logps": [[-0.25, -1.0]] * 2}
    rows = pa.table(
        {"step": [3, 3], "completion": ["a b", "c d"], "advantage": [0.5, -0.5], "reward": [1.0, 0.0], **logprobs}
    )
    for part in range(2):
        stream(tmp_path / "dataset" / f"data-{part:05d}-of-00002.arrow", rows)
    code, found = imported(tmp_path / "dataset", tmp_path / "run")
    assert code == 0 and [row["step"] for row in found] == [3] * 4
    assert [row["sequence_id"][-4:] for row in found] == ["02-0", "02-1"] * 2
    assert [row["extra"] for row in found] == ['{"completion": "a b"}', '{"completion": "c d"}'] * 2


@pytest.mark.parametrize("write", [pq.write_table, stream, file])
def test_names_and_texts_of_other_bytes_than_utf_8_are_named_and_are_no_defect(
    write: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(bytes(4) + b"\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    for column in ({"prompt_text": bad}, {"zzzzzz": [1]}):
        content = pa.table({"step": [1], "rollout_logprobs": [[-0.5]], "old_logprobs": [[-0.5]], **column})
        if write is pq.write_table:
            write(content, tmp_path / "a.any", store_schema=False)
        else:
            write(tmp_path / "a.any", content)
        name = "a.parquet" if write is pq.write_table else "a.arrow"
        data = (tmp_path / "a.any").read_bytes()
        (tmp_path / name).write_bytes(data.replace(b"zzzzzz", b"z\xffzzzz"))
        assert imported(tmp_path / name, tmp_path / "run")[0] > 1
        words = capsys.readouterr().err
        assert name in words and "or is damaged" in words and "defect" not in words


def _zeros(count: int, columns: int = 1) -> pa.Table:
    """Narrow columns: this process keeps no memory of their size, which its child could use."""
    zeros = pa.ListArray.from_arrays([0, count], pa.array(np.zeros(count)))
    return pa.table({f"c{n}": zeros for n in range(columns)})


def _one_text_often() -> pa.Table:
    index = pa.array([0] * 64, pa.int32())
    return pa.table({"prompt_text": pa.DictionaryArray.from_arrays(index, pa.array(["x" * (1 << 24)]))})


def _one_view_often() -> pa.Table:
    _, view, text = pa.array(["y" * (1 << 24)], pa.string_view()).buffers()
    assert view is not None
    views = [None, pa.py_buffer(view.to_pybytes() * 64), text]
    return pa.table({"prompt_text": pa.Array.from_buffers(pa.string_view(), 64, views)})


def _overlapping() -> pa.Table:
    array: Any = pa.ListViewArray  # the stubs know no sizes
    return pa.table({"old_logprobs": array.from_arrays([0] * 9, [9] * 9, pa.array([0.5] * 9))})


BOMBS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "zeros": (_zeros(1 << 19, 128), {"compression": "zstd"}, "decodes to more than 1048576 bytes"),
    "rows without bytes": (
        pa.record_batch([pa.Array.from_buffers(pa.null(), 1 << 30, [None])], ["rollout_logprobs"]), {}, "more than 262144 rows",
    ),
    "one text often": (_one_text_often(), {}, "decodes to more than|rows take more than"),
    "one view often": (_one_view_often(), {}, "decodes to more than|rows take more than"),
    "views": (_overlapping(), {}, "the Arrow type list_view<item: double>, which is not read"),
}  # fmt: skip


def _told_apart(data: bytes) -> str:
    """Why a child does not read all rows of a file."""
    rows = (repr(row).encode() for row in bounded(arrow_rows(memoryview(data)), len(data)))
    with pytest.raises((SourceError, pa.ArrowException)) as raised:
        for _ in apart(lambda: rows, SMALL):
            pass
    return str(raised.value)


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("form", [pa.ipc.new_stream, pa.ipc.new_file])
def test_a_file_that_claims_more_than_it_may_take_is_refused(name: str, form: Any) -> None:
    content, options, reason = BOMBS[name]
    sink = io.BytesIO()
    with form(sink, content.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write(content)
    assert re.search(reason, said := _told_apart(sink.getvalue())), said


@pytest.mark.parametrize("states", [1 << 40, 8, -2])
def test_a_buffer_that_states_another_size_than_it_has_is_refused(states: int) -> None:
    sink = io.BytesIO()
    rows = _zeros(1 << 12)
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    own, lie = struct.pack("<q", 8 << 12), struct.pack("<q", states)
    assert sink.getvalue().count(own) == 1
    said = _told_apart(sink.getvalue().replace(own, lie))
    assert re.search("decodes to more than|decompression failed|damaged|cannot be read", said), said


def test_what_follows_the_end_of_a_stream_is_not_lost_in_silence(tmp_path: Path) -> None:
    rows = pa.concat_tables([table()] * 8)
    stream(tmp_path / "a.arrow", rows)
    (tmp_path / "a.arrow").write_bytes((tmp_path / "a.arrow").read_bytes() * 2)
    found = list(read(opened(tmp_path / "a.arrow", Options()), Options()))
    assert len(found) == len(rows) + 1 and isinstance(found[-1], Rejected)
    assert "bytes follow the mark of its end: two streams in one file" in found[-1].reason


@pytest.mark.parametrize("name", ["stream.arrow", "file.arrow", "packed.feather"])
def test_a_cut_file_gives_the_rows_before_the_cut_or_none_and_is_named(name: str, tmp_path: Path) -> None:
    write, options = FORMS[name]
    write(tmp_path / name, table(), **options)
    whole = (tmp_path / name).read_bytes()
    for length in range(1, len(whole), 37):
        (tmp_path / name).write_bytes(whole[:length])
        found = list(read(opened(tmp_path / name, Options()), Options()))
        assert isinstance(found[-1], Rejected), length
        assert all(isinstance(one, RecordedRow) for one in found[:-1]) and len(found) <= ROWS + 1


@pytest.mark.parametrize("name", ["stream.arrow", "zstd.arrow", "file.arrow", "polars.feather"])
def test_a_damaged_arrow_file_gives_rows_and_reasons_alone(name: str, tmp_path: Path) -> None:
    write, options = FORMS[name]
    write(tmp_path / name, table(), **options)
    whole, rng = (tmp_path / name).read_bytes(), random.Random(name)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice((rng.randrange(256), 0, 255, 128))
        (tmp_path / name).write_bytes(data)
        options_ = Options(limits=FileLimits(nbytes=1 << 26))
        assert all(isinstance(one, RecordedRow | Rejected) for one in read(opened(tmp_path / name, options_), options_))
