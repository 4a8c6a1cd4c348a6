"""Sends what is new of a run to its W&B run: rows of new steps, new or worse alerts, and at the end the report.

The worst sequences of a report as a table of plain cells, without secrets, and without texts unless they are wanted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratioscope.ingest.analysis.recorded_events import events_and_alerts, until
from ratioscope.ingest.run import Run
from ratioscope.metrics.grading.alerts import Alert
from ratioscope.version import __version__

from ...documents.material import material
from ...documents.report import html_report
from ...pages.worst import WorstSequence
from ...presentation.privacy import scrubbed_text
from ...presentation.run_state import state_of
from .rows import STATE, StepRow, columns_sent, histograms, step_rows
from .session import Session
from .sync_record import Destination, SyncRecord, keep

HISTOGRAM_EVERY = 10
"""A row in so many has histograms: W&B draws 10,000 of one name at most, which 100,000 steps fill."""
MOST_ALERTS = 20
"""Alerts of one look at most, the worst first: W&B sends a mail or message for each."""

LONGEST = 4000
"""Characters of a cell."""


@dataclass
class Sync:
    """A run, and what was sent of it."""

    run: Run
    target: Destination
    """The W&B run to send to."""
    record: SyncRecord
    file: Path
    """The file that holds `record`."""

    def rows(self, ended: bool) -> list[StepRow]:
        """The rows that were not sent, in ascending order. ended: no step may still grow."""
        rows = step_rows(self.run, settled_only=not ended)
        return [row for row in rows if self.record.steps.get(str(row.step)) != row.digest]

    def begin(self, session: Session) -> None:
        """Names the metrics. A W&B run with rows of which nothing is known here keeps them: only later steps are sent."""
        session.define(columns_sent(self.run.gaps))
        newest = session.newest_step
        if newest is not None and not self.record.steps:
            rows = step_rows(self.run, settled_only=False)
            self.record.steps = {str(row.step): row.digest for row in rows if row.step <= newest}
        self.record.rows = max(self.record.rows, session.rows)

    def send(self, session: Session, ended: bool) -> int:
        """Sends new rows and alerts; returns the number of rows. The steps that were sent are on disk afterwards."""
        if self.state_is_due:
            self.record.state = state_of(self.run.path).life
            session.summary(STATE, self.record.state)
            keep(self.record, self.file)
        rows = self.rows(ended)
        if not rows:
            return 0
        drawn = {gap: histograms(self.run, gap) for gap in self.run.gaps}
        for row in rows:
            due = self.record.rows % HISTOGRAM_EVERY == 0
            counts = {gap: steps[row.step] for gap, steps in drawn.items() if due and row.step in steps}
            session.log(self.record.rows, row.content(), counts)
            self.record.rows += 1
            self.record.steps[str(row.step)] = row.digest
        new = [alert for alert in events_and_alerts(self.run).alerts if alert.severity > self._sent_severity(alert)]
        for alert in sorted(new, key=lambda alert: (-alert.severity, alert.first_step))[:MOST_ALERTS]:
            title = f"{alert.severity.label}: {alert.signal.title} ({alert.gaps})"
            session.alert(scrubbed_text(title), scrubbed_text(f"{until(alert)}: {alert.reading}"), int(alert.severity))
        for alert in new:
            self.record.alerts[_key(alert)] = int(alert.severity)
        keep(self.record, self.file)
        return len(rows)

    @property
    def state_is_due(self) -> bool:
        """True if the run is in another state than was sent: it has ended, for example, or is dead."""
        return self.record.state != state_of(self.run.path).life

    @property
    def report_is_due(self) -> bool:
        """True unless the newest report was made of the same files, with the same choice of text."""
        return self.record.report != self._made_of

    def report(self, session: Session) -> None:
        """Sends the report, the table of its worst sequences, and the verdict."""
        read = material(self.run, text=self.target.text)
        session.summary("verdict", scrubbed_text(f"{read.words.brief} {read.verdict.checked}".rstrip()))
        session.summary("version", __version__)
        if read.worst:
            session.table(self.record.rows, "worst_sequences", *worst_table(read.worst, self.target.text))
            self.record.rows += 1
        session.artifact(f"ratioscope-{self.file.stem}-report", "ratioscope-report", "report.html", html_report(read))
        self.record.report = self._made_of
        keep(self.record, self.file)

    @property
    def _made_of(self) -> str:
        return f"{self.run.digest} {__version__} {'text' if self.target.text else 'no text'}"

    def _sent_severity(self, alert: Alert) -> int:
        return self.record.alerts.get(_key(alert), 0)


def _key(alert: Alert) -> str:
    return f"{alert.signal.name} {alert.gap} {alert.first_step}"


Cell = str | float | None


def worst_table(worst: Sequence[WorstSequence], text: bool) -> tuple[list[str], list[list[Cell]]]:
    """(header, rows). text: with the prompt and the response, where the run holds them."""
    facts = list(dict.fromkeys(name for item in worst for name in item.facts))
    header = ["step", "sequence_id", "tokens_recorded", *facts, *(("prompt", "response") if text else ())]
    return header, [_cells(item, facts, text) for item in worst]


def _cells(item: WorstSequence, facts: Sequence[str], text: bool) -> list[Cell]:
    cells = [item.step, _plain(item.sequence_id), item.length, *(_plain(item.facts.get(name)) for name in facts)]
    return [*cells, _plain(item.prompt), _response(item)] if text else cells


def _response(item: WorstSequence) -> Cell:
    if "token_text" not in item.tokens.columns:
        return None
    texts = item.tokens["token_text"].drop_nulls().to_list()
    return _plain("".join(texts)) if texts else None


def _plain(value: Any) -> Cell:
    """The value as a cell; None where it is absent or not finite."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return scrubbed_text(str(value))[:LONGEST]
    return value
