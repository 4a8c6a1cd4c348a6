"""The token rows of a run one step at a time, so that what reads them all needs the memory of one step."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from ratioscope.metrics.engines.join import joined

from ..run import Run

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""


def records_of(run: Run, step: int) -> pa.Table:
    """The rows of one step, with the policies of a sequence joined."""
    return joined(run.records([step]).collect().to_arrow())


def step_records(run: Run, progress: Progress | None = None) -> Iterator[tuple[int, pa.Table]]:
    """(step, its rows with the policies of a sequence joined), ascending; `progress` is told once a step has been used."""
    for done, step in enumerate(run.steps, start=1):
        yield step, records_of(run, step)
        if progress:
            progress(done, len(run.steps))
