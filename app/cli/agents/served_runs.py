"""The runs that an agent may name. It sends no path: a run is one of those that were found below the served folder.

The search follows no link, so that no name leads out of the folder.
"""

from pathlib import Path

from ratioscope.collectors.batch.text_policy import name_or_digest
from ratioscope.errors import SourceError
from ratioscope.ingest.files.run_tree import RunTree, runs_below

from ...presentation.escape import visible

LONGEST = 200
"""Characters of an asked name in an error."""


def served(root: Path) -> tuple[dict[str, Path], RunTree]:
    """(name -> folder, the search). A name is the path below the folder, or its digest where that is a sentence."""
    tree = runs_below(root)
    return {name_or_digest(path.relative_to(root).as_posix()): path for path in tree.runs}, tree


def run_named(root: Path, name: str) -> Path:
    """The folder of this run. SourceError for any name that `served` does not give."""
    known = served(root)[0]
    if name not in known:
        some = ", ".join(list(known)[:5]) or "no run"
        raise SourceError(
            f"no run is named {visible(name, LONGEST)!r} in the served folder, which has {some}; wanted a name that"
            " list_runs gives"
        )
    return known[name]
