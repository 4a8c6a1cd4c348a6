"""Views of a run that a person saved under a name: a page and its choices. The run keeps them, so every reader sees them.

Each change of a name has a number: of all that were made, the one with the highest number holds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.layout import VIEW

if TYPE_CHECKING:
    from ..run import Run

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
    for read in map(_read, notes):
        if read is not None and (read.name not in last or last[read.name].number < read.number):
            last[read.name] = read
    return dict(sorted(last.items()))


def _read(note: str) -> SavedView | None:
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
