"""Row groups are bounded by bytes, whatever the lengths of the rows; files come back whole."""

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratioscope.collectors.writing import parquet_file

MOST = 1 << 16


def table(lengths: Sequence[int]) -> pa.Table:
    """Rows of these numbers of tokens, with a text beside each token, which takes more than its log-prob."""
    count = sum(lengths)
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
    logprobs = pa.ListArray.from_arrays(offsets, pa.array(-np.arange(count), pa.float32()))
    texts = pa.ListArray.from_arrays(offsets, pa.array([f"token {index}" for index in range(count)]))
    return pa.table({"step": pa.array(np.arange(len(lengths))), "rollout_logprobs": logprobs, "token_texts": texts})


@pytest.mark.parametrize(
    "lengths", [[3], [], [1, 20_000, 1, 1], [100] * 500, [1] * 3 + [9_000] * 3 + [1] * 3, [0, 0, 30_000, 0]]
)
def test_a_row_group_has_so_many_bytes_or_one_row(lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "_ROW_GROUP_BYTES", MOST)
    rows = table(lengths)
    file = pq.ParquetFile(io.BytesIO(parquet_file.parquet_bytes(rows, {"kind": "tokens"})))
    groups = [file.read_row_group(index) for index in range(file.num_row_groups)]
    assert all(len(group) == 1 or group.nbytes <= MOST for group in groups)
    assert len(groups) <= max(1, 4 * rows.nbytes // MOST + len(lengths))
    assert file.read().equals(rows)
    assert (file.metadata.metadata or {})[b"kind"] == b"tokens"


def test_rows_that_fit_are_one_group() -> None:
    file = pq.ParquetFile(io.BytesIO(parquet_file.parquet_bytes(table([50, 7, 0, 90]), {})))
    assert file.num_row_groups == 1
