"""Alerts that a person has acknowledged, and tags. The run keeps them, so every reader sees them.

An acknowledgement names a signal, a step and a grade. It covers the alert of the signal that has the step, unless the alert has
become worse since. Each change of it has a number: of all that were made, the one with the highest number holds.

Tags of a run are words that people put on it, so that a team finds its runs. They are kept in the same way: the last change of a
tag holds.
"""

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.layout import ACKNOWLEDGED, TAG, WITHDRAWN
from ratioscope.metrics.grading.alerts import Alert
from ratioscope.metrics.grading.finding import LABELS

if TYPE_CHECKING:
    from ..run import Run

_NOTE = re.compile(r"(?P<signal>[a-z0-9_.+-]+) (?P<grade>watch|act), change (?P<number>\d{1,9})")


@dataclass(frozen=True)
class Acknowledgement:
    """The last change of an acknowledgement."""

    signal: str
    step: int
    grade: str
    """The severity of the alert at that time."""
    number: int
    """Number of the change, from 1."""
    holds: bool
    """False if it was withdrawn."""

    def covers(self, alert: Alert) -> bool:
        """True if it holds for this alert, which has not become worse since."""
        return self.holds and self.is_of(alert) and alert.severity <= LABELS.index(self.grade)

    def is_of(self, alert: Alert) -> bool:
        return self.signal == alert.signal.name and alert.first_step <= self.step <= alert.last_step

    @property
    def note(self) -> str:
        """Its text in the run."""
        return f"{self.signal} {self.grade}, change {self.number}"

    @property
    def event(self) -> str:
        """Its name in the run."""
        return ACKNOWLEDGED if self.holds else WITHDRAWN


Acknowledgements = tuple[Acknowledgement, ...]


def acknowledgements(run: "Run") -> Acknowledgements:
    """The last change of every acknowledgement in the run. A note of another form is passed over."""
    rows = run.events.filter(pl.col("event").is_in([ACKNOWLEDGED, WITHDRAWN]) & pl.col("step").is_not_null())
    last: dict[tuple[str, int], Acknowledgement] = {}
    for row in rows.iter_rows(named=True):
        match = _NOTE.fullmatch(row["note"] or "")
        if match is None:
            continue
        holds = row["event"] == ACKNOWLEDGED
        read = Acknowledgement(match["signal"], row["step"], match["grade"], int(match["number"]), holds)
        before = last.get((read.signal, read.step))
        if before is None or before.number < read.number:
            last[read.signal, read.step] = read
    return tuple(last.values())


def is_acknowledged(alert: Alert, known: Acknowledgements) -> bool:
    """True if an acknowledgement covers the alert."""
    return any(each.covers(alert) for each in known)


def changes_to(alert: Alert, known: Acknowledgements, *, holds: bool) -> Acknowledgements:
    """The changes after which the alert is acknowledged, or is not."""
    own = [each for each in known if each.is_of(alert)]
    grade = alert.severity.label
    if holds:
        number = max((each.number for each in own if each.step == alert.first_step), default=0) + 1
        return (Acknowledgement(alert.signal.name, alert.first_step, grade, number, True),)
    return tuple(
        Acknowledgement(each.signal, each.step, each.grade, each.number + 1, False) for each in own if each.holds
    )


ARCHIVED = "archived"
"""The tag of a run that lists leave out."""
LONGEST, MOST = 40, 50
"""Most characters of a tag, and most tags of a run, so that a stranger's run cannot fill a page."""


def tags_of(run: "Run") -> tuple[str, ...]:
    """The tags of the run by name. A note of another form is passed over."""
    notes = run.events.filter(pl.col("event") == TAG).sort("time")["note"].drop_nulls()
    last = dict(pair for pair in map(_read, notes) if pair is not None)
    return tuple(sorted(tag for tag, holds in last.items() if holds)[:MOST])


def note_of(tag: str, *, holds: bool) -> str:
    """The text in the run after which it has the tag, or has it no more."""
    return json.dumps({"tag": tag, "holds": holds})


def tag_name(typed: str) -> str:
    """The tag as it is kept: one word, so that a search finds it whole. ConfigError if it is empty or too long.

    >>> tag_name("  bad data ")
    'bad-data'
    """
    name = "-".join(typed.replace(",", " ").split())
    if not name or len(name) > LONGEST:
        raise ConfigError(f"a tag of {len(name):,} characters; wanted 1 to {LONGEST}")
    return name


def _read(note: str) -> tuple[str, bool] | None:
    """(tag, True if it was put on the run); None for a note of another form: a stranger may have written it."""
    try:
        read = json.loads(note)
        return tag_name(str(read["tag"])), read["holds"] is True
    except (ValueError, KeyError, TypeError, RecursionError, ConfigError):
        return None
