"""ParquetSink: one writer's part of a run folder.

A step is committed in this order: its token file (temporary name, fsync, rename, fsync of the folder), the segment of statistics
(the same, in the place of its earlier version), the lines of the commit log. So a reader finds everything that the lines name.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ratioscope import layout
from ratioscope.metrics.engines.loops import NUMPY_LOOPS, Loops
from ratioscope.metrics.engines.parts import gathered
from ratioscope.process import host_name, pid_namespace
from ratioscope.record import SCHEMA_VERSION

from ..batch.records import tokens_of
from ..budget import CONTROL_FILE, Budget, Control, Spending
from ..process.counts import Tally, reason_of
from ..process.notice import warn
from ..process.ranks import in_ray_worker
from ..process.trainer_process import trainer_process
from .commit_log import CommitLog
from .durable_file import is_taken
from .first_rows import first_rows_note
from .health import Change, Health
from .joining import logs_beside, place_in_run
from .live_scalars import LiveScalars
from .measured_sequences import MeasuredSequences
from .reading_part import ReadingPart
from .run_file import launch, note_attempt, run_id, start_run
from .run_files import RunFiles
from .sampling import chosen
from .segments import Segments
from .sink import Outcome, Unsaved
from .step_statistics import part_statistics

LoopsFor = Callable[[int], Loops]
"""(tokens that the writer has measured) -> the engine's loops for the next ones."""


