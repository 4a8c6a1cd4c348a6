"""The files of a run on a store: listings, ranges, whole files, and uploads. fsspec is the door, and its errors end here.

Credentials come from the environment or the store's own settings, and are never stored or shown. Every request has a deadline.
Asks a store with a deadline. A request that is not answered in time is given up, so that nobody waits for ever.
"""

import os
import re
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar
from weakref import WeakSet

from ratioscope.errors import RatioscopeError, SourceError
from ratioscope.redaction import without_secrets

from .address import Address
from .filesystems import S3, every_file, filesystem_of, part_of
from .listing import Lister, TooMany, is_apart

_WHOLE_AT_ONCE = (*S3, "gs", "gcs", "hf", "abfs", "abfss", "az", "adl", "memory", "oci")
"""Stores on which an upload appears whole or not at all. On others it gets a name with a dot first, and then its own."""
PATIENCE_VARIABLE = "RATIOSCOPE_STORE_SECONDS"
_PATIENCE = 60.0
"""Seconds that a request may take, unless $RATIOSCOPE_STORE_SECONDS states others."""
_SLOWEST = 50_000
"""Bytes per second: an upload that is slower for long is given up."""
_CHUNK = 1 << 23
_SPACE = re.compile(r"\s+")

Result = TypeVar("Result")
MOST_GIVEN_UP = 16
"""Requests that were given up and still go on, at which no further one is made: each holds a thread and a connection."""
_GIVEN_UP: "WeakSet[threading.Thread]" = WeakSet()


class Unreachable(SourceError):
    """The store did not answer, or refused. All that is known of the run stays known: a failure is no deletion."""


@dataclass(frozen=True)
class Stored:
    """A file on the store, as a listing describes it."""

    size: int
    """Bytes."""
    mark: str
    """Changes when the file's content does: the store's tag, version or time."""
    is_folder: bool = False
    """True for a folder, on stores that have any."""


