"""A run at one revision, as pages read it. The source makes each frame and figure once per revision.

Keys are (path, revision, arguments), never a frame. The frames are immutable, so that every reader may hold the same one.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, cast

import polars as pl

from ratioscope.ingest.analysis.grades import signal_grades, verdict_of
from ratioscope.ingest.analysis.recorded_events import EventsAndAlerts, events_and_alerts
from ratioscope.ingest.rows.part import Part
from ratioscope.ingest.run import Run
from ratioscope.metrics.definitions.registry import of_column
from ratioscope.metrics.diagnosis.judged import judged
from ratioscope.metrics.distribution import Level
from ratioscope.metrics.frame import value_in
from ratioscope.metrics.grading.finding import Finding
from ratioscope.metrics.grading.run_rules import RunRules
from ratioscope.metrics.grading.severity import decided
from ratioscope.metrics.grading.signals import Signal
from ratioscope.record import GAPS, sides

from ..presentation.run_state import RunState
from .answered import Answered
from .jobs import Jobs
from .running_scripts import rest

Made = TypeVar("Made")


class Source(Protocol):
    """Opens the runs of views and keeps what is made of them."""

    def run(self, view: "View") -> Run: ...

    def name(self, view: "View") -> str:
        """The name of the run, by which the reader knows it."""
        ...

    def of(self, view: "View", make: Callable[..., object], arguments: tuple[Hashable, ...]) -> object:
        """make(run, *arguments), made once."""
        ...

    def part_statistics(self, run: Run, path: str, part: Part, gap: str) -> pl.DataFrame:
        """Statistics of a part of the tokens, as far as they were read."""
        ...

    def diagnosis(self, view: "View", gap: str, steps: range | None) -> Answered | None:
        """The diagnosis of these steps, None if it is being made. gap: empty for the best one on record."""
        ...

    def known_diagnosis(self, view: "View") -> Answered | None:
        """The diagnosis of the whole run; None if there is none yet. It asks for none to be made."""
        ...

    def state(self, view: "View") -> RunState:
        """The state of the run's writers at the last look."""
        ...

    @property
    def jobs(self) -> Jobs:
        """The background jobs on token rows, and what they found so far."""
        ...


@dataclass(frozen=True)
class View:
    """One run at one revision."""

    path: str
    revision: int
    source: Source = field(compare=False, repr=False)

    @property
    def run(self) -> Run:
        return self.source.run(self)

    @property
    def name(self) -> str:
        """Its name for readers."""
        return self.source.name(self)

    @property
    def rules(self) -> RunRules:
        """The rules by which the run is graded."""
        return self.run.rules

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The signals that grade the run, with the thresholds in force."""
        return self.rules.rules.signals

    @property
    def is_growing(self) -> bool:
        """True if a writer has not closed: it may be at work, or may have died."""
        return self.of(_is_growing)

    def of(self, make: Callable[..., Made], *arguments: Hashable) -> Made:
        """make(run, *arguments), made once per revision and shared by all sessions, so nobody may change it.

        make: a function of a module (its name is part of the key). arguments: never a frame or an array.
        """
        return cast(Made, self.source.of(self, make, arguments))

    def figure(self, make: Callable[..., Made], *arguments: Hashable) -> Made:
        """make(*arguments), made once per revision like `of`: a figure, or a frame made of other frames, which needs no run."""
        return cast(Made, self.of(_made_of, make, *arguments))

    @property
    def state(self) -> RunState:
        """The state of the run's writers."""
        return self.source.state(self)

    @property
    def steps(self) -> list[int]:
        """Steps on record, ascending."""
        return self.of(_steps)

    def metrics(self, by: tuple[str, ...] = ("step",), steps: range | None = None, gap: str = "") -> pl.DataFrame:
        """Run.metrics: one row per group, `<gap>/<metric>` columns. gap: see `asked_gap`."""
        return self.of(metrics_of, by, steps, *asked_gap(gap))

    def whole(self, name: str, steps: range | None = None) -> float | None:
        """One column of `metrics` over all these steps together; None where it is not available."""
        known = self.steps
        every = steps is None or not known or (steps.start <= known[0] and known[-1] < steps.stop)
        metric = of_column(name)
        if metric is None:
            return None
        gap = asked_gap(name.rpartition("/")[0])
        frame = self.metrics((), None, *gap) if every else self.of(_whole_of, metric.name, steps, *gap)
        value = value_in(frame, name)
        return None if value is None else float(value)

    def grades(self) -> pl.DataFrame:
        """The row of `graded` that decides the severity of each step. Words are made for rows that are shown: `with_readings`."""
        return self.of(_grades_of, self)

    def graded(self) -> pl.DataFrame:
        """One row per step, signal and gap that could be graded."""
        return self.of(signal_grades)

    def verdict(self) -> Finding:
        """The verdict on the run: the problem, its first step, its certainty, a remedy and the checks not made."""
        return self.of(_verdict_of, self, self.run.conservation.unheard)

    def diagnosis(self, gap: str = "", steps: range | None = None) -> Answered | None:
        """The diagnosis of these steps, None if it is being made. gap: empty for the best one on record."""
        return self.source.diagnosis(self, gap, steps)

    def judged_verdict(self) -> Finding:
        """The verdict in the light of the diagnosis, if that is known already. It asks for no diagnosis."""
        known = self.source.known_diagnosis(self)
        return judged(self.verdict(), None if known is None or known.result is None else known.result.diagnosis)

    def distribution(self, level: Level, gap: str) -> pl.DataFrame:
        """Run.distribution: one row per step and occupied bucket."""
        return self.of(Run.distribution, level, gap)

    def sequences(self, step: int, gap: str = "") -> pl.DataFrame:
        """Run.sequences of one step; reads that step's rows. gap: see `asked_gap`."""
        return self.of(_sequences_of, step, *asked_gap(gap))

    def read_steps(self, gap: str) -> list[int]:
        """The steps at which a gap can be measured: all on record, or for a gap of readings those that all its readings have."""
        return self.of(_read_steps, gap) if asked_gap(gap) else self.steps

    def tokens(self, step: int, sequence_id: str, minibatch: int | None) -> pl.DataFrame:
        """Run.sequence: one row per token; reads that sequence's rows."""
        return self.of(Run.sequence, step, sequence_id, minibatch)

    def events(self) -> pl.DataFrame:
        """The events of the run, alerts included: columns step, event, note, kind."""
        return self.events_and_alerts().events

    def events_and_alerts(self) -> EventsAndAlerts:
        """The events and the alerts of the run."""
        return self.of(events_and_alerts_of, self)


