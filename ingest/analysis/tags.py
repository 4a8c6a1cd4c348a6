"""Tags of a run: words that people put on it, so that a team finds its runs. The run keeps them, so every reader sees them.

The last change of a tag holds.
"""

import json
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.layout import TAG

if TYPE_CHECKING:
    from ..run import Run

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
