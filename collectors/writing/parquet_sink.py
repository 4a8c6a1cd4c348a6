"""ParquetSink: one writer's part of a run folder.

A step is committed in this order: its token file (temporary name, fsync, rename, fsync of the folder), the segment of statistics
(the same, in the place of its earlier version), the lines of the commit log. So a reader finds everything that the lines name.
Small steps that wait together are committed together: a token file each, one segment, one append to the log.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ratioscope import layout
from ratioscope.process import host_name, pid_namespace
from ratioscope.record import SCHEMA_VERSION
from ratioscope.topk import COUNTS, TOPK

from ..batch.records import tokens_of
from ..budget import CONTROL_FILE, FIRST_BYTES_PER_ALTERNATIVE, Budget, Control, Spending
from ..process.counts import Tally, reason_of
from ..process.notice import warn
from ..process.ranks import in_ray_worker
from ..process.trainer_process import trainer_process
from .durable_file import is_taken
from .health import Health, StateChange
from .joining import logs_beside, place_in_run
from .live_scalars import LiveScalars
from .log_appender import LogAppender
from .measured_steps import LoopsFor, MeasuredSteps, numpy_alone
from .parquet_file import ReadingPart
from .run_file import launch, note_attempt, run_id, start_run
from .run_files import RunFiles
from .sampling import chosen
from .segments import Overall, Segments
from .sink import RowsOutcome, StepRows, Unsaved

_TALLY = tuple(each.name for each in fields(Tally))


class ParquetSink:
    """One writer's part of a run folder."""

    def __init__(
        self,
        root: Path,
        info: Mapping[str, Any],
        *,
        rank: int,
        writer: str | None = None,
        continues: Sequence[str] = (),
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
        self._part_of, self._takes_over, self._continues = part_of, tuple[str, ...](), tuple(continues)
        self._health, self._clock = health or Health(), clock
        self._control = Control(root / CONTROL_FILE, budget or Budget(), budget or Budget())
        self._spending, self._topk_spending = Spending(), Spending(_bytes_per_token=FIRST_BYTES_PER_ALTERNATIVE)
        self._process = trainer_process()
        self.writer = writer or writer_name(rank)
        self._log = LogAppender(root, layout.commit_file(self.writer))
        self._folder: tuple[int, int] | None = None
        self._is_announced = False
        self._files = RunFiles(root, self.writer, self._log.say)
        self._overall = Overall(self._files.write_overall)
        self._segments = Segments(self._files.write_segment, self._overall.add)
        note = None if rank else (lambda step, text: self._event(step, layout.FIRST_ROWS, text))
        self._measured = MeasuredSteps(self._segments, live, loops_for, note, versions)
        self._newest_step = 0
        self._reason, self._topk_was_left_out = "", False
        self._recorded: dict[int, pa.ChunkedArray[Any]] = {}  # ids of the rows that were written last, by step

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

    def write(self, step: int, rows: pa.Table, earlier: pa.Table | None, tally: Tally, late: str | None) -> RowsOutcome:
        return self.write_steps([StepRows(step, rows, earlier)], tally, late)[0]

    def write_steps(self, steps: Sequence[StepRows], tally: Tally, late: str | None) -> list[RowsOutcome]:
        self._recorded.clear()
        outcomes = list[RowsOutcome]()
        while left := steps[len(outcomes) :]:
            self._segments.roll_over(left[0].step)
            outcomes += self._commit(left[: self._segments.room], tally, late)
        return outcomes

    def _commit(self, steps: Sequence[StepRows], tally: Tally, late: str | None) -> list[RowsOutcome]:
        """Writes a token file for each step, the segment with the statistics of all, and all lines at once."""
        newest = steps[-1].step
        self._newest_step = max(newest, self._newest_step)
        failures = self._measured.add(steps)
        note = self._control.refresh()
        if note is not None:
            warn("%s: step %d: %s", self._root, newest, note)
            self._event(newest, layout.CONTROL, note)
        now = self._clock()
        in_the_way = late or (None if self._health.may_write_rows(now) else self._health.reason)
        if len(steps) > 1 and in_the_way is None:
            with suppress(OSError):  # each file asks for its folder again
                self._files.make_step_folders([each.step for each in steps])
        tried = [self._tried(in_the_way, each, tally) for each in steps]
        in_the_way = None if self._health.may_write_statistics(now) else self._health.reason
        segments, waits = ([], in_the_way) if in_the_way is not None else self._segments.save()
        failures += [] if waits is None else [f"statistics: {waits}"]
        files = [self._marked(entry, part, waits) for part, (_, entry) in zip(steps, tried, strict=True) if entry]
        refused = next((outcome.refused for outcome, _ in tried if outcome.refused is not None), None)
        if refused is None and waits is None:
            self._segments.expect_room()
        self._reason = waits or ""
        self._say_change(newest, self._health.update(now, rows=refused, statistics=waits))
        failures += self._said([*files, *segments])
        if len(self._overall) >= layout.OVERALL_SEGMENTS and waits is None:
            failures += self._repeated()
        *earlier, last = (outcome for outcome, _ in tried)
        return [*earlier, replace(last, failures=tuple(failures))]

    def write_reading(self, step: int, name: str, rows: pa.Table) -> None:
        assert self._attempt is not None
        kept = rows.filter(pc.is_in(rows["sequence_id"], self._recorded[step].combine_chunks()))
        if name == TOPK:
            kept = self._within_budget(step, kept)
        if not len(kept):
            return
        place = rows.schema.get_field_index("attempt")
        attempts = pa.repeat(pa.scalar(self._attempt, pa.int32()), len(kept))
        own = ReadingPart(name, self._attempt, step, {"written by": "Collector.log"})
        reserve = self._control.now.disk_reserve
        entry = self._files.write_reading(own, kept.set_column(place, "attempt", attempts), disk_reserve=reserve)
        if name == TOPK:
            self._topk_spending.spend(step, entry["bytes"], _alternatives(kept))
        else:
            self._spending.spend(step, entry["bytes"], 0)
        self._log.say(entry)

    def _within_budget(self, step: int, rows: pa.Table) -> pa.Table:
        """The rows of top-k that there is room for: of the same sequences in every rank and minibatch."""
        now, alternatives = self._control.now, _alternatives(rows)
        share = self._topk_spending.share_within(now.topk_step_bytes, now.topk_run_bytes, step, alternatives)
        kept = chosen(rows, share, worst=0, seed=now.seed)
        if len(kept) < len(rows) and not self._topk_was_left_out:
            self._topk_was_left_out = True
            note = f"top-k of {len(rows) - len(kept)} of {len(rows)} rows is left out for its budget; later steps may lack more"
            self._event(step, layout.TOPK_LEFT_OUT, note)
        return kept

    def say(self, entry: Mapping[str, Any]) -> None:
        if entry["kind"] == layout.CLOSE:  # the last chance to write what waits in memory
            self.save()
            if len(self._overall):  # there is more than one segment
                self._segments.end()
                self._repeated()
            with suppress(OSError):
                entry = {**entry, "beside": logs_beside(self._root, self.writer)}
        if entry["kind"] in (layout.CLOSE, layout.TAKEN) and entry.keys() >= set(_TALLY):
            entry = {**entry, **asdict(self._of_this_log(Tally(**{name: entry[name] for name in _TALLY})))}
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

    def _repeated(self) -> list[str]:
        """Writes the overall statistics of full segments once more. Returns why that failed, if it did."""
        lines, failure = self._overall.written()
        return [*self._said(lines), *([] if failure is None else [f"overall statistics: {failure}"])]

    def _said(self, entries: Sequence[Mapping[str, Any]]) -> list[str]:
        """Writes the lines of the commit log. Returns why it failed, if it did: then they wait."""
        try:
            self._log.say(*entries)
        except Exception as error:
            return [f"commit log: {reason_of(error)}"]
        return []

    def _say_change(self, step: int, change: StateChange | None) -> None:
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
            "script": self._info.get("script"),
            "beside": logs_beside(self._root, self.writer),
            "time": time.time(),
            **({"ray_worker": True} if in_ray_worker() else {}),
            **({"part_of": self._part_of} if self._part_of is not None else {}),
            **({"takes_over": list(self._takes_over)} if self._takes_over else {}),
            **({"continues": list(self._continues)} if self._continues else {}),
        }

    def _tried(self, in_the_way: str | None, part: StepRows, tally: Tally) -> tuple[RowsOutcome, dict[str, Any]]:
        """Writes the token file of a step. Returns its fate and the line that commits it, {} if something was in the way."""
        if in_the_way is not None:
            return RowsOutcome(0, 0, 0, in_the_way), {}
        try:
            budget = self._control.now
            share = self._spending.share(budget, part.step, tokens_of(part.rows))
            recorded = chosen(part.rows, share, worst=budget.worst, seed=budget.seed)
            self._recorded[part.step] = recorded["sequence_id"]
            left_out = len(part.rows) - len(recorded)
            reserve = self._control.now.disk_reserve
            entry = self._files.write_tokens(
                part.step, recorded, left_out=left_out, tally=self._of_this_log(tally), disk_reserve=reserve
            )
            self._spending.spend(part.step, entry["bytes"], entry["tokens"])
        except Exception as error:  # it costs this step alone
            return RowsOutcome(0, 0, 0, reason_of(error)), {}
        return RowsOutcome(len(recorded), entry["tokens"], left_out), entry

    def _of_this_log(self, tally: Tally) -> Tally:
        """The counts of a collector as those of this log: the fates in its lines, and what is pending.

        Earlier writers of the collector have logs of their own, and a deleted log counts no more.
        """
        return replace(self._log.told, offered=self._log.told.offered + tally.pending)

    def _marked(self, entry: dict[str, Any], part: StepRows, waits: str | None) -> dict[str, Any]:
        """The line; it says `unmeasured` if what is on disk are the statistics of the step's earlier parts."""
        is_unmeasured = (waits is not None and part.earlier is not None) or self._measured.is_given_up(part.step)
        return {**entry, "unmeasured": True} if is_unmeasured else entry


def writer_name(rank: int) -> str:
    """The name of a new writer of this rank, which no other writer has."""
    return f"r{rank:05d}-{host_name()}-{trainer_process().pid}-{secrets.token_hex(3)}"


def _alternatives(rows: pa.Table) -> int:
    """The number of alternatives in rows of top-k."""
    return int(pc.sum(pc.list_flatten(rows[COUNTS])).as_py() or 0)


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
