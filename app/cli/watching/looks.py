"""One look at a growing run: its verdict, its alerts and its writers; and the alerts that are new since earlier looks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from ratioscope.ingest.analysis.judged_verdict import judged_verdict, lately_diagnosed
from ratioscope.ingest.analysis.recorded_events import events_and_alerts
from ratioscope.ingest.commits.liveness import current_writers, sizes, writer_statuses
from ratioscope.ingest.remote.opening import follow
from ratioscope.ingest.run import Run, open_run
from ratioscope.metrics.grading.alerts import Alert
from ratioscope.metrics.grading.finding import Finding
from ratioscope.metrics.grading.run_rules import RunRules
from ratioscope.process import here

from ...presentation.answer import FirstWords, words_of
from ...presentation.run_state import ALARMS, Life, RunState, run_state


@dataclass(frozen=True)
class Look:
    """A run at one moment."""

    name: str
    verdict: Finding
    words: FirstWords
    """The first words on the run. A run on a store is not diagnosed for them."""
    alerts: tuple[Alert, ...]
    state: RunState
    has_ended: bool
    """True if the run had writers and all of them closed their logs."""
    lacks: str
    """Why a run on a store is shown as it was earlier; empty for any other run."""
    steps: pl.DataFrame
    """The metric frame by step."""


@dataclass
class Watched:
    """A run that is looked at again and again."""

    path: Path
    rules: RunRules | None = None
    attempt: int | None = None
    """The only start of the job that is looked at; None: all."""
    _run: Run | None = None
    _seen: Look | None = None
    """The last look; None before the first."""
    _statuses: dict[str, Any] = field(default_factory=dict)
    """The writers' logs that were read last, see liveness."""

    def look(self) -> Look:
        """The run now. Only what was committed since the last look is read."""
        follow(self.path)
        if self._run is None:
            self._run = open_run(self.path, rules=self.rules, attempt=self.attempt)
        state, has_ended = self._state()  # before the rows: a run that ended has no later rows
        if self._run.is_replaced:
            self._run, self._seen = open_run(self.path, rules=self.rules, attempt=self.attempt), None
        changed = self._run.refresh()
        if self._seen is None or changed or self._seen.state.life != state.life:  # a writer that dies commits nothing
            events = events_and_alerts(self._run)
            verdict = judged_verdict(self._run, events.graded)
            steps = self._run.metrics(by=("step",))
            words = words_of(verdict, None if self._run.is_remote else self._run.once(lately_diagnosed))
            self._seen = Look(self._run.name, verdict, words, events.alerts, state, has_ended, self._run.behind, steps)
        else:
            self._seen = replace(self._seen, state=state, has_ended=has_ended, lacks=self._run.behind)
        return self._seen

    def free(self) -> None:
        """Frees what is held of the run; the next look opens it again."""
        self._run = self._seen = None

    def _state(self) -> tuple[RunState, bool]:
        self._statuses = writer_statuses(self.path, sizes(self.path), self._statuses)
        writers = current_writers(status for _, status in self._statuses.values())
        state = run_state(writers, here(), time.time())
        return state, state.ended and bool(writers)


@dataclass(frozen=True)
class LifeChange:
    """A run whose writers died, fell silent, or came back from that."""

    state: RunState


News = Alert | LifeChange


@dataclass
class KnownAlerts:
    """The news of a run of which everybody was told."""

    severities: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """(signal, gap, first step) -> the worst severity of the alert so far."""
    life: Life | None = None
    """The life of the run at the last look; None before the first."""

    def new(self, alerts: Sequence[Alert]) -> list[Alert]:
        """The alerts that are new, or worse than before. They are known afterwards.

        Alerts of several gaps that are merged into one count as one, also if they part later.
        """
        found = []
        for alert in alerts:
            keys = [(alert.signal.name, gap, alert.first_step) for gap in (alert.gap, *alert.also)]
            before = max(self.severities.get(key, 0) for key in keys)
            if alert.severity > before:
                found.append(alert)
            self.severities.update(dict.fromkeys(keys, max(before, int(alert.severity))))
        return found

    def changed(self, state: RunState) -> list[LifeChange]:
        """The change since the last look, if the run is or was dead or silent. It is known afterwards."""
        before, self.life = self.life, state.life
        is_news = before not in (None, state.life) and {before, state.life} & {*ALARMS}
        return [LifeChange(state)] if is_news else []
