"""CSV as spreadsheets, pandas and people write it: no column and no value of it is lost."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.imported import imported, rejected, rows_of

from ratioscope.app.cli import main

ROWS: list[dict[str, Any]] = [
    {"step": 4, "sequence_id": "a", "rollout_logprobs": [-0.5, float("nan"), float("-inf")], "token_ids": [7, 8, 9]},
    {"step": 5, "sequence_id": "b", "rollout_logprobs": [-0.25], "token_ids": [6]},
]


def table(printed: Callable[[Any], str] = str, end: str = "\n") -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*ROWS[0]], lineterminator=end)
    writer.writeheader()
    writer.writerows(
        {name: printed(cell) if isinstance(cell, list) else cell for name, cell in row.items()} for row in ROWS
    )
    return text.getvalue().encode()


@pytest.mark.parametrize(
    "written",
    [
        table(json.dumps),
        table(),
        table(lambda cells: repr([np.float64(cell) if isinstance(cell, float) else cell for cell in cells])),
        b"\xef\xbb\xbf" + table(end="\r\n"),
        table(end="\r"),
    ],
    ids=["JSON", "as Python prints it", "numpy's numbers", "from a spreadsheet", "lines that end with CR"],
)
def test_every_column_and_value_of_a_csv_file_is_kept(written: bytes, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(written)
    code, rows = imported(tmp_path / "rows.csv", tmp_path / "run")
    assert code == 0 and [row["step"] for row in rows] == [4, 5], "the first column is the step"
    for row, wanted in zip(rows, ROWS, strict=True):
        assert row["token_ids"] == wanted["token_ids"] and row["sequence_id"] == wanted["sequence_id"]
        assert np.array_equal(row["rollout_logprobs"], wanted["rollout_logprobs"], equal_nan=True)


def test_a_csv_file_that_ends_within_a_quoted_cell_gives_its_rows_and_the_reason(tmp_path: Path) -> None:
    whole = table()
    (tmp_path / "rows.csv").write_bytes(whole[: whole.rindex(b"6") - 2])
    code, rows = imported(tmp_path / "rows.csv", tmp_path / "run")
    assert code == 1 and [row["sequence_id"] for row in rows] == ["a"] and rejected(tmp_path / "run")[0]["row"] == 1


def test_a_list_that_python_printed_is_read_in_a_cell_of_parquet_too(tmp_path: Path) -> None:
    printed: dict[str, Any] = {"completion": ["a"], "completion_ids": ["[1, 2]"], "rollout_logprobs": ["[-0.5, nan]"]}
    pq.write_table(pa.table(printed), tmp_path / "completions_00003.parquet")
    code, rows = imported(tmp_path / "completions_00003.parquet", tmp_path / "run")
    assert code == 0 and rows[0]["token_ids"] == [1, 2]
    assert np.array_equal(rows[0]["rollout_logprobs"], [-0.5, np.nan], equal_nan=True)


def test_rows_join_where_one_side_s_whole_numbers_were_written_as_floats(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"sample_id": 3, "rollout_logprobs": [-0.5]}\n')
    pq.write_table(pa.table({"sample_id": [3.0, None], "old_logprobs": [[-0.25], [-0.5]]}), tmp_path / "b.parquet")
    sides = ["--rollout", str(tmp_path / "a.jsonl"), "--train", str(tmp_path / "b.parquet"), "--on", "sample_id"]
    assert main(["import", *sides, "-o", str(tmp_path / "run")]) == 1, "the row without an id is listed"
    (row,) = rows_of(tmp_path / "run")
    assert row["rollout_logprobs"] == [-0.5] and row["old_logprobs"] == [-0.25]