def numpy_alone(_tokens: int) -> Loops:
    """Numpy's loops: in a trainer's own process nothing is compiled."""
    return NUMPY_LOOPS


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
        loops_for: LoopsFor = numpy_alone,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root, self._info, self._rank, self._attempt = root, info, rank, attempt
        self._part_of, self._takes_over = part_of, tuple[str, ...]()
        self._versions, self._live, self._has_looked = versions, live, False
        self._health, self._clock = health or Health(), clock
        self._loops_for, self._tokens = loops_for, 0
        self._control = Control(root / CONTROL_FILE, budget or Budget(), budget or Budget())
        self._spending = Spending()
        self._process = trainer_process()
        self.writer = f"r{rank:05d}-{host_name()}-{self._process.pid}-{secrets.token_hex(3)}"
        self._log = CommitLog(root, layout.commit_file(self.writer))
        self._folder: tuple[int, int] | None = None
        self._is_announced = False
        self._files = RunFiles(root, self.writer, self._log.say)
        self._segments = Segments(self._files.write_segment)
        self._newest_step = 0
        self._unmeasured: int | None = None
        self._sequences = MeasuredSequences()
        self._reason = ""
        self._recorded: pa.ChunkedArray[Any] = pa.chunked_array([], pa.string())

    def begin(self) -> None:
        """Makes the folder and run.json, if there is none yet."""
        start_run(self._root, self._info)

    def open(self) -> int:
        if self._folder is None or self._folder != _identity(self._root, self._folder):
            was_open = self._folder is not None
            start_run(self._root, self._info)
            self._files.make_folders()
            if self._attempt is None:
                place = place_in_run(self._root, self._rank, self._part_of)
                self._attempt, self._takes_over, self._part_of = place.attempt, place.takes_over, place.part_of
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
        now, recorded = self._clock(), self._kept(step, rows)
        in_the_way = late or (None if self._health.may_write_rows(now) else self._health.reason)
        self._recorded = recorded["sequence_id"]
        files, refused = _tried(
            in_the_way, lambda: [self._token_file(step, recorded, len(rows) - len(recorded), tally)]
        )
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
        return Outcome(len(recorded), tokens_of(recorded), len(rows) - len(recorded), None, tuple(failures))

    def write_reading(self, step: int, name: str, rows: pa.Table) -> None:
        assert self._attempt is not None
        kept = rows.filter(pc.is_in(rows["sequence_id"], self._recorded.combine_chunks()))
        if not len(kept):
            return
        place = rows.schema.get_field_index("attempt")
        attempts = pa.repeat(pa.scalar(self._attempt, pa.int32()), len(kept))
        own = ReadingPart(name, self._attempt, step, {"written by": "Collector.log"})
        reserve = self._control.now.disk_reserve
        entry = self._files.write_reading(own, kept.set_column(place, "attempt", attempts), disk_reserve=reserve)
        self._spending.spend(step, entry["bytes"], 0)
        self._log.say(entry)

    def say(self, entry: Mapping[str, Any]) -> None:
        if entry["kind"] == layout.CLOSE:  # the last chance to write what waits in memory
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

    def _announce(self, attempt: int, *, again: bool) -> None:
        """Writes the open line to the log, again in a folder that replaces a deleted one. It waits if it cannot be written."""
        if not self._is_announced or again:
            self._is_announced = True
            self._log.begin_anew()
            self._log.say(self._opening())
        if again:
            note = "the run folder was deleted or replaced; recording goes on in a new one"
            self._event(self._newest_step, layout.STATE, note, state=self._health.state)
        try:
            note_attempt(self._root, attempt, self._info)
        except (OSError, ValueError) as error:  # readers rely on the log line above, not on run.json
            warn("%s: attempt %d cannot be added to run.json: %s", self._root, attempt, error)

    def _try(self, what: str, act: Callable[[], None]) -> list[str]:
        """Why `act` failed, as a list; empty if it did not. It serves actions whose failure loses no row."""
        try:
            act()
        except Exception as error:
            return [f"{what}: {reason_of(error)}"]
        return []

    def _refresh_control(self, step: int) -> None:
        note = self._control.refresh()
        if note is not None:
            warn("%s: step %d: %s", self._root, step, note)
            self._event(step, layout.CONTROL, note)

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
            **({"ray_worker": True} if in_ray_worker() else {}),
            **({"part_of": self._part_of} if self._part_of is not None else {}),
            **({"takes_over": list(self._takes_over)} if self._takes_over else {}),
        }

    def _token_file(self, step: int, rows: pa.Table, left_out: int, tally: Tally) -> dict[str, Any]:
        reserve = self._control.now.disk_reserve
        entry = self._files.write_tokens(step, rows, left_out=left_out, tally=tally, disk_reserve=reserve)
        self._spending.spend(step, entry["bytes"], entry["tokens"])
        return entry

    def _measured(self, step: int, rows: pa.Table, earlier: pa.Table | None) -> None:
        """Adds the statistics of the rows to those that wait for the disk. Notes once what the first rows look like.

        A step has statistics of all its parts or of none. A reader cannot see that a part is missing, but where there are none
        it computes them from token rows. So if one part cannot be measured, the statistics of the step are removed, and the next
        part measures all parts again. They are removed for good if a sequence of the step comes again after the step's earlier
        rows were let go.
        """
        if not self._sequences.may_measure(step, rows["sequence_id"], alone=earlier is None):
            self._segments.forget(step)
            return
        try:
            every_part = rows if earlier is None else pa.concat_tables([earlier, rows])
            given = (every_part, None) if self._unmeasured == step else (rows, earlier)
            fresh = part_statistics(*given, self._loops_for(self._tokens))
            self._tokens += tokens_of(rows)
            self._segments.add(fresh)
        except Exception:
            self._unmeasured = step
            self._segments.forget(step)
            raise
        self._unmeasured = None
        if self._live is not None:
            self._live.take(step, fresh, every_part)
        if not self._has_looked and self._rank == 0 and tokens_of(rows):
            self._has_looked = True
            self._event(step, layout.FIRST_ROWS, first_rows_note(gathered(every_part), fresh, self._versions))


def _tried(in_the_way: str | None, act: Callable[[], list[dict[str, Any]]]) -> tuple[list[dict[str, Any]], str | None]:
    """The commit lines of what `act` wrote, and None; or no lines, and the reason."""
    if in_the_way is not None:
        return [], in_the_way
    try:
        return act(), None
    except (OSError, pa.ArrowException, MemoryError) as error:
        return [], reason_of(error)


def _identity(path: Path, known: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """Device and inode of the folder at this path. None if there is none.

    `known` if the folder does not answer: that does not mean that it was deleted.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError:
        return known
    return status.st_dev, status.st_ino
