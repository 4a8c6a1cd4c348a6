"""Files that may not become larger than a few kilobytes, from the first second on: as a quota or `ulimit -f` has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from support.broken_disk import files_of_at_most

from ratioscope.collectors.collector import Collector
from ratioscope.ingest.run import open_run

from .figures import Figures
from .logged import logged
from .processes import PATIENCE
from .strike import unsynced

STEPS = 12


def limited(folder: Path, *, limits: Sequence[int], seed: int) -> Figures:
    """A run for each limit, in KB. What is neither in rows nor in statistics is told of as not written, and flush is False."""
    figures = Figures("Files that may not grow", remarks=[f"files may have at most {', '.join(map(str, limits))} KB"])
    figures.add(steps=0, with_rows=0, with_statistics=0, told_as_not_written=0)
    for kilobytes in limits:
        _record(figures, folder / str(kilobytes), kilobytes, seed)
    return figures


def _record(figures: Figures, root: Path, kilobytes: int, seed: int) -> None:
    flushed = set()
    with unsynced(), files_of_at_most(kilobytes << 10), Collector(root, name="small", attempt=0) as collector:
        for step in range(STEPS):
            collector.log(step=step, **logged(seed, step))
            if collector.flush(PATIENCE):
                flushed.add(step)
    counts = collector.counts
    figures.demand(not counts.sequences.pending, f"{kilobytes} KB: {counts}")
    figures.add(steps=STEPS, told_as_not_written=counts.reasons.get("not written", 0))
    if not any(root.glob("commits/*")):
        figures.demand(not flushed, f"{kilobytes} KB: flush said True of {sorted(flushed)}, and there is no run")
        return
    run = open_run(root)
    rows = set(run.records().select("step").collect()["step"].to_list())
    measured = set(run.metrics()["step"].to_list()) if run.steps else set()
    figures.add(with_rows=len(rows), with_statistics=len(measured))
    figures.demand(
        flushed <= rows | measured, f"{kilobytes} KB: flush said True of {sorted(flushed - rows - measured)}"
    )
    lost = set(range(STEPS)) - rows - measured
    is_told = counts.reasons.get("not written", 0) >= len(lost)
    figures.demand(is_told, f"{kilobytes} KB: steps {sorted(lost)} are nowhere, and told of as {dict(counts.reasons)}")