CacheRequest = tuple[Callable[..., object], tuple[Hashable, ...]]
"""A function of a run, and its other arguments."""


def figure_request(make: Callable[..., object], *arguments: Hashable) -> CacheRequest:
    """The request for what `View.figure(make, *arguments)` returns."""
    return _made_of, (make, *arguments)


def asked_gap(gap: str) -> tuple[str, ...]:
    """The gap that `Run` has to be asked for: one between readings. All others come in one frame, and the result is empty."""
    return () if gap in GAPS or not gap else (gap,)


def _made_of(run: Run, make: Callable[..., object], *arguments: Hashable) -> object:
    return make(*arguments)


def _steps(run: Run) -> list[int]:
    return run.steps


def _verdict_of(run: Run, shown: View, unheard: tuple[int, int]) -> Finding:
    """unheard: part of the key of the cache alone. A writer that dies commits nothing, so that the revision stays the same."""
    return verdict_of(run, shown.graded())


def events_and_alerts_of(run: Run, shown: View) -> EventsAndAlerts:
    """The value of `View.events_and_alerts`."""
    return events_and_alerts(run, shown.graded())


def _is_growing(run: Run) -> bool:
    return run.writers["closed"].null_count() > 0


def _grades_of(run: Run, shown: View) -> pl.DataFrame:
    return decided(shown.graded())


def _whole_of(run: Run, metric: str, steps: range, gap: str | None = None) -> pl.DataFrame:
    """One metric of these steps together; all metrics would take three times as long."""
    return run.metrics(by=(), steps=steps, names=(metric,), gap=gap)


def metrics_of(run: Run, by: tuple[str, ...], steps: range | None, gap: str | None = None) -> pl.DataFrame:
    """The frame of `View.metrics`; without rows if the run lacks a reading of the gap."""
    if gap is not None and gap not in run.reading_gaps:
        return pl.DataFrame(schema={name: pl.Int64 if name == "step" else pl.String for name in by})
    return run.metrics(by=by, steps=steps, gap=gap, progress=rest)


def _sequences_of(run: Run, step: int, gap: str | None = None) -> pl.DataFrame:
    return run.sequences(step, gap=gap)


def _read_steps(run: Run, gap: str) -> list[int]:
    readings = run.readings
    read = [readings[side].steps for side in sides(gap) if side in readings]
    return [step for step in run.steps if all(step in steps for steps in read)]
