"""What lies at a path that the dashboard was asked to show: said on the terminal, before it is served."""

from pathlib import Path

from ratioscope.ingest.files.folder import is_run
from ratioscope.ingest.files.run_tree import runs_below

from ..terminal import say
from .arguments import opened


def say_found(folder: Path) -> None:
    """Opens a run, so that one that cannot be read is an error at once; of any other folder says what lies below it."""
    if not folder.is_dir() or is_run(folder):
        opened(folder)
        return
    tree = runs_below(folder)
    more = f" ({tree.note})" if tree.note else ""
    if number := len(tree.runs):
        say(f"{folder}: {number} run{'s' * (number > 1)}{more}")
    else:
        say(f"{folder}: no run yet; the dashboard shows the first one as soon as it begins{more}")
