"""OfflineWriter: writes merged and restored files for verbs such as `compact`, and the lines that commit them.

A file is written first, whole and durable. Then one line adds it to the run and, by `replaces`, removes the files it replaces. So
a crash leaves the run either as it was before or as it is after. Lines of other writers are never changed.

A person's event in a run has a log of its own, beside whatever else is being written there.
"""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ratioscope import layout
from ratioscope.errors import SourceError, not_writable
from ratioscope.inside import folder, is_file
from ratioscope.process import host_name
from ratioscope.record import SCHEMA_VERSION

from .durable_file import delete, is_taken, make_folder, move, write_whole
from .log_appender import LogAppender
from .parquet_file import parquet_bytes
from .reading_part import ReadingPart, written_part


class OfflineWriter:
    """Writes its open line together with its first other line, so that a verb that changes nothing writes nothing."""

    def __init__(self, root: Path, verb: str) -> None:
        if is_file(root, layout.MIRROR_MARK):
            raise SourceError(f"{root} is a copy of a run on a store; wanted the folder in which the run was recorded")
        self._root, self._verb = root, verb
        self.writer = layout.offline_writer(f"{host_name()}-{os.getpid()}-{secrets.token_hex(3)}")
        self._log = LogAppender(root, layout.commit_file(self.writer))
        self._is_begun, self._segments = False, 0

    def commit_rows(self, step: int, rows: pa.Table, facts: Mapping[str, Any]) -> str:
        """Writes and commits a token file of these rows. Returns its path."""
        part = 0
        while is_taken(self._root, file := layout.token_file(step, self.writer, part)):
            part += 1
        return self._commit(file, rows, {"step": step, "rows": len(rows), **facts})

    def commit_statistics(self, rows: pa.Table, facts: Mapping[str, Any]) -> str:
        """Writes and commits a segment of statistics. Returns its path."""
        self._segments += 1
        return self._commit(layout.statistics_file(self.writer, self._segments - 1), rows, facts)

    def commit_reading(self, part: ReadingPart, rows: pa.Table) -> str:
        """Writes and commits a file of a reading. Returns its path."""
        self.say()
        written = written_part(self._root, self.writer, part, rows)
        for above in written.folders:
            make_folder(self._root, above, is_known=True)
        write_whole(self._root, written.file, written.data)
        self.say(written.entry)
        return written.file.as_posix()

    def say(self, *entries: Mapping[str, Any]) -> None:
        """Writes lines to the log of this verb, durably."""
        if not self._is_begun:
            make_folder(self._root, layout.COMMITS)
            opening = {"kind": layout.OFFLINE, "verb": self._verb, "host": host_name(), "pid": os.getpid()}
            self._log.say({**opening, "writer": self.writer, "schema": SCHEMA_VERSION, "time": time.time()})
            self._is_begun = True
        self._log.say(*({"time": time.time(), **entry} for entry in entries))

    def commit_file(self, file: str, facts: Mapping[str, Any]) -> None:
        """Commits a file that exists already."""
        self.say({"kind": layout.COMMIT, "file": file, **facts})

    def quarantine(self, file: str, target: str, reason: str) -> None:
        """Moves a file to the quarantine, after a line that says so."""
        make_folder(self._root, layout.QUARANTINE)
        with folder(self._root, layout.QUARANTINE):  # raises before the line is written, if the folder is a link
            pass
        self.say({"kind": layout.MOVED, "file": file, "to": target, "reason": reason})
        move(self._root, file, target)

    def prune(self, files: Sequence[str], steps: Sequence[int], nbytes: int) -> None:
        """Removes the files from the run with one line, then deletes them. steps: those that lose their token rows."""
        self.say({"kind": layout.PRUNED, "files": list(files), "steps": layout.step_spans(steps), "bytes": nbytes})
        self.delete(files)

    def delete(self, files: Sequence[str]) -> None:
        """Deletes files that no longer belong to the run."""
        delete(self._root, files)

    def _commit(self, file: Path, rows: pa.Table, facts: Mapping[str, Any]) -> str:
        self.say()
        entry = {"kind": layout.COMMIT, "file": file.as_posix(), "schema": SCHEMA_VERSION, **facts}
        data = parquet_bytes(rows, {"ratioscope.writer": self.writer, layout.COMMIT_COPY: json.dumps(entry)})
        if file.parent.name != layout.STATISTICS:
            make_folder(self._root, layout.TOKENS, is_known=True)
        make_folder(self._root, file.parent, is_known=True)
        write_whole(self._root, file, data)
        self.say({**entry, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
        return file.as_posix()


def write_remark(path: str | os.PathLike[str], event: str, step: int, note: str) -> str:
    """Writes the event and returns its log, relative to the run. SourceError if the run cannot be written.

    Nobody else writes the log, so a writer at work is not disturbed.
    """
    writer = OfflineWriter(Path(path), "note")
    try:
        writer.say({"kind": layout.EVENT, "event": event, "step": step, "note": note})
    except SourceError:
        raise
    except OSError as error:
        raise not_writable(path, error) from error
    return layout.commit_file(writer.writer).as_posix()
