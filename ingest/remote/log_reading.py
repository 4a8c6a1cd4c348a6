"""One look at a run on a store: run.json, the rules and the commit logs, as far as they are new, are put into the copy.

The copy of one commit log on a store, which follows the log: bytes that were appended are read, and nothing else.

An object on a store is replaced whole by each upload. The end of the copy is read again and compared. Its last line holds the
checksum of all lines before it, so a log that was replaced by another one is noticed, and read from its start.
"""

import filecmp
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ratioscope.errors import SourceError
from ratioscope.flat_json import loaded
from ratioscope.layout import COMMITS, MIRROR_MARK, OVERALL, READINGS, RUN_FILE, SCALARS, STATISTICS, TOKENS, TOPK
from ratioscope.whole_file import whole_file

from .mirror_state import MirrorState
from .side_by_side import side_by_side
from .store import Store, Stored

SMALL_FILES = (RUN_FILE, "ratioscope.toml")
MOST_SMALL = 1 << 22
MOST_LOGS = 20_000
NAME = re.compile(r"[^./_\x00-\x1f\x7f][^/\x00-\x1f\x7f]{0,250}")
"""A name on a store that becomes the name of a file here. Readers pass over names that begin with a dot or an underscore."""

MOST_LOG = 1 << 30
"""Bytes of one log at most. The log of 100,000 steps has 60 MB."""
_OVERLAP = 1 << 12
_CHUNK = 1 << 23


@dataclass
class LogReading:
    """One look at the store."""

    root: Path
    """The run folder of the copy."""
    store: Store
    state: MirrorState
    """The state known before; afterwards the state known now."""

    def read(self) -> None:
        """Puts what is new into the copy. SourceError if there is no run; Unreachable."""
        top, names = self.store.names(), self.store.names(COMMITS)
        logs = {name: stored for name, stored in names.items() if name.endswith(".jsonl") and NAME.fullmatch(name)}
        if len(logs) > MOST_LOGS:
            raise SourceError(f"{self.store.address} has {len(logs)} commit logs; at most {MOST_LOGS} are read")
        if not logs and RUN_FILE not in top:
            raise SourceError(self._no_run(top))
        self.state.refused = {}
        self.root.mkdir(0o700, parents=True, exist_ok=True)
        (self.root / MIRROR_MARK).touch(0o600)  # so that no verb writes into the copy
        for name in SMALL_FILES:
            self._read_small(name, top.get(name))
        self._notice_another_run(logs)
        self._read_logs(logs)
        self.state.read, self.state.failed, self.state.why = time.time(), None, ""

    def _read_small(self, name: str, stored: Stored | None) -> None:
        local = self.root / name
        if stored is None:
            local.unlink(missing_ok=True)
        elif stored.size > MOST_SMALL:
            self.state.refused[name] = f"it has {stored.size} bytes; at most {MOST_SMALL} are read"
        elif self.state.marks.get(name) != [stored.size, stored.mark] or not local.exists():
            local.parent.mkdir(0o700, parents=True, exist_ok=True)
            with suppress(FileNotFoundError), whole_file(local) as file:
                file.write(self.store.read(name, 0, stored.size))
            self.state.marks[name] = [stored.size, stored.mark]

    def _notice_another_run(self, logs: Collection[str]) -> None:
        """Clears the copy where another run was recorded at this address since, or where a log is gone."""
        run, known = None, set[str]()
        with suppress(FileNotFoundError):
            known = set(os.listdir(self.root / COMMITS))
        with suppress(OSError, ValueError, AttributeError):
            run = loaded((self.root / RUN_FILE).read_bytes().decode()).get("id")
        run = run if isinstance(run, str) else None
        if (run != self.state.run and self.state.run is not None) or known - set(logs):
            for name in (COMMITS, TOKENS, STATISTICS, SCALARS, OVERALL, READINGS, TOPK):
                shutil.rmtree(self.root / name, ignore_errors=True)
        self.state.run = run

    def _read_logs(self, logs: dict[str, Stored]) -> None:
        folder, marks = self.root / COMMITS, self.state.marks
        folder.mkdir(0o700, exist_ok=True)
        copies = []
        for name, stored in logs.items():
            path = f"{COMMITS}/{name}"
            if stored.size > MOST_LOG:
                self.state.refused[path] = f"it has {stored.size} bytes; at most {MOST_LOG} of a log are read"
            elif marks.get(path) != [stored.size, stored.mark] or not (folder / name).exists():
                copies.append(LogCopy(self.store, path, folder / name, stored))

        def advance(copy: LogCopy) -> None:
            with suppress(FileNotFoundError):  # removed since it was listed
                copy.advance()
                if copy.is_current:
                    marks[copy.path] = [copy.stored.size, copy.stored.mark]

        side_by_side(advance, copies)

    def _no_run(self, top: dict[str, Stored]) -> str:
        """Words on an address without a run: it may be a folder of runs."""
        address = self.store.address
        folders = [name for name in sorted(top)[:50] if top[name].is_folder]
        if runs := [name for name in folders if RUN_FILE in self.store.names(name)][:5]:
            every = ", ".join(f"{address}/{name}" for name in runs)
            return f"{address} is no run, but holds {'runs' if len(runs) > 1 else 'one'}: open {every}"
        holds = f"it holds {', '.join(sorted(top)[:5])}" if top else "there is nothing"
        return f"{address} is no run: {holds}; a run holds {RUN_FILE}, {TOKENS}/, {STATISTICS}/ and {COMMITS}/"


@dataclass
class LogCopy:
    """The copy of one log."""

    store: Store
    path: str
    """Path of the log, relative to the run."""
    local: Path
    """The copy."""
    stored: Stored
    """The log as the store lists it now."""

    @property
    def is_current(self) -> bool:
        """True if the copy has the listed size."""
        return self.local.stat().st_size == self.stored.size

    def advance(self) -> None:
        """Copies what is new. FileNotFoundError; Unreachable. Whatever ends it, the copy is a beginning of the log."""
        have = self.local.stat().st_size if self.local.exists() else 0
        if not 0 < have < self.stored.size or not self._is_continued(have):
            # the whole log takes the place of the copy unless they are equal: readers take another file for another log
            fresh = self.local.with_name(f".{self.local.name}.part")
            try:
                with open(fresh, "wb") as file:
                    file.writelines(self._chunks())
                if not self.local.exists() or not filecmp.cmp(fresh, self.local, shallow=False):
                    os.replace(fresh, self.local)
            finally:
                fresh.unlink(missing_ok=True)

    def _is_continued(self, have: int) -> bool:
        """Appends what the log has beyond the copy. False, and nothing is changed, if it is another log."""
        overlap = min(have, _OVERLAP)
        with open(self.local, "r+b") as copy:
            copy.seek(have - overlap)
            end = copy.read(overlap)
            data = self.store.read(self.path, have - overlap, min(self.stored.size, have + _CHUNK))
            if data[:overlap] != end:
                return False
            data = data[overlap:]
            while data:
                copy.write(data)
                have += len(data)
                more = min(self.stored.size, have + _CHUNK)
                data = self.store.read(self.path, have, more) if more > have else b""
        return True

    def _chunks(self) -> Iterator[bytes]:
        """The log in pieces, up to its end or to the first empty answer."""
        at = 0
        while at < self.stored.size and (data := self.store.read(self.path, at, min(self.stored.size, at + _CHUNK))):
            yield data
            at += len(data)
