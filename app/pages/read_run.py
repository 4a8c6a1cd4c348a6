"""A run that is read once, for pages that are written to files. No server is needed, and nothing is shared."""

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import polars as pl

from ratioscope.errors import RatioscopeError
from ratioscope.ingest.analysis.diagnosis import diagnosed_gap
from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.files.cache_folder import cache_folder
from ratioscope.ingest.jobs.part_job import PartResults, PartWork
from ratioscope.ingest.rows.part import Part
from ratioscope.ingest.run import Run

from ..presentation.privacy import scrubbed, scrubbed_text
from ..presentation.run_state import RunState, state_of
from .answered import Answered, answered
from .jobs import Jobs
from .view import View


@dataclass
class ReadRun:
    """The source of the view of one run."""

    opened: Run
    """The run."""
    _made: dict[tuple[object, ...], object] = field(default_factory=dict)
    """Function and arguments -> what it made."""
    jobs: Jobs = field(default_factory=lambda: Jobs(Cache(cache_folder())))

    def run(self, view: View) -> Run:
        return self.opened

    def name(self, view: View) -> str:
        return scrubbed_text(self.opened.name)

    def of(self, view: View, make: Callable[..., object], arguments: tuple[Hashable, ...]) -> object:
        key = (make, *arguments)
        if key not in self._made:
            self._made[key] = make(self.opened, *arguments)
        return self._made[key]

    def part_statistics(self, run: Run, path: str, part: Part, gap: str) -> pl.DataFrame:
        results = PartResults(part, gap, Cache(cache_folder()))
        work = PartWork(run, results, run.steps)
        for step in work.pieces:
            work.do(step)
        return results.statistics(work.digests)

    def diagnosis(self, view: View, gap: str, steps: range | None) -> Answered | None:
        with suppress(RatioscopeError):
            gap = "" if gap == diagnosed_gap(self.opened) else gap
        key = (answered, gap, steps)
        if key not in self._made:
            self._made[key] = scrubbed(answered(lambda: self.opened, view.revision, gap, steps, view.graded()))
        return cast(Answered, self._made[key])

    def known_diagnosis(self, view: View) -> Answered | None:
        return self.diagnosis(view, "", None)

    def state(self, view: View) -> RunState:
        return state_of(Path(view.path))


def read_view(run: Run, made: Mapping[tuple[object, ...], object] | None = None) -> View:
    """The view of a run that is read once. made: function and arguments -> what it has made elsewhere."""
    return View(str(run.path), run.revision, ReadRun(run, dict(made or {})))
