"""OfflineWriter: writes merged and restored files for verbs such as `compact`, and the lines that commit them.

A file is written first, whole and durable. Then one line adds it to the run and, by `replaces`, removes the files it replaces. So
a crash leaves the run either as it was before or as it is after. Lines of other writers are never changed.

A person's event in a run has a log of its own, beside whatever else is being written there.
An import of another program's log makes a run that holds numbers by step and no tokens: ScalarLog.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ratioscope import layout
from ratioscope.errors import SchemaError, SourceError, not_writable
from ratioscope.inside import folder, is_file
from ratioscope.layout import COMMITS
from ratioscope.process import host_name
from ratioscope.record import SCHEMA_VERSION, reading_fault, reading_schema, scalar_schema

from .durable_file import delete, is_taken, make_folder, move, write_whole
from .joining import logs_beside
from .log_appender import LogAppender
from .parquet_file import ReadingPart, commit_entry, parquet_bytes, written_part
from .run_file import note_attempt, run_id, start_run


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


SCHEMA = reading_schema()
REQUIRED = ("attempt", "step", "sequence_id", "logprobs")


def record_readings(
    run: str | os.PathLike[str],
    name: str,
    rows: Any,
    made_of: Mapping[str, Any],
    *,
    writer: OfflineWriter | None = None,
) -> list[str]:
    """Writes log-probs of recorded tokens into a run under a name. Returns the paths of the files, relative to the run.

    rows: a table (pyarrow, polars, or column name -> values) with attempt, step and sequence_id as `Run.rows` gives them, and
    logprobs, one list per sequence over all its response tokens, in nats; NaN where a token was not scored. Optional:
    positions, where a row is a slice of its sequence, and inclusion_probability, where sequences were chosen by chance.
    made_of: the model, versions and settings that made them.

    A reading of a sequence that is not on record, or of another length, is counted by readers and used by none. A sequence that
    is read again counts by its newest reading.
    """
    if fault := reading_fault(name):
        raise SchemaError(fault)
    root = Path(run)
    if not (root / COMMITS).is_dir():
        raise SourceError(f"{root} is no run with commit logs: readings are of tokens that a run holds")
    table = reading_rows(rows)
    own = writer or OfflineWriter(root, "readings")
    keys = table.select(["attempt", "step"]).group_by(["attempt", "step"]).aggregate([]).sort_by("step").to_pylist()
    files = []
    for key in keys:
        is_part = pc.and_(pc.equal(table["attempt"], key["attempt"]), pc.equal(table["step"], key["step"]))
        part = ReadingPart(name, key["attempt"], key["step"], made_of)
        files.append(own.commit_reading(part, table.filter(is_part)))
    return files


def reading_rows(rows: Any) -> pa.Table:
    """The rows in the schema of readings. SchemaError says which column is missing or of another kind."""
    given = rows.to_arrow() if hasattr(rows, "to_arrow") else rows
    table = given if isinstance(given, pa.Table) else pa.table(dict(given))
    if missing := [name for name in REQUIRED if name not in table.column_names]:
        raise SchemaError(
            f"the rows of a reading have no column {missing[0]!r}: they have {', '.join(table.column_names)}; wanted"
            f" {', '.join(REQUIRED)}. Run.rows(step, columns) gives the first three"
        )
    present = [field for field in SCHEMA if field.name in table.column_names]
    try:
        columns = [table[field.name].cast(field.type) for field in present]
    except (pa.ArrowException, TypeError) as error:
        raise SchemaError(f"the rows of a reading: {error}; wanted {SCHEMA.to_string()}") from error
    whole = pa.table(columns, names=[field.name for field in present])
    if empty := [name for name in REQUIRED if whole[name].null_count]:
        raise SchemaError(
            f"{whole[empty[0]].null_count} rows of the reading have no {empty[0]}; wanted it in every row"
        )
    if "inclusion_probability" in whole.column_names:
        probability = whole["inclusion_probability"].drop_null().to_numpy()
        if not ((probability > 0) & (probability <= 1)).all():
            found = f"[{probability.min()}, {probability.max()}]"
            raise SchemaError(f"inclusion_probability is in {found}; wanted values in (0, 1]")
    return whole


class ScalarLog:
    """Writes the numbers of one attempt. Each file is whole and durable before the line that commits it."""

    def __init__(self, root: Path, info: Mapping[str, Any], attempt: int) -> None:
        self._root, self._attempt, self._parts = root, attempt, 0
        self.writer = f"r00000-import-{attempt}-{secrets.token_hex(3)}"
        start_run(root, info)
        for name in (layout.SCALARS, layout.COMMITS):
            make_folder(root, PurePath(name), is_known=attempt > 0)
        if attempt:
            note_attempt(root, attempt, info)
        self._log = LogAppender(root, layout.commit_file(self.writer))
        self._say(
            layout.OPEN,
            writer=self.writer,
            rank=0,
            host=host_name(),
            attempt=attempt,
            schema=SCHEMA_VERSION,
            run=run_id(root),
            beside=logs_beside(root, self.writer),
        )

    def write(self, rows: pa.Table) -> None:
        """Writes and commits a file. rows: step, name, value, and metric, the metric of the same definition or null."""
        attempts = pa.repeat(pa.scalar(self._attempt, pa.int32()), len(rows))
        own = rows.append_column("attempt", attempts).select(scalar_schema().names).cast(scalar_schema())
        file = layout.scalar_file(self.writer, self._parts)
        data = parquet_bytes(own, {"ratioscope.writer": self.writer, "ratioscope.schema": str(SCHEMA_VERSION)})
        write_whole(self._root, file, data)
        self._parts += 1
        steps = sorted(step for step in pc.unique(own["step"]).to_pylist() if step is not None)
        self._log.say({**commit_entry(file, data), "rows": len(own), "steps": steps, "schema": SCHEMA_VERSION})

    def close(self) -> None:
        """Says that the attempt is complete. Its rows are numbers of steps, so it wrote no sequence."""
        self._say(
            layout.CLOSE, offered=0, written=0, left_out=0, dropped=0, beside=logs_beside(self._root, self.writer)
        )

    def _say(self, kind: str, **members: Any) -> None:
        self._log.say({"kind": kind, **members, "time": time.time()})
