"""`note`: writes an event of a person into a run, beside whatever else is being written there."""

import os
from dataclasses import dataclass

from ratioscope import layout
from ratioscope.collectors.writing.offline import write_remark
from ratioscope.errors import ConfigError
from ratioscope.ingest.run import open_run
from ratioscope.redaction import without_secrets

LONGEST = 2000
"""The most characters of a note."""


@dataclass(frozen=True)
class Note:
    """A note as it was written."""

    step: int
    text: str
    """The text without what looks like a secret."""
    log: str
    """Path of its log, relative to the run."""


def note(path: str | os.PathLike[str], text: str, step: int | None = None) -> Note:
    """Writes the note. step: None: the newest step on record, or 0.

    The note has a log of its own, which nobody else writes, so that a writer at work is not disturbed. SourceError if the run
    cannot be written.
    """
    words = " ".join(text.split())
    if not words or len(words) > LONGEST:
        raise ConfigError(f"a note of {len(words):,} characters; wanted 1 to {LONGEST:,}")
    run = open_run(path)
    at = max(run.steps, default=0) if step is None else step
    log = write_remark(run.path, layout.NOTE, at, words)
    return Note(at, without_secrets(words), log)