@dataclass
class Store:
    """The folder of a run on a store."""

    address: Address
    calls: int = 0
    """Requests made through this door: a listing of many files counts as one."""
    received: int = 0
    """Bytes that were read through it."""
    seconds: float = field(default_factory=lambda: patience())
    """Seconds that a request may take. The listing of a whole run may take twice as long."""
    _opened: tuple[Any, str] | None = field(default=None, repr=False)
    """fsspec's file system and the path of the run in it; None before the first request."""
    _lister: Lister | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def files(self) -> dict[str, Stored]:
        """Path relative to the run -> file. Empty where there is nothing. Unreachable if the store did not say so."""
        filesystem, root = self._place()

        def ask() -> dict[str, dict[str, Any]]:
            filesystem.invalidate_cache()
            return every_file(filesystem, root)

        try:
            files = self._listed(None, ask, 2 * self.seconds)
        except FileNotFoundError:
            return {}
        below = {name[len(root) + 1 :]: facts for name, facts in files.items() if name.startswith(f"{root}/")}
        return {path: _stored(facts) for path, facts in below.items()}

    def names(self, folder: str = "") -> dict[str, Stored]:
        """Name -> file or folder directly in a folder of the run. Empty where there is nothing. Unreachable."""
        filesystem, root = self._place()
        place = f"{root}/{folder}".rstrip("/")

        def ask() -> dict[str, dict[str, Any]]:
            filesystem.invalidate_cache()
            return {str(facts["name"]): facts for facts in filesystem.ls(place, detail=True)}

        try:
            described = self._listed(folder, ask, self.seconds)
        except FileNotFoundError:
            return {}
        paths = {path.rstrip("/"): facts for path, facts in described.items()}
        return {path[len(place) + 1 :]: _stored(facts) for path, facts in paths.items() if path.startswith(f"{place}/")}

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Bytes of a file from `start` to `end`. FileNotFoundError; Unreachable."""
        filesystem, root = self._place()

        data = self._asked(lambda: part_of(filesystem, f"{root}/{path}", start, end, self.seconds))
        self._count(len(data))
        return data

    def fetch(self, path: str, into: IO[bytes], most: int) -> None:
        """Writes a file, part by part, into an open one. FileNotFoundError; Unreachable; SourceError beyond `most` bytes."""
        filesystem, root = self._place()
        source = self._asked(lambda: filesystem.open(f"{root}/{path}", "rb", block_size=_CHUNK))
        left = most
        try:
            while chunk := self._asked(lambda: bytes(source.read(min(_CHUNK, left + 1)))):
                self._count(len(chunk))
                if (left := left - len(chunk)) < 0:
                    raise SourceError(f"it has more than {most} bytes on {self.address}, the most that is read of it")
                into.write(chunk)
        finally:
            self._asked(source.close)

    def put(self, local: Path, path: str) -> None:
        """Uploads a file, which appears whole or not at all. Unreachable."""
        filesystem, root = self._place()
        folder, _, name = f"{root}/{path}".rpartition("/")
        is_whole = self.address.scheme in _WHOLE_AT_ONCE
        target = f"{folder}/{name}" if is_whole else f"{folder}/.{name}.part"

        def ask() -> None:
            if self.address.scheme in S3:  # put_file would make an empty object for each folder above
                _uploaded(filesystem, local, target)
                return
            if not is_whole:
                filesystem.makedirs(folder, exist_ok=True)
            filesystem.put_file(str(local), target)
            if not is_whole:
                filesystem.mv(target, f"{folder}/{name}")

        self._asked(ask, 2 * self.seconds + local.stat().st_size / _SLOWEST)

    def _place(self) -> tuple[Any, str]:
        """(the filesystem of fsspec, the run's path on it). MissingExtra where a package is missing."""
        if self._opened is None:
            self._opened = self._asked(lambda: filesystem_of(self.address, self.seconds))
        return self._opened

    def _listed(
        self, folder: str | None, here: Callable[[], dict[str, dict[str, Any]]], seconds: float
    ) -> dict[str, dict[str, Any]]:
        """A listing: of this process for what lies in it, and otherwise of a process that can be ended."""
        if not is_apart(self.address):
            return self._asked(here, seconds)
        if self._lister is None:
            self._lister = Lister(self.address, self.seconds)
        lister, (filesystem, _) = self._lister, self._place()
        filesystem.invalidate_cache()  # of the files that this process reads by what it knew of them
        try:
            return self._named(lambda: lister.listed(folder, seconds))
        except TooMany as error:
            raise SourceError(f"{self.address}: {error}") from error

    def _asked(self, ask: Callable[[], Result], seconds: float | None = None) -> Result:
        """One request, with a deadline. FileNotFoundError; Unreachable."""
        return self._named(lambda: answered(ask, self.seconds if seconds is None else seconds))

    def _named(self, ask: Callable[[], Result]) -> Result:
        """One request. FileNotFoundError and errors of ours pass; every other one becomes Unreachable, without secrets."""
        with self._lock:
            self.calls += 1
        try:
            return ask()
        except RatioscopeError:
            raise
        except FileNotFoundError as error:
            raise FileNotFoundError(self.address.scrubbed(str(error))) from None
        except Exception as error:  # whatever the many packages behind fsspec raise
            raise Unreachable(self._words(error)) from None

    def _count(self, nbytes: int) -> None:
        with self._lock:
            self.received += nbytes

    def _words(self, error: Exception) -> str:
        said = without_secrets(self.address.scrubbed(str(error) or type(error).__name__))
        text = _SPACE.sub(" ", said)[:300]
        return f"{self.address} cannot be reached: {text}; wanted its answer: check the network and the credentials"


def patience() -> float:
    """Seconds that a request to a store may take."""
    stated = os.environ.get(PATIENCE_VARIABLE, "")
    return float(stated) if re.fullmatch(r"\d{1,5}(\.\d+)?", stated) and float(stated) else _PATIENCE


def _uploaded(filesystem: Any, local: Path, target: str) -> None:
    """Uploads through pyarrow. An error removes what its stream commits when it is closed."""
    with open(local, "rb") as source, filesystem.open(target, "wb") as sink:
        try:
            shutil.copyfileobj(source, sink, _CHUNK)
        except OSError:
            sink.close()
            filesystem.rm_file(target)
            raise


def _stored(facts: dict[str, Any]) -> Stored:
    return Stored(int(facts.get("size") or 0), _mark(facts), facts.get("type") == "directory")


def _mark(facts: dict[str, Any]) -> str:
    """The store's own mark of a content, by the names that the packages behind fsspec use."""
    names = ("ETag", "etag", "md5Hash", "generation", "blob_id", "LastModified", "last_modified", "mtime", "created")
    return " ".join(str(facts[name]) for name in names if facts.get(name) is not None)


def going_on() -> int:
    """The number of requests that were given up and still go on: a store may send a byte now and then for ever."""
    return sum(thread.is_alive() for thread in list(_GIVEN_UP))


def answered(ask: Callable[[], Result], seconds: float) -> Result:
    """The answer, or the error of the request. TimeoutError after so many seconds.

    The packages behind fsspec bound their waits in different ways, and some do not. A thread that waits for a store that never
    answers ends with the process and delays nobody: it is a daemon, unlike the threads of a pool.
    """
    if going_on() >= MOST_GIVEN_UP:
        raise TimeoutError(f"{MOST_GIVEN_UP} requests were given up, and the store has not ended them")
    answer: Future[Result] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    thread = threading.Thread(target=work, name="ratioscope-store", daemon=True)
    thread.start()
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        if answer.done():  # the package's own time-out
            raise
        _GIVEN_UP.add(thread)
        raise TimeoutError(f"no answer within {seconds:g} seconds") from error
