"""Listings of a store, made by a process of their own: a store that lists without end is left when the process is ended.

No package behind fsspec bounds a listing, and the client of S3 cannot be told to stop one. The process holds the store's client
and answers one request after the other. The address, which may hold a password, reaches it through a pipe.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any
from weakref import finalize

from ratioscope.errors import SourceError

from .address import Address

MOST_NAMES = 1 << 20
"""Names of one listing at most. A run of 100,000 steps has fewer."""
MOST_BYTES = 1 << 28
"""Bytes of one listing at most, as the process passes it on."""
_START_SECONDS = 60.0
_IN_PROCESS = ("memory", "file", "local")
"""Schemes whose files are those of this process or machine."""
_PROGRAM = """import sys
sys.path[:] = {path!r}
from ratioscope.ingest.remote.listing_program import main
main()"""


class TooMany(SourceError):
    """A listing that has more names or bytes than a run has."""


def is_apart(address: Address) -> bool:
    """True for a store that a process of its own can list."""
    return address.scheme not in _IN_PROCESS


@dataclass
class Lister:
    """The process that lists a store. It is started when it is first asked, and again after it was ended."""

    address: Address
    seconds: float
    """Seconds that each request of the process may take."""
    _process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)
    """None until it is started."""
    _end: "finalize[..., Lister] | None" = field(default=None, repr=False)
    """Ends the process, at the latest with this object."""
    _alone: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Held while the process answers: it answers one question at a time."""

    def listed(self, folder: str | None, seconds: float) -> dict[str, dict[str, Any]]:
        """Path -> facts of every file of the run, or of what is directly in a folder of it. TimeoutError; FileNotFoundError.

        Whatever ends it but the store's own answer ends the process, and with it the request. OSError for another error.
        """
        with self._alone:
            try:
                process = self._running()
                asked = {"url": self.address.url, "folder": folder, "seconds": self.seconds}
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write(json.dumps(asked).encode() + b"\n")
                process.stdin.flush()
                lines = _lines(process.stdout, seconds)
                found = {path: facts for path, facts in map(json.loads, iter(lines.__next__, b"."))}
            except BaseException:
                self.end()
                raise
            failed: dict[str, str] = found.pop("", {})
        if failed:
            raise (
                FileNotFoundError(failed["words"])
                if failed["kind"] == "FileNotFoundError"
                else OSError(failed["words"])
            )
        return found

    def _running(self) -> "subprocess.Popen[bytes]":
        """The process, once it can be asked."""
        if self._process is None or self._process.poll() is not None:
            self.end()
            self._process = _started()
            self._end = finalize(self, _ended, self._process)
            assert self._process.stdout is not None
            next(_lines(self._process.stdout, _START_SECONDS))
        return self._process

    def end(self) -> None:
        """Ends the process, if there is one, and a request that it is making."""
        if self._end is not None:
            self._end()
        self._process = self._end = None


def _ended(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    with process:  # closes its pipes, and waits for it
        pass


def _started() -> "subprocess.Popen[bytes]":
    program = _PROGRAM.format(path=[os.path.abspath(part or ".") for part in sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip


def _lines(answers: IO[bytes], seconds: float) -> Iterator[bytes]:
    """The lines that come within so many seconds. TimeoutError; TooMany; OSError where the process ended."""
    rest, count, nbytes, until = b"", 0, 0, time.monotonic() + seconds
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([answers], [], [], left)[0]:
            raise TimeoutError(f"no whole listing within {seconds:g} seconds")
        data = os.read(answers.fileno(), 1 << 20)
        if not data:
            raise TooMany("its listing ended the process that read it: it is larger than that of any run")
        *whole, rest = (rest + data).split(b"\n")
        count, nbytes = count + len(whole), nbytes + len(data)
        if count > MOST_NAMES or nbytes > MOST_BYTES:
            raise TooMany(f"its listing has more than {MOST_NAMES} names or {MOST_BYTES} bytes; no run has so many")
        yield from whole
