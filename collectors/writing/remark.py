"""The event of a person in a run, in a log of its own beside whatever else is being written there."""

import os
from pathlib import Path

from ratioscope import layout
from ratioscope.errors import SourceError, not_writable

from .offline import OfflineWriter


def write_remark(path: str | os.PathLike[str], event: str, step: int, note: str) -> str:
    """Writes the event and returns its log, relative to the run. SourceError if the run cannot be written.

    Nobody else writes the log, so a writer at work is not disturbed.
    """
    writer = OfflineWriter(Path(path), "note")
    try:
        writer.say({"kind": layout.EVENT, "event": event, "step": step, "note": note})
    except SourceError:
        raise
    except OSError as error:
        raise not_writable(path, error) from error
    return layout.commit_file(writer.writer).as_posix()
