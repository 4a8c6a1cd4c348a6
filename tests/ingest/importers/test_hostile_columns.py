"""Whatever stands in a file of columns, each row is imported exactly or listed with its file, row, field and reason."""

import contextlib
import gzip
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.hostile_columns import (
    ANY,
    BAD,
    COLUMN_FAULTS,
    FILE_FAULTS,
    RECTANGULAR,
    ROW_FAULTS,
    ROWS,
    Columns,
    Fault,
    parquet,
    pickled,
    plain,
    sound,
)
from support.imported import DUMPS, imported, rejected
from support.no_wall import no_wall  # noqa: F401

from ratioscope.app.upkeep.rejected_rows import RejectedRows, Written, unique
from ratioscope.ingest.importers.confinement import FileLimits
from ratioscope.ingest.importers.reading import read
from ratioscope.ingest.importers.samples import RecordedRow, Rejected
from ratioscope.ingest.importers.source_files import Options, opened

COLUMNS = ("rollout_logprobs", "old_logprobs", "mask", "token_ids", "prompt_ids")
OPTIONS = Options(limits=FileLimits(nbytes=1 << 28))
pytestmark = pytest.mark.usefixtures("no_wall")


def outcomes(path: Path) -> tuple[list[RecordedRow], list[Rejected]]:
    """What an import would write and list, with duplicates; an import itself is made by a few tests alone."""
    done, found = Written(), read(opened(path, OPTIONS), OPTIONS)
    with RejectedRows(path.parent / "rejected.jsonl", done, strict=False) as listing:
        samples = list(unique(found, listing))
    (path.parent / "rejected.jsonl").unlink(missing_ok=True)
    assert done.rejected == len(done.first_rejected)
    return samples, done.first_rejected


def demand_exact(found: list[RecordedRow], columns: Columns, kept: list[int]) -> None:
    """The samples are those rows of the file, value for value."""
    assert [sample.row for sample in found] == kept
    for sample in found:
        assert sample.step == columns["step"][sample.row]
        assert sample.values["sequence_ids"] == str(plain(columns["sequence_id"])[sample.row])
        for name in COLUMNS:
            wanted = columns[name][sample.row]
            if wanted is None:
                assert name not in sample.values
            else:
                np.testing.assert_array_equal(np.asarray(sample.values[name], float), np.asarray(wanted, float))


@pytest.mark.parametrize(
    ("fault", "file"),
    [pytest.param(fault, file, id=f"{fault.name}-{file}") for fault in ROW_FAULTS for file in fault.files],
)
def test_a_row_that_does_not_fit_is_listed_and_the_others_are_kept(fault: Fault, file: str, tmp_path: Path) -> None:
    columns = fault.columns()
    fault.files[file](tmp_path / file, columns)
    found, listed = outcomes(tmp_path / file)
    if fault.field is None:
        assert not listed
        demand_exact(found, columns, [*range(ROWS)])
        return
    (one,) = listed
    assert one.file.endswith(file) and one.row == BAD and one.field == fault.field
    assert fault.reason in one.reason, one.reason
    demand_exact(found, columns, [row for row in range(ROWS) if row != BAD])


