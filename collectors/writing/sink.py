"""Where rows go. ParquetSink is the run folder; a Sink of your own takes the same three calls.

A step is committed in this order: token file (temp, fsync, rename, fsync of the folder), statistics segment (the same,
replacing its older self), commit lines. A reader that believes the lines never sees less than they say.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import layout
from ratioscope.inside import content
from ratioscope.metrics.engines.parts import gathered
from ratioscope.process import host_name, pid_namespace
from ratioscope.record import GAPS, POLICIES, SCHEMA_VERSION, SLICED_BY

from ..batch.records import tokens_of
from ..budget import CONTROL_FILE, Budget, Control, Spending
from ..process.counts import Tally, reason_of
from ..process.notice import warn
from ..process.trainer_process import trainer_process
from .commit_log import CommitLog
from .durable_file import is_taken, make_folder, sync_folder, write_whole
from .first_rows_note import first_look
from .health import Change, Health
from .joining import logs_beside, place_in_run
from .live_scalars import LiveScalars
from .measured_sequences import MeasuredSequences
from .run_file import launch, note_attempt, run_id, start_run
from .sampling import chosen
from .segments import Segments
from .step_statistics import part_statistics

_MOST_KNOWN = 64  # folders
_MOST_SEGMENT = 1 << 28  # bytes
_ROW_GROUP_TOKENS = 1 << 22


@dataclass(frozen=True)
class Unsaved:
    """What of all that a sink was given is not durable. steps: of which statistics wait in memory; lost: of which they were given
    up there, too; lines: of the commit log that wait; reason: why. False where all of it is durable."""

    steps: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()
    lines: int = 0
    reason: str = ""

    def __bool__(self) -> bool:
        return bool(self.steps or self.lost or self.lines or self.reason)


@dataclass(frozen=True)
class Outcome:
    """What became of the rows of a step. rows, tokens: on disk. left_out: not, because the budget chose so.

    refused: why the others are not; their statistics are all the same. failures: what else failed, without a row being lost.
    """

    rows: int
    tokens: int
    left_out: int = 0
    refused: str | None = None
    failures: tuple[str, ...] = ()


class Sink(Protocol):
    """Called by the writer's thread alone. Whatever a call raises is counted; the next call is made all the same."""

    def open(self) -> int:
        """Makes ready; the attempt that rows belong to. Called again until it succeeds."""
        ...

    def write(self, step: int, rows: pa.Table, earlier: pa.Table | None, tally: Tally, late: str | None) -> Outcome:
        """Makes the rows of a step durable, and their statistics. Raises if it could do neither.

        earlier: the rows of the same step that were written just before, where the step comes in parts. late: why the writer
        has no time for token rows now; None: it has.
        """
        ...

    def say(self, entry: Mapping[str, Any]) -> None:
        """Makes a line of the commit log durable, now or with a later call."""
        ...


@runtime_checkable
class Saving(Sink, Protocol):
    """A sink that may hold in memory what could not be written. Any other is taken at its word: what its calls were given is
    durable, or was told of in their outcome or by what they raised."""

    def unsaved(self) -> Unsaved:
        """What is not durable."""
        ...

    def save(self) -> Unsaved:
        """Tries once more to make all of it durable; what still is not."""
        ...


def unsaved(sink: Sink) -> Unsaved:
    """What of all that the sink was given is not durable, as far as it tells. Never raises."""
    return _told(sink.unsaved) if isinstance(sink, Saving) else Unsaved()


def saved(sink: Sink) -> Unsaved:
    """The same, after the sink has tried once more."""
    return _told(sink.save) if isinstance(sink, Saving) else Unsaved()


def _told(ask: Callable[[], Unsaved]) -> Unsaved:
    try:
        return ask()
    except Exception as error:
        return Unsaved(reason=reason_of(error))


