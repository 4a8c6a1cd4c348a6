"""What a training loop notices of its collector, how long its calls take and what they raise, and whether its counts hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ratioscope.collectors.collector import CLOSED, Collector
from ratioscope.ingest.run import open_run

from .figures import Figures
from .processes import PATIENCE
from .truth import compare, steps_read

T = TypeVar("T")

STEPS = 12
HELD = 120.0
"""Seconds that a stand-in for something that hangs holds a caller at most, so that a broken promise ends."""
LONGEST = 60.0
"""Seconds, beyond its own timeout, after which a call counts as held up: far below HELD, far above what a busy machine takes."""


@dataclass
class TrainerSide:
    """The calls of one run. longest: seconds of the longest one, beyond its own timeout. acknowledged: steps of which `flush`
    said True with nothing dropped by then."""

    calls: int = 0
    longest: float = 0.0
    raised: list[str] = field(default_factory=list)
    acknowledged: set[tuple[int, int]] = field(default_factory=set)

    def call(self, made: Callable[[], T], timeout: float = 0.0) -> T | None:
        """What the call returns; None where it raises, which no call should."""
        began = time.monotonic()
        try:
            return made()
        except BaseException as error:
            self.raised.append(repr(error))
            return None
        finally:
            self.calls += 1
            self.longest = max(self.longest, time.monotonic() - began - timeout)

    def flush(self, collector: Collector, steps: int, timeout: float) -> bool:
        """Flushes what was logged in steps 0 to `steps`, and remembers what that acknowledges."""
        is_durable = bool(self.call(lambda: collector.flush(timeout), timeout))
        if is_durable and not collector.counts.sequences.dropped:
            self.acknowledged |= {(0, step) for step in range(steps + 1)}
        return is_durable


def begin(figures: Figures) -> None:
    """The counts of a page that `examine` adds to, in their order."""
    figures.add(runs=0, calls=0, longest_call_in_ms=0, raised=0, sequences=0, written=0, dropped=0, pending=0)
    figures.add(rows_read=0, lost=0, torn=0, altered=0)


def wait_for_the_writer(collector: Collector) -> None:
    """Until the thread has ended, and the process, which writes what it has also where the collector did not wait for it."""
    thread, process = collector._thread._thread, collector._process
    if thread is not None:
        thread.join(PATIENCE)
    if process is not None:
        process.let_go()
        assert process._is_over.wait(PATIENCE)


def examine(
    figures: Figures, side: TrainerSide, collector: Collector, root: Path, seed: int, *, name: str, is_settled: bool
) -> None:
    """Adds what became of a run that has ended. is_settled: whether its writer had come to its end when the collector closed, so
    that a reader finds the very counts of the collector. name: of the run, for what is wrong."""
    part, tally = Figures(""), collector.counts.sequences
    part.demand(not side.raised, f"raised into the trainer: {side.raised}")
    part.demand(side.longest < LONGEST, f"a call took {side.longest:.1f} s beyond its timeout")
    part.demand(tally.pending == 0, f"{tally.pending} of {tally.offered} sequences are neither written nor dropped")
    rows = 0
    if any(root.glob("commits/*")):
        run = open_run(root)
        compare(part, run, seed, side.acknowledged)
        rows = sum(len(found) for ids in steps_read(run).values() for found in ids.values())
        told, late = int(run.drops["sequences"].sum()), collector.counts.reasons.get(CLOSED, 0)
        part.demand(not run.quarantined, f"set aside: {run.quarantined}")
        is_told = tally.dropped - late <= told <= tally.dropped  # what comes after the last line of a log is not in it
        part.demand(is_told or not is_settled, f"{tally.dropped} dropped, {late} of them late, the run tells of {told}")
    part.demand(not side.acknowledged or rows > 0, "steps were acknowledged, and there is no run")
    is_equal = rows == tally.written if is_settled else rows >= tally.written
    part.demand(is_equal, f"{tally.written} counted as written, {rows} read")
    part.add(runs=1, calls=side.calls, raised=len(side.raised), sequences=tally.offered, written=tally.written)
    part.add(dropped=tally.dropped, pending=tally.pending, rows_read=rows)
    figures.add(**part.counts)
    figures.counts["longest_call_in_ms"] = max(figures.counts["longest_call_in_ms"], round(side.longest * 1000))
    figures.wrong += [f"{name}: {wrong}" for wrong in part.wrong]
