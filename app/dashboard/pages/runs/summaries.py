"""Summaries for the list of runs: each run is read once per state of its commit logs, a few runs at a time.

A summary holds plain values, so that a thousand of them cost little. The run itself is closed after it was read.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import streamlit as st

from ratioscope.errors import RatioscopeError, SourceError
from ratioscope.ingest.analysis.copy_facts import judged_first
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.analysis.judged_verdict import judged_verdict
from ratioscope.ingest.commits.liveness import current_writers, sizes, writer_statuses
from ratioscope.ingest.run import Run
from ratioscope.inside import folder, status
from ratioscope.layout import COMMITS, RUN_FILE
from ratioscope.metrics.grading.finding import Finding
from ratioscope.process import Here

from ....figures.drawing.thinning import thinned
from ....presentation.metric_places import names_at
from ....presentation.run_state import RunState, run_state
from ....presentation.theme import MARKS
from ...model.opened_runs import opened_run

POINTS = 60
"""Number of points of the small chart of a run."""
AGAIN = 20.0
"""Pause before a growing run is read again, as a multiple of the time of the last reading."""

FolderSignature = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Summary:
    """One run."""

    error: str = ""
    """The reason why the run cannot be read; all else is then empty."""
    name: str = ""
    trainer: str = ""
    """The trainer's name in run.json; empty if it has none."""
    steps: int = 0
    tokens: int = 0
    has_rows: bool = False
    """True if a step has token rows."""
    gaps: tuple[str, ...] = ()
    attempts: int = 0
    bytes: int = 0
    """Size on disk of the part that is on record and shown."""
    severity: str = ""
    title: str = ""
    since: int | None = None
    """First step of the verdict."""
    gap: str = ""
    """Gap of `kl_k3` and `course`."""
    kl_k3: float | None = None
    """The newest finite value, nats/token; None if there is none."""
    error_of_kl_k3: float | None = None
    """Its standard error; None if it is not known."""
    course: tuple[float, ...] = ()
    """kl_k3 over the steps, as means of buckets."""
    started: datetime | None = None
    """When the first writer opened its log; None if no log has it."""


def summary_of(run: Run) -> Summary:
    """The summary of an opened run. It reads statistics, and token rows only if statistics are incomplete."""
    writers = run.writers
    known = Summary(
        name=run.name,
        trainer=str(run.info.get("trainer") or ""),
        steps=len(run.steps),
        has_rows=run.size.rows > 0,
        attempts=writers["attempt"].n_unique(),
        bytes=run.size.bytes,
        started=_earliest(writers, "opened"),
    )
    gaps = judged_first(run) if run.steps else ()
    if not gaps:
        return known
    frame = run.metrics().sort("step")
    verdict = verdict_of(run) if run.is_remote else judged_verdict(run)  # each row of a store is a request
    graded = replace(
        known,
        gaps=run.gaps,
        severity=verdict.word,
        title=_title(verdict, looked=not run.is_remote),
        since=verdict.since_step,
    )
    return _with_metrics(graded, frame, gaps[0])


def _title(verdict: Finding, *, looked: bool) -> str:
    """looked: False if nobody looked for the causes of the gap."""
    if verdict.is_healthy and not looked:
        return f"{verdict.title}; causes were not looked for: it lies on a store"
    return f"{verdict.title}, over" if verdict.until_step is not None else verdict.title


def _with_metrics(known: Summary, frame: pl.DataFrame, gap: str) -> Summary:
    drawn = next((f"{gap}/{name}" for name in names_at("runs", gap) if f"{gap}/{name}" in frame.columns), None)
    own = pl.Series([], dtype=pl.Float64) if drawn is None else frame[drawn]
    values = own.fill_null(np.nan).to_numpy()
    means = thinned(np.arange(len(values), dtype=float), values, points=POINTS).mean
    finite = np.flatnonzero(np.isfinite(values))
    at = int(finite[-1]) if len(finite) else None
    tokens = f"{gap}/tokens"
    return replace(
        known,
        tokens=int(frame[tokens].sum()) if tokens in frame.columns else 0,
        gap=gap,
        kl_k3=None if at is None else float(values[at]),
        error_of_kl_k3=None if at is None else frame[f"{drawn}_se"][at],
        course=tuple(means[np.isfinite(means)].tolist()),
    )


def signature_of(path: str) -> FolderSignature:
    """Names, sizes and times of the commit logs and of run.json: they change with every commit."""
    files: list[tuple[str, int, int]] = []
    with suppress(OSError):
        run_file = status(Path(path), RUN_FILE)
        files.append((RUN_FILE, run_file.st_size, run_file.st_mtime_ns))
    with suppress(OSError), folder(Path(path), COMMITS) as at, os.scandir(at) as entries:
        for entry in entries:
            about = entry.stat(follow_symlinks=False)
            files.append((entry.name, about.st_size, about.st_mtime_ns))
    return tuple(sorted(files))


@dataclass(frozen=True)
class _KeptSummary:
    signature: FolderSignature
    summary: Summary
    until: float
    """Time on the clock up to which it is used without a new look at the folder."""


@dataclass
class Summaries:
    """Summaries that were read, shared by all sessions."""

    clock: Callable[[], float] = time.monotonic
    """Seconds on a clock that never goes back."""
    _kept: dict[str, _KeptSummary] = field(default_factory=dict)
    """Path of a run -> its summary."""
    _words: dict[str, dict[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, path: str) -> Summary | None:
        """The last summary of the run; None if the run was never read."""
        entry = self._kept.get(path)
        return None if entry is None else entry.summary

    def state(self, path: str, here: Here, now: float) -> RunState:
        """The present state of the run, in the words of its own pages. It reads the ends of changed commit logs."""
        try:
            self._words[path] = writer_statuses(Path(path), sizes(Path(path)), self._words.get(path, {}))
        except SourceError:
            self._words.pop(path, None)
            return RunState("dead", "gone: its folder was deleted or moved", "", brief=f"{MARKS['act']} gone")
        return run_state(current_writers(word for _, word in self._words[path].values()), here, now)

    def read_some(self, paths: Iterable[str], seconds: float) -> int:
        """Reads runs that were never read, then changed ones, for about so many seconds; at least one.

        Returns the number of runs that were never read.
        """
        with self._lock:
            end = self.clock() + seconds
            waiting = list(paths)
            new = [path for path in waiting if path not in self._kept]
            for done, path in enumerate(self._in_turn(new, waiting)):
                self._kept[path] = self._read(path)
                if self.clock() >= end:
                    return max(0, len(new) - done - 1)
            return 0

    def _in_turn(self, new: list[str], paths: list[str]) -> Iterator[str]:
        yield from new
        for path in paths:
            entry = self._kept[path]
            if path not in new and self.clock() >= entry.until and signature_of(path) != entry.signature:
                yield path

    def _read(self, path: str) -> _KeptSummary:
        began = self.clock()
        signature = signature_of(path)
        try:
            summary = summary_of(opened_run(path))
        except RatioscopeError as error:
            summary = Summary(error=str(error))
        except OSError as error:
            summary = Summary(error=f"it cannot be opened: {error.strerror}")
        return _KeptSummary(signature, summary, self.clock() + AGAIN * (self.clock() - began))


@st.cache_resource(show_spinner=False)
def summaries() -> Summaries:
    """The summaries of this process."""
    return Summaries()


def _earliest(writers: pl.DataFrame, column: str) -> datetime | None:
    earliest = writers[column].min()
    return earliest if isinstance(earliest, datetime) else None