class ParquetSink:
    """One writer's part of a run folder."""

    def __init__(
        self,
        root: Path,
        info: Mapping[str, Any],
        *,
        rank: int,
        part_of: str | None = None,
        attempt: int | None = None,
        versions: str | None = None,
        live: LiveScalars | None = None,
        budget: Budget | None = None,
        health: Health | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root, self._info, self._rank, self._attempt = root, info, rank, attempt
        self._part_of, self._takes_over = part_of, tuple[str, ...]()
        self._versions, self._live, self._has_looked = versions, live, False
        self._health, self._clock = health or Health(), clock
        self._control = Control(root / CONTROL_FILE, budget or Budget(), budget or Budget())
        self._spending = Spending()
        self._process = trainer_process()
        self.writer = f"r{rank:05d}-{host_name()}-{self._process.pid}-{secrets.token_hex(3)}"
        self._log = CommitLog(root, layout.commit_file(self.writer))
        self._folder: tuple[int, int] | None = None
        self._is_announced = False
        self._segments = Segments(self._segment_entry)
        self._newest_step = 0
        self._unmeasured: int | None = None
        self._sequences = MeasuredSequences()
        self._reason = ""
        self._newest_segment: tuple[Path, str] | None = None  # and its digest
        self._known = set[PurePath]()

    def begin(self) -> None:
        """Makes the folder and run.json, where there is none yet."""
        start_run(self._root, self._info)

    def open(self) -> int:
        if self._folder is None or self._folder != _identity(self._root, self._folder):
            was_open = self._folder is not None
            self._make_folders()
            if self._attempt is None:
                found = place_in_run(self._root, self._rank, self._part_of)
                self._attempt, self._takes_over, self._part_of = found.attempt, found.takes_over, found.part_of
            self._announce(self._attempt, again=was_open and not is_taken(self._root, self._log.file))
            self._health.try_now()
            self._folder = _identity(self._root)
        assert self._attempt is not None
        return self._attempt

    def write(self, step: int, rows: pa.Table, earlier: pa.Table | None, tally: Tally, late: str | None) -> Outcome:
        self._newest_step = max(step, self._newest_step)
        self._segments.roll_over(step)
        failures = self._try("statistics", lambda: self._measured(step, rows, earlier))
        self._refresh_control(step)
        now, kept = self._clock(), self._kept(step, rows)
        in_the_way = late or (None if self._health.may_write_rows(now) else self._health.reason)
        files, refused = _tried(in_the_way, lambda: [self._token_file(step, kept, len(rows) - len(kept), tally)])
        in_the_way = None if self._health.may_write_statistics(now) else self._health.reason
        segments, waits = ([], in_the_way) if in_the_way is not None else self._segments.save()
        failures += [] if waits is None else [f"statistics: {waits}"]
        # on disk are the statistics of the step's earlier parts
        if (waits is not None and earlier is not None) or self._sequences.is_given_up(step):
            files = [{**entry, "unmeasured": True} for entry in files]
        if refused is None and waits is None:
            self._segments.expect_room()
        self._reason = waits or ""
        self._say_change(step, self._health.told(now, rows=refused, statistics=waits))
        failures += self._try("commit log", lambda: self._log.say(*files, *segments))
        if refused is not None:
            return Outcome(0, 0, 0, refused, tuple(failures))
        return Outcome(len(kept), tokens_of(kept), len(rows) - len(kept), None, tuple(failures))

    def say(self, entry: Mapping[str, Any]) -> None:
        if entry["kind"] == layout.CLOSE:  # the last chance of what waits in memory
            self.save()
            with suppress(OSError):
                entry = {**entry, "beside": logs_beside(self._root, self.writer)}
        self._log.say({**entry, "time": time.time()})

    def unsaved(self) -> Unsaved:
        return Unsaved(self._segments.waiting, frozenset(self._segments.lost), self._log.waiting, self._reason)

    def save(self) -> Unsaved:
        entries, reason = self._segments.save()
        try:
            self._log.say(*entries)
        except OSError as error:
            reason = reason or reason_of(error)
        self._reason = reason or ""
        return self.unsaved()

    def _make_folders(self) -> None:
        start_run(self._root, self._info)
        self._known.clear()
        for folder in (layout.TOKENS, layout.STATISTICS, layout.COMMITS):
            self._make_folder(PurePath(folder))

    def _make_folder(self, path: PurePath) -> None:
        make_folder(self._root, path, is_known=path in self._known)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add(path)

    def _announce(self, attempt: int, *, again: bool) -> None:
        """Says that the writer has begun, in a new folder too: a line that cannot be written waits for the next."""
        if not self._is_announced or again:
            self._is_announced = True
            self._log.begin_anew()
            self._log.say(self._opening())
        if again:
            told = "the run folder was deleted or replaced; recording goes on in a new one"
            self._event(self._newest_step, layout.STATE, told, state=self._health.state)
        try:
            note_attempt(self._root, attempt, self._info)
        except (OSError, ValueError) as error:  # what readers go by is the line above
            warn("%s: attempt %d cannot be added to run.json: %s", self._root, attempt, error)

    def _try(self, what: str, act: Callable[[], None]) -> list[str]:
        """What went wrong, if anything did; it loses no row."""
        try:
            act()
        except Exception as error:
            return [f"{what}: {reason_of(error)}"]
        return []

    def _refresh_control(self, step: int) -> None:
        told = self._control.refresh()
        if told is not None:
            warn("%s: step %d: %s", self._root, step, told)
            self._event(step, layout.CONTROL, told)

    def _kept(self, step: int, rows: pa.Table) -> pa.Table:
        """The rows that the budget has room for."""
        budget = self._control.now
        share = self._spending.share(budget, step, tokens_of(rows))
        return chosen(rows, share, worst=budget.worst, seed=budget.seed)

    def _say_change(self, step: int, change: Change | None) -> None:
        if change is not None:
            warn("%s: step %d: %s", self._root, step, change)
            self._event(step, layout.STATE, str(change), state=change.now)

    def _event(self, step: int, event: str, note: str, **more: str) -> None:
        with suppress(OSError):  # the line waits for the next one
            self.say({"kind": layout.EVENT, "event": event, "step": step, "note": note, **more})

    def _opening(self) -> dict[str, Any]:
        return {
            "kind": layout.OPEN,
            "writer": self.writer,
            "rank": self._rank,
            "host": host_name(),
            "pid": self._process.pid,
            "started": self._process.started,
            "namespace": pid_namespace(),
            "attempt": self._attempt,
            "launch": launch(),
            "schema": SCHEMA_VERSION,
            "run": run_id(self._root),
            "beside": logs_beside(self._root, self.writer),
            "time": time.time(),
            **({"part_of": self._part_of} if self._part_of is not None else {}),
            **({"takes_over": list(self._takes_over)} if self._takes_over else {}),
        }

    def _token_file(self, step: int, rows: pa.Table, left_out: int, tally: Tally) -> dict[str, Any]:
        policies = [policy for policy in POLICIES if rows[f"{policy}_logprobs"].null_count < len(rows)]
        data = parquet_bytes(rows, {"ratioscope.writer": self.writer, "ratioscope.schema": str(SCHEMA_VERSION)})
        self._demand_free(len(data))
        self._make_folder(layout.token_file(step, self.writer, 0).parent)
        part = 0
        while is_taken(self._root, file := layout.token_file(step, self.writer, part)):
            part += 1
        write_whole(self._root, file, data)
        self._spending.spend(step, len(data), tokens_of(rows))
        return {
            **_commit(file, data),
            "step": step,
            "rows": len(rows),
            "tokens": tokens_of(rows),
            "left_out": left_out,
            "schema": SCHEMA_VERSION,
            "gaps": [gap for gap, sides in GAPS.items() if set(sides) <= set(policies)],
            "policies": policies,
            "facts": [name for name in SLICED_BY if rows[name].null_count < len(rows)],
            "slices": len(rows) - rows["positions"].null_count,
            "offered": tally.offered,
            "dropped": tally.dropped,
        }

    def _demand_free(self, nbytes: int) -> None:
        disk, reserve = os.statvfs(self._root), self._control.now.disk_reserve
        free = disk.f_bavail * disk.f_frsize
        if free < nbytes + reserve:
            raise OSError(
                errno.ENOSPC, f"{free >> 20} MB are free on the disk, of which {reserve >> 20} MB are to stay free"
            )

    def _measured(self, step: int, rows: pa.Table, earlier: pa.Table | None) -> None:
        """Adds the statistics of the rows to those that wait for the disk, and tells once what the first rows look like.

        A step has statistics of all of its parts or none, so that a reader, who cannot tell, falls back on its rows: where one
        part could not be measured they are taken out, and the next part measures all. Of a step whose earlier rows are not
        kept any more, and of which a sequence comes again, they are taken out for good.
        """
        if not self._sequences.may_measure(step, rows["sequence_id"], alone=earlier is None):
            self._segments.forget(step)
            return
        try:
            together = rows if earlier is None else pa.concat_tables([earlier, rows])
            fresh = part_statistics(together, None) if self._unmeasured == step else part_statistics(rows, earlier)
            self._segments.add(fresh)
        except Exception:
            self._unmeasured = step
            self._segments.forget(step)
            raise
        self._unmeasured = None
        if self._live is not None:
            self._live.take(step, fresh, together)
        if not self._has_looked and self._rank == 0 and tokens_of(rows):
            self._has_looked = True
            self._event(step, layout.FIRST_ROWS, first_look(gathered(together), fresh, self._versions))

    def _segment_entry(self, number: int, rows: pa.Table, steps: list[int]) -> dict[str, Any]:
        data = parquet_bytes(rows, {})
        file = layout.statistics_file(self.writer, number)
        self._make_folder(file.parent)
        commit = _commit(file, data)
        is_replaced = self._newest_segment is not None and self._newest_segment[0] == file
        if is_replaced:
            self._log.say({"kind": layout.ANNOUNCED, **{name: commit[name] for name in ("file", "bytes", "sha256")}})
        try:
            write_whole(self._root, file, data)
        except OSError as error:
            self._settle(file, commit["sha256"], error, is_replaced=is_replaced)
        self._newest_segment = (file, commit["sha256"])
        return {**commit, "steps": steps}

    def _settle(self, file: Path, sha256: str, error: OSError, *, is_replaced: bool) -> None:
        """Returns where the segment was replaced for good, though an error was told of it. Raises the error where the one before
        is still there, and one that does not ask for smaller files where neither can be told: they would count some rows twice.
        """
        try:
            found = hashlib.sha256(content(self._root, file, _MOST_SEGMENT)).hexdigest() if is_replaced else None
            if found == sha256:
                sync_folder(self._root, file.parent)
                return
        except OSError:
            found = ""
        if is_replaced and self._newest_segment is not None and found != self._newest_segment[1]:
            raise OSError(errno.EIO, f"{file.name} may have been replaced or not: {reason_of(error)}") from error
        raise error


def parquet_bytes(table: pa.Table, metadata: Mapping[str, str]) -> bytes:
    """The table as a Parquet file: zstd, byte-stream-split floats, page checksums; a row lies within one row group."""
    leaves = [_leaf(field) for field in table.schema]
    # Any: the stubs know only the form that is one bool for all columns
    floats: Any = [path for path, value in leaves if pa.types.is_floating(value)]
    others: Any = [path for path, value in leaves if not pa.types.is_floating(value)]
    target = io.BytesIO()
    pq.write_table(
        table.replace_schema_metadata(dict(metadata)),
        target,
        compression="zstd",
        use_dictionary=others,
        use_byte_stream_split=floats,
        write_page_checksum=True,
        row_group_size=_rows_per_group(table),
    )
    return target.getvalue()


def _leaf(field: pa.Field[Any]) -> tuple[str, pa.DataType]:
    if pa.types.is_list(field.type):
        return f"{field.name}.list.element", field.type.value_type
    return field.name, field.type


def _rows_per_group(table: pa.Table) -> int:
    tokens = tokens_of(table) if "rollout_logprobs" in table.column_names else 0
    return max(1, len(table) if tokens <= _ROW_GROUP_TOKENS else len(table) * _ROW_GROUP_TOKENS // tokens)


def _commit(file: Path, data: bytes) -> dict[str, Any]:
    return {
        "kind": layout.COMMIT,
        "file": file.as_posix(),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "time": time.time(),
    }


def _tried(in_the_way: str | None, act: Callable[[], list[dict[str, Any]]]) -> tuple[list[dict[str, Any]], str | None]:
    """The commit entries of what was done; else none, and why it was not."""
    if in_the_way is not None:
        return [], in_the_way
    try:
        return act(), None
    except (OSError, pa.ArrowException, MemoryError) as error:
        return [], reason_of(error)


def _identity(path: Path, known: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """Device and inode of the folder that bears the name now; None where there is none; `known` where that cannot be told: a
    folder that does not answer is not a folder that was deleted."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError:
        return known
    return found.st_dev, found.st_ino
