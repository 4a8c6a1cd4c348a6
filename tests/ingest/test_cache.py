"""Kept tables come back as they were stored; one that would fill memory, or the disk, is removed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratioscope.ingest.files import cache as cache_module
from ratioscope.ingest.files.cache import Cache

KEY = "0" * 64


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path)


def test_a_cache_that_stores_nothing_says_where_and_what_to_do(tmp_path: Path, cache: Cache) -> None:
    table = pa.table({"number": [1]})
    (tmp_path / "file").touch()
    for folder, place in ((tmp_path / "file" / "below", str(tmp_path)), (None, "no home folder")):
        full = Cache(folder)
        assert full.refusal == "", "nothing was stored yet"
        full.store(KEY, table)
        assert place in full.refusal and "set XDG_CACHE_HOME to a writable folder" in full.refusal
    cache.store(KEY, table)
    assert cache.refusal == ""


def test_a_table_comes_back_with_its_types(cache: Cache) -> None:
    texts = pa.array(["a", None, "a", "b"])
    lists = pa.array([["x", None], [], None, ["y"]])
    columns: dict[str, Any] = {
        "number": pa.array([1, 2, 3, None]),
        "text": texts,
        "large": texts.cast(pa.large_string()),
        "bytes": pa.array([b"a", None, b"", b"b"]),
        "name": texts.dictionary_encode(),
        "texts": lists,
        "large texts": lists.cast(pa.large_list(pa.large_string())),
        "pairs": pa.array([[{"n": 1, "t": "a"}], [], None, [{"n": None, "t": None}]]),
    }
    table = pa.table(columns)
    cache.store(KEY, table)
    kept = cache.load(KEY)
    assert kept is not None and kept.equals(table) and kept.schema == table.schema
    cache.store(KEY, table.slice(0, 0))
    empty = cache.load(KEY)
    assert empty is not None and len(empty) == 0 and empty.schema == table.schema


def repeated(path: Path, column: Any) -> None:
    """A small file whose one column says the same again and again."""
    pq.write_table(pa.table({"x": column}), path, compression="zstd", write_page_checksum=True)


WOULD_FILL_MEMORY: dict[str, Callable[[], Any]] = {
    "numbers": lambda: pa.repeat(pa.scalar(1.5), 1 << 22),
    "texts": lambda: pa.DictionaryArray.from_arrays(np.zeros(1 << 20, np.int32), pa.array(["x" * 1000])).cast(
        pa.string()
    ),
    "one list": lambda: pa.ListArray.from_arrays([0, 1 << 22], pa.repeat(pa.scalar(0.0), 1 << 22)),
}


@pytest.mark.parametrize("made", WOULD_FILL_MEMORY.values(), ids=WOULD_FILL_MEMORY)
def test_a_table_that_would_fill_memory_is_removed(
    cache: Cache, tmp_path: Path, made: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    column = made()
    monkeypatch.setattr(cache_module, "MOST_OF_ONE", 1 << 24)
    file = tmp_path / f"{KEY}.parquet"
    repeated(file, column)
    assert file.stat().st_size < 200_000 < 1 << 24 < column.nbytes
    assert cache.load(KEY) is None and not file.exists()
    cache.store(KEY, pa.table({"x": [1]}))
    assert cache.load(KEY) is not None


def test_a_table_that_repeats_itself_comes_back_although_its_file_is_tiny(cache: Cache, tmp_path: Path) -> None:
    table = pa.table({"x": pa.repeat(pa.scalar(1.5), 1 << 19)})
    cache.store(KEY, table)
    assert (tmp_path / f"{KEY}.parquet").stat().st_size < 10_000
    kept = cache.load(KEY)
    assert kept is not None and kept.equals(table)


def test_a_file_that_is_too_large_is_removed_unread(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store(KEY, pa.table({"x": [1]}))
    size = (tmp_path / f"{KEY}.parquet").stat().st_size
    monkeypatch.setattr(cache_module, "MOST_OF_ONE", size)
    assert cache.load(KEY) is not None
    monkeypatch.setattr(cache_module, "MOST_OF_ONE", size - 1)
    assert cache.load(KEY) is None and not (tmp_path / f"{KEY}.parquet").exists()


def test_a_damaged_table_is_removed(cache: Cache, tmp_path: Path) -> None:
    cache.store(KEY, pa.table({"x": [1]}))
    file = tmp_path / f"{KEY}.parquet"
    file.write_bytes(file.read_bytes()[:50])
    assert cache.load(KEY) is None and not file.exists()


def test_what_a_killed_process_left_half_written_makes_way(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "MOST_BYTES", 3000)
    half = tmp_path / ".left.tmp"
    half.write_bytes(bytes(2900))
    os.utime(half, (0, 0))
    cache.store(KEY, pa.table({"x": list(range(50))}))
    assert not half.exists() and cache.load(KEY) is not None
