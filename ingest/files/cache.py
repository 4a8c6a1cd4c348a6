"""Statistics computed from token rows, kept outside the run: Parquet files under the user's cache folder, named by digest.

A cache may be missing, read-only, full or damaged: then it is as if it were empty. Nothing in it is executable. A kept table is
bounded as the files of a run are: one that is larger, or damaged, is removed and made anew.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.errors import SourceError
from ratioscope.inside import open_regular
from ratioscope.metrics.engines.numpy_engine import schema
from ratioscope.record import SCHEMA_VERSION
from ratioscope.version import __version__

from .parquet_files import Allowance, Opened, demand_reasonable, read, text_leaves
from .quarantine import named_reasons

MOST_BYTES = 1 << 30
MOST_OF_ONE = 1 << 28
"""Bytes of one kept table. A run of 2,000 steps keeps one megabyte, which decodes to 14 times as much."""


def cache_key(parts: Iterable[str]) -> str:
    """The name under which something made from these parts is kept; changes with every version of ratioscope."""
    total = hashlib.sha256(f"{__version__} {SCHEMA_VERSION} {schema()}".encode())
    for part in parts:
        total.update(f"\0{part}".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


class Cache:
    """Tables by key. folder: None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def load(self, key: str) -> pa.Table | None:
        """The table kept under this key; None if there is none that can be read."""
        if self._folder is None:
            return None
        try:
            with open_regular(self._folder, f"{key}.parquet") as file, named_reasons():
                return _bounded(key, file)
        except SourceError:
            self.forget(key)
            return None
        except OSError:
            return None

    def store(self, key: str, table: pa.Table) -> None:
        """Keeps the table if it can; the oldest make way once there is more than MOST_BYTES."""
        if self._folder is None:
            return
        try:
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            _write_whole(self._folder / f"{key}.parquet", table)
            _trim(self._folder)
        except (OSError, pa.ArrowException):
            return

    def forget(self, key: str) -> None:
        """Removes what is kept under this key."""
        with suppress(OSError):
            if self._folder is not None:
                (self._folder / f"{key}.parquet").unlink(missing_ok=True)


def _bounded(key: str, file: BufferedReader) -> pa.Table:
    """The table as it was stored; SourceError where the file, or what it decodes to, is too large."""
    nbytes = os.fstat(file.fileno()).st_size
    if nbytes > MOST_OF_ONE:
        raise SourceError(f"it has {nbytes} bytes; at most {MOST_OF_ONE} are read of one kept table")
    metadata = pq.read_metadata(file)
    demand_reasonable(metadata)
    # Any: the stubs do not know page_checksum_verification. Texts are measured as dictionaries before they are decoded.
    options: Any = {"page_checksum_verification": True, "read_dictionary": text_leaves(metadata)}
    with pq.ParquetFile(file, metadata=metadata, **options) as parquet:
        opened = Opened(key, parquet, file, nbytes, Allowance())
        return read(opened, parquet.schema_arrow.names).cast(metadata.schema.to_arrow_schema())


def _write_whole(path: Path, table: pa.Table) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            pq.write_table(table, file, compression="zstd", write_page_checksum=True)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _trim(folder: Path) -> None:
    """Removes the oldest files, those among them that a killed process left half written."""
    every = (*folder.glob("*.parquet"), *folder.glob(".*.tmp"))
    found = sorted((kept.stat().st_mtime, kept.stat().st_size, kept) for kept in every)
    excess = sum(size for _, size, _ in found) - MOST_BYTES
    for _, size, kept in found:
        if excess <= 0:
            return
        kept.unlink(missing_ok=True)
        excess -= size
