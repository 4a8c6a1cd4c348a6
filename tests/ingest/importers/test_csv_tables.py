"""CSV as spreadsheets, pandas and people write it: no column and no value of it is lost."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.imported import imported, rejected

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
