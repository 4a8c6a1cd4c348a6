"""The cache: tables computed from runs, as Parquet files in the user's cache folder, named by a digest of what they depend on.

A cache that is missing, read-only, full or damaged counts as empty. Nothing in it is executable. A file that is
damaged, or too large by its own size or when decoded, is removed and computed again.
"""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.errors import SourceError
from ratioscope.inside import open_regular
from ratioscope.metrics.engines.statistics_table import schema
from ratioscope.record import SCHEMA_VERSION
from ratioscope.version import __version__
from ratioscope.whole_file import whole_file

from .footers import demand_reasonable, text_leaves
from .parquet_files import Allowance, Opened, read
from .quarantine import named_reasons

MOST_BYTES = 1 << 30
"""Bytes of all tables at most."""
MOST_OF_ONE = 1 << 28
"""Bytes of one table at most, in its file and when decoded. The tables of a run of 2,000 steps take one megabyte, and 14 times as
much when decoded. A multiple of the file's size is no bound here: the table of a run that repeats itself has a tiny file."""


def cache_key(parts: Iterable[str]) -> str:
    """The key of a table that depends on these parts. It changes with every version of ratioscope."""
    total = hashlib.sha256(f"{__version__} {SCHEMA_VERSION} {schema()}".encode())
    for part in parts:
        total.update(f"\0{part}".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


class Cache:
    """Tables by key. folder: None for a cache that stores nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._refused = False

    @property
    def refusal(self) -> str:
        """The advice if the newest table could not be stored; empty if it was, or if there was none."""
        return self.advice if self._refused else ""

    @property
    def advice(self) -> str:
        """The sentence on a place that stores nothing."""
        return f"nothing can be kept in {self.place}: make room there, or set XDG_CACHE_HOME to a writable folder"

    @property
    def place(self) -> str:
        """The place of the tables, in words."""
        return str(self._folder or "a cache: this user has no home folder")

    def load(self, key: str) -> pa.Table | None:
        """The table with this key; None if there is none that can be read."""
        if self._folder is None:
            return None
        try:
            with open_regular(self._folder, f"{key}.parquet") as file, named_reasons():
                nbytes = os.fstat(file.fileno()).st_size
                if nbytes > MOST_OF_ONE:
                    raise SourceError(f"it has {nbytes} bytes; at most {MOST_OF_ONE} are read of one kept table")
                metadata = pq.read_metadata(file)
                demand_reasonable(metadata)
                # Any: the stubs do not know page_checksum_verification.
                # Texts are measured as dictionaries before they are decoded.
                options: Any = {"page_checksum_verification": True, "read_dictionary": text_leaves(metadata)}
                with pq.ParquetFile(file, metadata=metadata, **options) as parquet:
                    opened = Opened(key, parquet, file, nbytes, Allowance(MOST_OF_ONE))
                    return read(opened, parquet.schema_arrow.names).cast(metadata.schema.to_arrow_schema())
        except SourceError:
            self.forget(key)
            return None
        except OSError:
            return None

    def store(self, key: str, table: pa.Table) -> None:
        """Stores the table if possible. Removes the oldest tables when all together exceed MOST_BYTES."""
        self._refused = self._folder is None or not _stored(self._folder, key, table)

    def holds(self, key: str) -> bool:
        """True if there is a file of the table with this key; `load` says whether it can be read."""
        return self._folder is not None and (self._folder / f"{key}.parquet").is_file()

    def forget(self, key: str) -> None:
        """Removes the table with this key."""
        with suppress(OSError):
            if self._folder is not None:
                (self._folder / f"{key}.parquet").unlink(missing_ok=True)


def _stored(folder: Path, key: str, table: pa.Table) -> bool:
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        with whole_file(folder / f"{key}.parquet", ".tmp") as file:
            pq.write_table(table, file, compression="zstd", write_page_checksum=True)
        _trim(folder)
    except (OSError, pa.ArrowException):
        return False
    return True


def _trim(folder: Path) -> None:
    """Removes the oldest files until all fit into MOST_BYTES. Files that a killed process left unfinished count too."""
    paths = (*folder.glob("*.parquet"), *folder.glob(".*.tmp"))
    files = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in paths)
    excess = sum(size for _, size, _ in files) - MOST_BYTES
    for _, size, path in files:
        if excess <= 0:
            return
        path.unlink(missing_ok=True)
        excess -= size
