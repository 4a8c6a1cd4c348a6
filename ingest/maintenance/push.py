"""Uploads a run to a store. Immutable files come first and commit logs last, so that every state in between is a run.

A reader believes what commit logs name. A log is uploaded after the files that it names, so a push that ends early leaves an
older state of the run, and the next push goes on from there. A growing statistics segment is the one file that is replaced: its
new digest is announced in a log of this verb before it is uploaded, so that the older log of its writer is no contradiction.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from ratioscope import layout
from ratioscope.errors import SourceError, Unread
from ratioscope.flat_json import loaded
from ratioscope.inside import is_file, open_regular, status
from ratioscope.record import SCHEMA_VERSION

from ..commits.announcements import PUSHED
from ..files.folder import run_folder
from ..files.listing import Listing, listing, logs
from ..files.run_file import stated_id
from ..remote.address import address_of
from ..remote.side_by_side import side_by_side
from ..remote.store import Store, Stored

PUSH_LOG = layout.commit_file(PUSHED).as_posix()
"""The log on the store that announces replaced segments. The folder on this machine has no such log."""
SMALL_FILES = (layout.RUN_FILE, "ratioscope.toml", "control.json")
"""Files that are replaced whole, uploaded after the rows and before the logs."""
_UPLOADS = 8
_CHUNK = 1 << 20
_TRIES = 5
_TAIL = 64
_SEGMENT, _COMMIT = f'"{layout.STATISTICS}/'.encode(), f'"{layout.COMMIT}"'.encode()

OnUpload = Callable[[int, int], None]
"""A function of the bytes that were uploaded, and of all bytes that will be."""


@dataclass
class Pushed:
    """The outcome of one push."""

    files: int = 0
    bytes: int = 0
    """Their bytes."""
    there: int = 0
    """Files that were on the store already."""
    seconds: float = 0.0
    """Duration."""


@dataclass(frozen=True)
class Snapshot:
    """A state of a run that may be growing. Every file that its logs name up to these lengths is in it."""

    files: tuple[str, ...]
    """Files that never change."""
    growing: Mapping[str, Path]
    """The newest statistics segment of each writer -> a copy of it."""
    logs: Mapping[str, int]
    """Commit log -> its bytes up to the end of its last whole line."""


@dataclass
class _Push:
    """One push on its way."""

    root: Path
    """The folder of the run on this machine."""
    store: Store
    there: Mapping[str, Stored]
    """Path -> the file that the store has."""
    total: int = 0
    """Bytes to upload."""
    progress: OnUpload | None = None
    """Takes the bytes so far and `total`; None if nobody asks."""
    done: Pushed = field(default_factory=Pushed)
    """The numbers so far."""

    _commits: dict[str, dict[str, tuple[str | None, str | None]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, local: Path, path: str) -> None:
        """Uploads one file and counts it."""
        nbytes = local.stat().st_size
        self.store.put(local, path)
        with self._lock:
            self.done.files += 1
            self.done.bytes += nbytes
            if self.progress is not None:
                self.progress(self.done.bytes, max(self.total, self.done.bytes))

    def put_own(self, path: str) -> None:
        """Uploads a file of the run under its own path: the one that is open, so that a link leads to no other file."""
        with open_regular(self.root, path) as opened:
            self.put(Path(f"/dev/fd/{opened.fileno()}"), path)

    def committed(self, segment: str) -> tuple[str | None, str | None]:
        """The digest of a segment by the log on the store, and by the log here."""
        log = layout.commit_file(layout.writer_of(segment)).as_posix()
        if log not in self._commits:
            self._commits[log] = _last_commits(self.root, log, self.there[log].size if log in self.there else 0)
        return self._commits[log].get(segment, (None, None))


def push(folder: Path, url: str, progress: OnUpload | None = None) -> Pushed:
    """Uploads what the store lacks of the run. SourceError if the URL holds another run, or a newer state of this one."""
    root, began = run_folder(folder), time.monotonic()
    address = address_of(url)
    if address is None:
        raise SourceError(f"{url} is no URL; wanted one such as s3://bucket/runs/{root.resolve().name}")
    store = Store(address)
    there = store.files()
    # SourceError where the URL holds another run, or logs that are longer than those of the folder
    if layout.RUN_FILE in there:
        stated = None
        with suppress(ValueError, AttributeError):
            stated = loaded(store.read(layout.RUN_FILE).decode()).get("id")
        if isinstance(stated, str) and stated != stated_id(root):
            raise SourceError(
                f"{store.address} holds another run (id {stated[:40]!r}); wanted an empty place, or this run"
            )
    for path in sorted(_logs(root)):
        if path in there and there[path].size > status(root, path).st_size:
            raise SourceError(
                f"{store.address} has more of {path} than {root}: the folder is an older copy; push from the newest one"
            )
        if path in there and there[path].size and not _continues(root, store, path, there[path].size):
            raise SourceError(f"{store.address} has another {path} than {root}; wanted an empty place, or this run")
    with TemporaryDirectory(prefix="ratioscope-push-") as kept:
        taken = _snapshot(root, Path(kept))
        work = _Push(root, store, there, progress=progress)
        _upload(work, taken, Path(kept))
    work.done.seconds = time.monotonic() - began
    return work.done


def _upload(work: _Push, taken: Snapshot, kept: Path) -> None:
    sizes = {path: status(work.root, path).st_size for path in taken.files}
    immutable = [path for path in taken.files if not _is_there(work, path, sizes[path])]
    segments = [path for path in taken.growing if not _is_current(work, taken, path)]
    newer = [
        path for path, nbytes in taken.logs.items() if nbytes != (work.there[path].size if path in work.there else -1)
    ]
    work.total = sum(sizes[path] for path in immutable) + sum(taken.logs[path] for path in newer)
    work.total += sum(taken.growing[path].stat().st_size for path in segments)
    work.done.there = (
        len(taken.files) + len(taken.growing) + len(taken.logs) - len(immutable) - len(segments) - len(newer)
    )
    side_by_side(work.put_own, immutable, _UPLOADS)
    _announce(work, {path: taken.growing[path] for path in segments if path in work.there}, kept)
    for path in segments:
        work.put(taken.growing[path], path)
    small = [name for name in SMALL_FILES if is_file(work.root, name)]
    if segments or immutable or newer:
        for name in small:
            work.put(_copy(work.root, name, kept / "small"), name)
    else:
        work.done.there += sum(name in work.there for name in small)
    for path in sorted(newer, key=lambda path: (layout.is_offline(Path(path).stem), path)):
        work.put(_copy(work.root, path, kept / "log", taken.logs[path]), path)


def _is_there(work: _Push, path: str, nbytes: int) -> bool:
    """True if the store has the file. A segment that was the newest at an earlier push may be an older one of the same size."""
    stored = work.there.get(path)
    if stored is None or stored.size != nbytes:
        return False
    if not path.startswith(f"{layout.STATISTICS}/"):
        return True
    on_store, here = work.committed(path)
    return on_store is not None and on_store == here


def _is_current(work: _Push, taken: Snapshot, path: str) -> bool:
    copy, stored = taken.growing[path], work.there.get(path)
    return stored is not None and stored.size == copy.stat().st_size and work.committed(path)[0] == _digest(copy)


def _last_commits(root: Path, log: str, nbytes: int) -> dict[str, tuple[str | None, str | None]]:
    """segment -> its digest in its last commit within the first bytes of the log, and in its last commit of all.

    The store has that much of the log. It was uploaded after the segment, so the segment there is no older.
    """
    uploaded: dict[str, tuple[str | None, str | None]] = {}
    if not is_file(root, log):
        return uploaded
    with open_regular(root, log) as opened:
        for line in opened:
            nbytes -= len(line)
            entry = layout.decode_line(line) if _SEGMENT in line and _COMMIT in line else None
            if entry is not None and entry.get("kind") == layout.COMMIT:
                path, sha256 = str(entry.get("file")), entry.get("sha256")
                uploaded[path] = (sha256 if nbytes >= 0 else uploaded.get(path, (None, None))[0], sha256)
    return uploaded


def _announce(work: _Push, segments: Mapping[str, Path], kept: Path) -> None:
    """Announces the new digests of segments that an older state of the store has, in the log of this verb there."""
    if not segments:
        return
    before = work.store.read(PUSH_LOG) if PUSH_LOG in work.there else b""
    before = before[: before.rfind(b"\n") + 1]
    lines = before.splitlines(keepends=True)
    chain = (layout.chain_of(lines[-1]) or "") if lines else ""
    # the first line of the log: it names no machine, because a store is read by others
    entries: list[dict[str, object]] = (
        [] if lines else [{"kind": layout.OFFLINE, "verb": "push", "writer": PUSHED, "schema": SCHEMA_VERSION}]
    )
    entries += [
        {"kind": layout.ANNOUNCED, "file": path, "bytes": copy.stat().st_size, "sha256": _digest(copy)}
        for path, copy in segments.items()
    ]
    with open(kept / "announced", "wb") as log:
        log.write(before)
        for number, entry in enumerate(entries, len(lines)):
            line, chain = layout.chained_line({"time": time.time(), **entry}, number, chain)
            log.write(line)
    work.put(kept / "announced", PUSH_LOG)


def _snapshot(root: Path, kept: Path) -> Snapshot:
    """A state of the run. Segments are copied before the logs are measured: each log then names, or announces, its copy."""
    for _ in range(_TRIES):
        newest = _newest_segments(_listed(root).segments)
        growing = {path: _copy(root, path, kept / f"segment-{place}") for place, path in enumerate(newest)}
        lengths = {path: _whole_lines(root, path) for path in sorted(_logs(root))}
        found = _listed(root)
        if _newest_segments(found.segments) == newest:
            files = sorted((found.parquet_files | found.readings | found.overall) - set(newest))
            return Snapshot(tuple(files), growing, lengths)
    raise SourceError(f"{root} changes faster than it can be copied; push it again later")


def _listed(root: Path) -> Listing:
    """The files of the run; Unread if the store failed to list a folder of it."""
    found = listing(root)
    for path in sorted(found.unlisted):
        raise Unread(f"{root / path}: {found.foreign[path]}; push the run again once that works")
    return found


def _logs(root: Path) -> set[str]:
    paths, failure = logs(root)
    if failure is not None:
        raise Unread(f"{root / layout.COMMITS}: {failure}; push the run again once that works")
    return paths


def _newest_segments(segments: Iterable[str]) -> list[str]:
    newest: dict[str, str] = {}
    for path in sorted(segments):
        newest[layout.writer_of(path)] = path
    return sorted(newest.values())


def _whole_lines(root: Path, log: str) -> int:
    """Bytes of the log up to the end of its last whole line."""
    with open_regular(root, log) as opened:
        nbytes = status(root, log).st_size
        while nbytes:
            start = max(0, nbytes - _CHUNK)
            opened.seek(start)
            end = opened.read(nbytes - start).rfind(b"\n")
            if end >= 0:
                return start + end + 1
            nbytes = start
    return 0


def _copy(root: Path, path: str, into: Path, nbytes: int | None = None) -> Path:
    """A copy of a file of the run, or of its first bytes."""
    left = nbytes
    with open_regular(root, path) as opened, open(into, "wb") as copy:
        while (left is None or left) and (chunk := opened.read(_CHUNK if left is None else min(left, _CHUNK))):
            copy.write(chunk)
            left = None if left is None else left - len(chunk)
    return into


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _continues(root: Path, store: Store, path: str, nbytes: int) -> bool:
    """True if the log on the store is the beginning of ours. The chain in its last line stands for all lines before."""
    start = max(0, nbytes - _TAIL)
    with open_regular(root, path) as opened:
        opened.seek(start)
        return opened.read(nbytes - start) == store.read(path, start, nbytes)
