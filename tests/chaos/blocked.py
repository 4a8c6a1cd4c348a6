"""The disk hangs: the writer's thread is stopped inside a system call, and the training loop does not notice.

A FIFO that nobody reads takes the place of the commit log, so that opening it waits in the kernel, as it does on a network
disk whose server is gone.
"""

from __future__ import annotations

import os
from pathlib import Path

from ratioscope.collectors.collector import Collector
from ratioscope.ingest.run import open_run

from .figures import Figures
from .logged import ROWS, logged
from .processes import PATIENCE
from .truth import compare

QUEUE = 8


def blocked(folder: Path, *, calls: int, seed: int) -> Figures:
    """`calls` of `log` while the writer hangs; then the disk is back. No time is taken: a `log` that waited would never end."""
    figures, root = Figures("A disk that hangs"), folder / "run"
    collector = Collector(root, name="blocked", queue_batches=QUEUE)
    collector.log(step=0, **logged(seed, 0))
    assert collector.flush(PATIENCE)
    log = next((root / "commits").iterdir())
    log.rename(log.with_suffix(".kept"))
    os.mkfifo(log)
    for step in range(1, calls + 1):
        collector.log(step=step, **logged(seed, step))
        waiting = collector.counts.sequences.pending
        figures.demand(waiting <= (QUEUE + 3) * ROWS, f"{waiting} sequences wait in a queue of {QUEUE} steps")
    figures.demand(not collector.flush(0), "flush says that all was written while the writer hangs")
    refused = collector.counts.sequences.dropped
    _heal(log)
    figures.demand(not collector.flush(PATIENCE), "flush does not tell that sequences were refused")
    flushed = collector.flush(PATIENCE)  # since the last answer nothing was lost
    closed = collector.close(PATIENCE)
    tally = collector.counts.sequences
    run = open_run(root)
    whole = compare(figures, run, seed, {(0, 0)})
    figures.demand(refused > 0, "nothing was refused: the writer did not hang")
    figures.demand(flushed and closed, "the writer did not come back")
    figures.demand(tally.pending == 0, f"{tally.pending} sequences are neither written nor dropped")
    figures.demand(len(whole) * ROWS == tally.written, f"{tally.written} counted as written, {len(whole)} steps read")
    figures.demand(
        run.dropped["sequences"] == tally.dropped, f"{tally.dropped} dropped, the run tells of {run.dropped}"
    )
    figures.add(calls=calls, sequences=tally.offered, refused_by_the_full_queue=refused, written=tally.written)
    return figures


def _heal(log: Path) -> None:
    """The old log is back in its place; then the writer's open is let go of, into a FIFO without a name that cannot be synced."""
    fifo = log.with_suffix(".fifo")
    log.rename(fifo)
    log.with_suffix(".kept").rename(log)
    os.close(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK))
    fifo.unlink()