@pytest.mark.parametrize("file", ANY)
def test_an_import_lists_the_row_and_a_strict_one_stops_there(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = next(fault for fault in ROW_FAULTS if fault.name == "an id beyond int32")
    ANY[file](tmp_path / file, fault.columns())
    assert imported(tmp_path / file, tmp_path / "strict", "--strict") == (3, [])
    said = capsys.readouterr().err
    assert f"{file}, row {BAD}, token_ids" in said and fault.reason in said
    assert [path.name for path in tmp_path.iterdir()] == [file]
    code, rows = imported(tmp_path / file, tmp_path / "run")
    (one,) = rejected(tmp_path / "run")
    assert code == 1 and one["row"] == BAD and one["field"] == "token_ids"
    for row, place in zip(rows, (0, 2, 3), strict=True):
        for name in COLUMNS:
            assert row[name] == plain(sound()[name])[place]


@pytest.mark.parametrize("name", FILE_FAULTS)
def test_a_file_whose_frame_lies_is_refused_by_name_and_the_others_are_kept(name: str, tmp_path: Path) -> None:
    file, write, reason = FILE_FAULTS[name]
    (tmp_path / "dump").mkdir()
    write(tmp_path / "dump" / file)
    parquet(tmp_path / "dump" / "sound.parquet", sound())
    found, (one,) = outcomes(tmp_path / "dump")
    assert one.file == file and one.row is None and reason in one.reason, one.reason
    demand_exact(found, sound(), [*range(ROWS)])


def test_a_number_of_167_bytes_spoils_its_row_alone(tmp_path: Path) -> None:
    pickled(tmp_path / "a.pkl", {**sound(), "rewards": [10**400, *[0.5] * (ROWS - 1)]})
    found, (one,) = outcomes(tmp_path / "a.pkl")
    assert len(found) == ROWS - 1 and one.row == 0 and one.field == "rewards" and "int" in one.reason


@pytest.mark.parametrize("file", RECTANGULAR)
@pytest.mark.parametrize("name", COLUMN_FAULTS)
def test_a_column_that_does_not_fit_is_named_at_every_row(name: str, file: str, tmp_path: Path) -> None:
    column, change, field, reason = COLUMN_FAULTS[name]
    columns = sound()
    columns[column] = [np.asarray(each) for each in change(columns[column])]
    RECTANGULAR[file](tmp_path / file, columns)
    found, listed = outcomes(tmp_path / file)
    assert not found and [one.row for one in listed] == [*range(ROWS)] and {one.field for one in listed} == {field}
    assert all(reason in one.reason for one in listed), listed[0].reason


F64 = pa.float64()
KINDS: dict[str, tuple[Any, str]] = {
    "large_list": (pa.large_list(F64), ""), "fixed_size_list": (pa.list_(F64, 3), ""), "float32": (pa.list_(pa.float32()), ""),
    "float16": (pa.list_(pa.float16()), ""), "list_view": (pa.list_view(F64), ""),
    "decimal": (pa.list_(pa.decimal128(20, 10)), "holds a Decimal"), "string": (pa.list_(pa.string()), "holds a str"),
    "struct": (pa.list_(pa.struct([("a", F64)])), "holds a dict"), "map": (pa.map_(pa.string(), F64), "holds a tuple"),
    "timestamp": (pa.list_(pa.timestamp("s")), "holds a datetime"), "date": (pa.list_(pa.date32()), "holds a date"),
    "dictionary": (pa.list_(pa.dictionary(pa.int32(), pa.string())), "holds a str"), "binary": (pa.binary(), "it is a bytes"),
    "text of JSON": (pa.string(), "it is a str"), "list of lists": (pa.list_(pa.list_(F64)), "holds a list"),
    "bool": (pa.list_(pa.bool_()), "true and false"), "one number": (F64, "it is a float"),
}  # fmt: skip
VALUES: dict[str, Any] = {
    "string": ["a"] * 3, "struct": [{"a": -0.5}] * 3, "map": [("a", -0.5)], "timestamp": [0] * 3, "date": [0] * 3,
    "dictionary": ["a"] * 3, "binary": b"ab", "text of JSON": "[-0.5]", "list of lists": [[-0.5]] * 3, "bool": [True] * 3,
    "one number": -0.5,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_of_parquet_of_each_type_is_read_or_refused_by_row(kind: str, tmp_path: Path) -> None:
    type_, reason = KINDS[kind]
    columns = sound()
    values = (
        [np.array([-0.5, -0.25, -1.0], np.float16)] * ROWS
        if kind == "float16"
        else [VALUES.get(kind, [-0.5, -0.25, -1.0])] * ROWS
    )
    if kind == "decimal":
        values = pa.array(values, pa.list_(F64)).cast(type_).to_pylist()
    table = pa.table({name: pa.array(plain(column)) for name, column in columns.items()})
    table = table.set_column(table.schema.get_field_index("old_logprobs"), "old_logprobs", pa.array(values, type_))
    pq.write_table(table, tmp_path / "a.parquet")
    found, listed = outcomes(tmp_path / "a.parquet")
    if reason:
        assert not found and len(listed) == ROWS
        assert all(reason in one.reason and one.field == "old_logprobs" for one in listed), listed[0].reason
    else:
        assert not listed
        demand_exact(found, {**columns, "old_logprobs": [[-0.5, -0.25, -1.0]] * ROWS}, [*range(ROWS)])


def test_bytes_of_another_order_and_halves_of_floats_keep_their_values(tmp_path: Path) -> None:
    columns = sound()
    arrays: dict[str, Any] = {name: np.stack(column) for name, column in columns.items()}
    other: dict[str, Any] = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in arrays.items()}
    np.savez(tmp_path / "a.npz", **other)
    found, listed = outcomes(tmp_path / "a.npz")
    assert not listed
    demand_exact(found, columns, [*range(ROWS)])
    halves = [
        (np.asarray(each, np.float32).view(np.uint32) >> 16).astype(np.uint16) for each in columns["old_logprobs"]
    ]
    RECTANGULAR["a.safetensors"](tmp_path / "b.safetensors", {**columns, "old_logprobs": halves})
    found, listed = outcomes(tmp_path / "b.safetensors")
    assert not listed
    demand_exact(found, columns, [*range(ROWS)])


JUNK: tuple[Any, ...] = (
    None,
    "text",
    b"\xff\xfe",
    -1,
    2**62,
    1.5,
    float("inf"),
    "[1, 2",
    "[" * 5000,
    '{"a": 1}',
    "[null]",
    "",
)


def shown(sample: RecordedRow) -> dict[str, Any]:
    return {name: plain(value) for name, value in sample.values.items()}


@pytest.mark.parametrize("table", ["sequences", "llm_revisions", "scores"])
def test_a_cell_of_a_database_that_does_not_fit_spoils_its_sequence_alone(table: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens.db"
    shutil.copy(DUMPS / "martingale" / "tokens.db", path)
    before = {sample.values["sequence_ids"]: shown(sample) for sample in outcomes(path)[0]}
    with contextlib.closing(sqlite3.connect(path)) as base:
        names = [row[1] for row in base.execute(f"PRAGMA table_info({table})")]
    for name, junk in ((name, junk) for name in names for junk in JUNK):
        with contextlib.closing(sqlite3.connect(path)) as base:
            rowid, held = base.execute(f'SELECT rowid, "{name}" FROM {table} LIMIT 1').fetchone()
            try:
                base.execute(f'UPDATE {table} SET "{name}" = ? WHERE rowid = ?', (junk, rowid))
            except sqlite3.IntegrityError:  # the table itself forbids it
                continue
            base.commit()
            found, listed = outcomes(path)
            base.execute(f'UPDATE {table} SET "{name}" = ? WHERE rowid = ?', (held, rowid))
            base.commit()
        assert all(one.reason for one in listed) and found, (name, junk)
        if (
            table != "llm_revisions"
        ):  # a revision belongs to all sequences, the first row of the others to the first one
            others = {name for name in before if not name.startswith("0-0-")}
            now = {sample.values["sequence_ids"]: shown(sample) for sample in found}
            assert others and all(now[each] == before[each] for each in others), (name, junk)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl.gz"])
def test_more_rows_than_the_bytes_of_a_file_can_hold_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ratioscope.ingest.importers.wall.MOST_SMALL_ROWS", 1 << 8)
    rows, allowed = 1 << 15, 1 << 8
    logprobs = pa.array([[-0.5]] * rows, pa.list_(pa.float32()))
    table = pa.table({"rollout_logprobs": logprobs, "old_logprobs": logprobs})
    if name == "a.parquet":
        pq.write_table(table, tmp_path / name, compression="zstd")
    else:
        (tmp_path / name).write_bytes(gzip.compress(b'{"rollout_logprobs": [-0.5], "old_logprobs": [-0.5]}\n' * rows))
    allowed = max(allowed, (tmp_path / name).stat().st_size)
    assert allowed < rows
    found, listed = outcomes(tmp_path / name)
    assert len(found) == allowed and f"more than {allowed} rows in " in listed[-1].reason
