"""Opens the Parquet files of a run: follows no link, checks the digest first, and bounds what is decoded.

A file of a run on a store is fetched first, see ingest/remote/mirror.py.

A digest is checked once per (inode, size, mtime) of a file. Page checksums are verified on every read in addition: without
them and without a digest, both pyarrow and polars return wrong numbers for a flipped bit.
"""

import hashlib
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.errors import SourceError, Unread
from ratioscope.inside import open_regular, status
from ratioscope.metrics.engines.arrow_columns import ArrowColumn, pc
from ratioscope.record import PROMPT_FIELDS

from ..remote.opening import mirror_at
from ..remote.side_by_side import side_by_side
from .footers import demand_reasonable, leaves, leaves_of, text_leaves
from .page_sizes import decoded_bytes
from .quarantine import named_reasons

MOST_FOOTER = 1 << 22
"""Bytes of a footer that is read without its file. The footer of a token file has 20 KB."""
EXPANSION, TEXT_EXPANSION = 64, 1024
"""Decoded bytes allowed per byte of the file. Recorded log-probs need 1.1 to 3; all columns together, many of them repetitive,
need 15. A prompt is stored once in a dictionary and decoded for each of its sequences, so texts and prompts may expand more."""
BEYOND = 1 << 24
"""Decoded bytes by which all files of one folder (a step, or all statistics) may together exceed these factors: small files may
repeat one value. Computing statistics from rows needs 40 times this memory for a while, for four steps at a time."""

_WORTH_THREADS = 1 << 20
_CHUNK = 1 << 20
SMALL, LARGE = 1 << 18, 1 << 24
"""A file of at most SMALL bytes is read into memory whole; up to LARGE bytes where all of it must be read for its digest."""

FileBytes = BufferedReader | pa.BufferReader
"""The bytes of a file: on disk, or in memory."""
FileSignature = tuple[int, int, int]
"""(inode, size in bytes, mtime in ns) of a file: equal signatures are taken for an unchanged file."""


class FileChanged(SourceError):
    """The file does not have the size or the digest of its commit."""


