"""What the pages read of a run: its frames, each made once per revision and shared by all sessions.

The only file that caches. Keys are (path, revision, arguments), never a frame: Streamlit hashes large frames by a sample and
returns wrong results for those that differ elsewhere. The frames are immutable, so that every session may hold the same one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import streamlit as st

from ratioscope.ingest.run import Run, open_run
from ratioscope.metrics.distribution import Level
from ratioscope.metrics.finding import Finding

from .grading import step_grades, verdict_of

FRAMES = 12
"""Frames of each kind kept: a long run's metrics take 16 MB, and a growing run has new ones at every revision."""


@st.cache_resource(show_spinner="opening the run", max_entries=16)
def _opened(path: str) -> Run:
    return open_run(Path(path))


@dataclass(frozen=True)
class View:
    """One run at one revision."""

    path: str
    revision: int

    @property
    def run(self) -> Run:
        return _opened(self.path)

    @property
    def is_growing(self) -> bool:
        """Whether a writer has not closed: it may be at work, or may have died."""
        return self.run.writers["closed"].null_count() > 0

    def metrics(self, by: Sequence[str] = ("step",)) -> pl.DataFrame:
        """Run.metrics: one row per group, `<gap>/<metric>` columns."""
        return _metrics(self.path, self.revision, tuple(by))

    def grades(self) -> pl.DataFrame:
        """One row per graded step: severity, signal, gap, value, floor, reading."""
        return _grades(self.path, self.revision)

    def verdict(self) -> Finding:
        return _verdict(self.path, self.revision)

    def distribution(self, level: Level, gap: str) -> pl.DataFrame:
        """Run.distribution: one row per step and occupied bucket."""
        return _distribution(self.path, self.revision, level, gap)

    def sequences(self, step: int) -> pl.DataFrame:
        """Run.sequences of one step; reads that step's rows."""
        return _sequences(self.path, self.revision, step)

    def tokens(self, step: int, sequence_id: str, minibatch: int | None) -> pl.DataFrame:
        """Run.sequence: one row per token; reads that sequence's rows."""
        return _tokens(self.path, self.revision, step, sequence_id, minibatch)


def view(path: str) -> View:
    """The run as far as it is committed at this moment. Raises SourceError where it cannot be read."""
    run = _opened(path)
    run.refresh()
    return View(path, run.revision)


@st.cache_resource(show_spinner=False, max_entries=FRAMES)
def _metrics(path: str, revision: int, by: tuple[str, ...]) -> pl.DataFrame:
    return _opened(path).metrics(by=by)


@st.cache_resource(show_spinner=False, max_entries=FRAMES)
def _grades(path: str, revision: int) -> pl.DataFrame:
    return step_grades(_opened(path))


@st.cache_resource(show_spinner=False, max_entries=FRAMES)
def _verdict(path: str, revision: int) -> Finding:
    return verdict_of(_grades(path, revision))


@st.cache_resource(show_spinner=False, max_entries=FRAMES)
def _distribution(path: str, revision: int, level: Level, gap: str) -> pl.DataFrame:
    return _opened(path).distribution(level, gap)


@st.cache_resource(show_spinner="reading the sequences of the step", max_entries=FRAMES)
def _sequences(path: str, revision: int, step: int) -> pl.DataFrame:
    return _opened(path).sequences(step)


@st.cache_resource(show_spinner="reading the tokens", max_entries=FRAMES)
def _tokens(path: str, revision: int, step: int, sequence_id: str, minibatch: int | None) -> pl.DataFrame:
    return _opened(path).sequence(step, sequence_id, minibatch)
