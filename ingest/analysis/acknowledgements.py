"""Alerts that a person has acknowledged, tags, and saved views. The run keeps them, so every reader sees them.

An acknowledgement names a signal, a step and a grade. It covers the alert of the signal that has the step, unless the alert has
become worse since. Each change of it has a number: of all that were made, the one with the highest number holds.

A saved view is a page and its choices under a name; its changes are numbered in the same way. Tags of a run are words that people
put on it, so that a team finds its runs; the last change of a tag holds.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.layout import ACKNOWLEDGED, TAG, VIEW, WITHDRAWN
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


LONGEST_NAME = 80
LONGEST = 4000
"""Most characters of a view in the run, so that a stranger's run cannot fill a page."""
MOST = 200
ViewChoices = tuple[tuple[str, tuple[str, ...]], ...]
"""(key, values) of the address."""


@dataclass(frozen=True)
class SavedView:
    """The last change of a saved view."""

    name: str
    page: str
    """The path of the page; empty for the first one."""
    choices: ViewChoices
    number: int
    """Number of the change, from 1."""
    removed: bool = False
    """True if the last change removed it."""

    @property
    def note(self) -> str:
        """Its text in the run."""
        query = {key: list(values) for key, values in self.choices}
        return json.dumps(
            {"name": self.name, "page": self.page, "query": query, "number": self.number, "removed": self.removed}
        )


def saved_views(run: "Run") -> tuple[SavedView, ...]:
    """The views of the run by name, at most MOST. A note of another form is passed over."""
    return tuple(each for each in _last_changes(run).values() if not each.removed)[:MOST]


def view_to_save(run: "Run", name: str, page: str, query: Mapping[str, Sequence[str]]) -> SavedView:
    """The change that saves the view, in place of an older one of this name. ConfigError if it is too long or has no name."""
    spoken = " ".join(name.split())
    if not spoken or len(spoken) > LONGEST_NAME:
        raise ConfigError(f"a view needs a name of 1 to {LONGEST_NAME} characters")
    choices = tuple((key, tuple(values)) for key, values in sorted(query.items()))
    made = SavedView(spoken, page, choices, _number(run, spoken))
    if len(made.note) > LONGEST:
        raise ConfigError(
            f"the address of this view has {len(made.note):,} characters; at most {LONGEST:,} can be kept"
        )
    return made


def view_to_remove(run: "Run", name: str) -> SavedView:
    """The change after which there is no view of this name."""
    return SavedView(name, "", (), _number(run, name), removed=True)


def _number(run: "Run", name: str) -> int:
    known = _last_changes(run).get(name)
    return 1 if known is None else known.number + 1


def _last_changes(run: "Run") -> dict[str, SavedView]:
    notes = run.events.filter(pl.col("event") == VIEW)["note"].drop_nulls()
    last: dict[str, SavedView] = {}
    for read in map(_views_read, notes):
        if read is not None and (read.name not in last or last[read.name].number < read.number):
            last[read.name] = read
    return dict(sorted(last.items()))


def _views_read(note: str) -> SavedView | None:
    """The view of a note; None for a note of another form: a stranger may have written it."""
    if len(note) > LONGEST:
        return None
    try:
        read = json.loads(note)
        query = {str(key): tuple(map(str, values)) for key, values in read["query"].items() if isinstance(values, list)}
        number, removed = int(read["number"]), read.get("removed") is True
        return SavedView(str(read["name"])[:LONGEST_NAME], str(read["page"]), tuple(query.items()), number, removed)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