@dataclass
class Allowance:
    """Bounds the decoded bytes of files: a multiple of each file's size, and `beyond` more for all files of a folder together.

    A file of 300 bytes can decode to gigabytes, and a step can have any number of files.
    """

    beyond: int = BEYOND
    _beyond: dict[str, dict[tuple[str, str], int]] = field(default_factory=dict)
    """folder -> (path, what was decoded) -> bytes beyond the multiple of the file's size."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, path: str, what: str, decoded: int, allowed: int) -> None:
        """Counts the decoded bytes of a part of a file. SourceError, and nothing is counted, where they are too many."""
        more = max(0, decoded - allowed)
        if not more:
            return
        with self._lock:
            of_folder = self._beyond.setdefault(path.rpartition("/")[0], {})
            before = of_folder.get((path, what), 0)
            if more > before:
                if sum(of_folder.values()) - before + more > self.beyond:
                    raise SourceError(
                        f"its {what} decodes to up to {decoded} bytes; at most {allowed} are read, and of all files of its folder"
                        f" together {self.beyond} more: values that are repeated more often could fill any memory"
                    )
                of_folder[path, what] = more


@dataclass(frozen=True)
class Opened:
    """A file whose bytes were checked. Only `read` decodes it."""

    path: str
    parquet: pq.ParquetFile
    """The reader of the checked bytes."""
    source: FileBytes
    """The bytes that `parquet` reads."""
    nbytes: int
    """Size of the file."""
    allowance: Allowance

    @property
    def metadata(self) -> pq.FileMetaData:
        return self.parquet.metadata

    @property
    def schema_arrow(self) -> pa.Schema:
        return self.parquet.schema_arrow

    @property
    def leaves(self) -> frozenset[str]:
        """Paths of all its leaf columns."""
        return frozenset(leaf.path for leaf in leaves(self.metadata))

    def demand_small(self, paths: Collection[str], groups: Collection[int]) -> None:
        """SourceError where these leaf columns decode to more bytes than allowed."""
        prompts = frozenset(path for path in paths if path.partition(".")[0] in PROMPT_FIELDS)
        others = frozenset(paths) - prompts
        for what, own, expansion in (("data", others, EXPANSION), ("prompts", prompts, TEXT_EXPANSION)):
            decoded = decoded_bytes(self._bytes, self.metadata, own, groups) if own else 0
            self.allowance.take(self.path, what, decoded, expansion * self.nbytes)

    def demand_small_texts(self, name: str, column: ArrowColumn) -> None:
        """SourceError where a column of texts, read as a dictionary, decodes to more bytes than allowed."""
        self.allowance.take(self.path, f"column {name!r}", _decoded_text(column), TEXT_EXPANSION * self.nbytes)

    def _bytes(self, at: int, most: int) -> bytes:
        if isinstance(self.source, BufferedReader):
            return os.pread(self.source.fileno(), most, at)
        source: Any = self.source  # the stubs know no offset
        data: bytes = source.read_at(most, at)
        return data


class ParquetFiles:
    """Opens the files of the run at `root`, and remembers which files it has checked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._mirror = mirror_at(root)
        self._checked: dict[tuple[str, str], FileSignature] = {}
        self._allowance = Allowance()
        self.unread = set[str]()
        """Paths of the files that the store failed to read when they were last opened."""

    def place(self, path: str) -> Path:
        """Absolute path of the file."""
        return self.root / path

    def signature(self, path: str) -> FileSignature | None:
        """The signature of the file, by which a change is noticed; None if the file is not there."""
        try:
            file_status = status(self.root, path)
        except OSError:
            return None
        return file_status.st_ino, file_status.st_size, file_status.st_mtime_ns

    def is_missing(self, path: str) -> bool:
        """True if the store says that the file is not there. False also where it does not answer."""
        try:
            status(self.root, path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return False

    def can_be_read(self, path: str) -> bool:
        """True if the store reads every byte of the file."""
        try:
            with open_regular(self.root, path) as file:
                while file.read(_CHUNK):
                    pass
        except OSError:
            return False
        return True

    def checked(self, path: str, sha256: str) -> FileSignature | None:
        """The file's signature when its digest was checked and was this one; None if it never was."""
        return self._checked.get((path, sha256))

    @contextmanager
    def opened(self, path: str, size: int | None, sha256: str | None) -> Iterator[Opened]:
        """The opened file, if it has this size and digest (None: unknown). SourceError says what is wrong with it."""
        with self._named(path), self._checked_file(path, size, sha256) as (file, source):
            metadata = pq.read_metadata(source)
            demand_reasonable(metadata)
            # Texts are read as dictionaries, so that they can be measured before they are decoded.
            texts = text_leaves(metadata)
            # Any: the stubs do not know page_checksum_verification
            options: Any = {"page_checksum_verification": True, "read_dictionary": texts, "pre_buffer": source is file}
            nbytes = os.fstat(file.fileno()).st_size
            with pq.ParquetFile(source, metadata=metadata, **options) as parquet:
                yield Opened(path, parquet, source, nbytes, self._allowance)

    def digest(self, path: str) -> str:
        """The sha256 of the file on disk."""
        with self._named(path), self._checked_file(path, None, None) as (file, _):
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()

    def footer(self, path: str, size: int | None, sha256: str | None) -> pq.FileMetaData:
        """The footer of the file, if the file has this size and digest."""
        with self._named(path), self._checked_file(path, size, sha256) as (_, source):
            metadata = pq.read_metadata(source)
            demand_reasonable(metadata)
            return metadata

    def footers(self, files: Iterable[tuple[str, int]]) -> dict[str, pq.FileMetaData]:
        """path -> the footer of each file that only a store has, read alone: the digest of a whole file is not checked for it.

        files: with their sizes. A footer that cannot be read is left out, so that the file is fetched and its fault is named.
        """
        if self._mirror is None:
            return {}
        found: dict[str, pq.FileMetaData] = {}
        mirror = self._mirror

        def read_one(file: tuple[str, int]) -> None:
            with suppress(SourceError, FileNotFoundError), named_reasons():
                found[file[0]] = pq.read_metadata(pa.BufferReader(mirror.end_of(*file, MOST_FOOTER)))
                demand_reasonable(found[file[0]])

        side_by_side(read_one, [(path, size) for path, size in files if not self.is_here(path)])
        return found

    def is_here(self, path: str) -> bool:
        """False for a file that only the store of the run may have."""
        return self._mirror is None or self.place(path).exists()

    def bring_all(self, files: Iterable[tuple[str, int | None]]) -> None:
        """Fetches those of the files, given with their sizes, that only the store of the run has; several at a time."""
        if self._mirror is not None:
            self._mirror.bring_all(files)

    @contextmanager
    def _named(self, path: str) -> Iterator[None]:
        """Names what goes wrong with the file, and remembers whether it was the store."""
        self.unread.discard(path)
        try:
            with named_reasons():
                yield
        except Unread:
            self.unread.add(path)
            raise

    @contextmanager
    def _checked_file(
        self, path: str, size: int | None, sha256: str | None
    ) -> Iterator[tuple[BufferedReader, FileBytes]]:
        """The file and its checked bytes. A copy from a store that is not as committed is fetched once more."""
        if self._mirror is not None:
            self._mirror.bring(path, size)
        try:
            file, source = self._opened_file(path, size, sha256)
        except FileChanged:
            if self._mirror is None:
                raise
            self._mirror.bring(path, size, again=True)
            self._mirror.follow(every=0)  # the store may announce a newer state of the file by now
            file, source = self._opened_file(path, size, sha256)
        with file:
            yield file, source

    def _opened_file(self, path: str, size: int | None, sha256: str | None) -> tuple[BufferedReader, FileBytes]:
        file = open_regular(self.root, path)
        try:
            return file, self._checked_bytes(path, file, size, sha256)
        except BaseException:
            file.close()
            raise

    def _checked_bytes(self, path: str, file: BufferedReader, size: int | None, sha256: str | None) -> FileBytes:
        """The file, or its bytes in memory: Arrow calls Python for each read of a file, which is slow for a small file."""
        file_status = os.fstat(file.fileno())
        if size is not None and file_status.st_size != size:
            raise FileChanged(f"it has {file_status.st_size} bytes, its commit states {size}: cut short, or replaced")
        signature = file_status.st_ino, file_status.st_size, file_status.st_mtime_ns
        is_known = sha256 is None or self._checked.get((path, sha256)) == signature
        source = pa.BufferReader(file.read()) if file_status.st_size <= (SMALL if is_known else LARGE) else file
        if not is_known:
            assert sha256 is not None
            # raises FileChanged (a SourceError) if these bytes do not have the committed digest
            if isinstance(source, BufferedReader):
                digest = hashlib.file_digest(source, "sha256").hexdigest()
            else:
                digest = hashlib.sha256(source.read_buffer()).hexdigest()
            source.seek(0)
            if digest != sha256:
                raise FileChanged(
                    f"its bytes have changed since they were written: sha256 {digest[:12]} found, {sha256[:12]} committed"
                )
            self._checked[path, sha256] = signature
        return source


def read(
    opened: Opened, columns: Sequence[str], groups: Sequence[int] | None = None, *, present: Sequence[str] | None = None
) -> pa.Table:
    """The columns that the file has of these, in one chunk. SourceError where they decode to too many bytes.

    groups: row groups to read, all unless given. present: the columns of the file, if the caller has them: pyarrow builds
    schema_arrow anew on every access.
    """
    parquet, metadata = opened.parquet, opened.metadata
    in_file = set(opened.schema_arrow.names if present is None else present)
    names = [name for name in columns if name in in_file]
    chosen = range(metadata.num_row_groups) if groups is None else groups
    opened.demand_small(leaves_of(metadata, names), chosen)
    # handing the columns of a small file to threads takes longer than decoding them
    is_large = sum(metadata.row_group(index).total_byte_size for index in chosen) > _WORTH_THREADS
    table = parquet.read_row_groups(list(chosen), columns=names, use_threads=is_large)
    for item in table.schema:
        if pa.types.is_dictionary(getattr(item.type, "value_type", item.type)) or pa.types.is_dictionary(item.type):
            opened.demand_small_texts(item.name, table[item.name])
    return table


def _decoded_text(column: ArrowColumn) -> int:
    """Bytes of the texts of a column that was read as a dictionary."""
    every = (chunk.flatten() if pa.types.is_nested(chunk.type) else chunk for chunk in column.chunks)
    chunks = [chunk for chunk in every if isinstance(chunk, pa.DictionaryArray)]
    lengths = [(pc.binary_length(chunk.dictionary), chunk.indices) for chunk in chunks]
    return sum(pc.sum(length.take(indices).cast(pa.int64())).as_py() or 0 for length, indices in lengths)
