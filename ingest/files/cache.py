"""Statistics computed from token rows, kept outside the run: Parquet files under the user's cache folder, named by digest.

A cache may be missing, read-only, full or damaged: then it is as if it were empty. Nothing in it is executable.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.inside import open_regular
from ratioscope.metrics.numpy_engine import schema
from ratioscope.record import SCHEMA_VERSION
from ratioscope.version import __version__

from .quarantine import named_reasons

MOST_BYTES = 1 << 30


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
            with named_reasons(), open_regular(self._folder, f"{key}.parquet") as file:
                with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
                    return parquet.read()
        except (OSError, ValueError):
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
    found = sorted((kept.stat().st_mtime, kept.stat().st_size, kept) for kept in folder.glob("*.parquet"))
    excess = sum(size for _, size, _ in found) - MOST_BYTES
    for _, size, kept in found:
        if excess <= 0:
            return
        kept.unlink(missing_ok=True)
        excess -= size
