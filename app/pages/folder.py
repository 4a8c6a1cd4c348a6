"""The runs of a folder: those that a page puts beside its own, and those that the page Runs lists."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratioscope.errors import RatioscopeError

from ..blocks import Block, Paragraph
from ..presentation.escape import visible
from ..presentation.run_state import RunState
from .face import Face, Several
from .run_summary import Summary
from .view import View

MOST_OTHERS = 7
"""Most runs beside the shown one; there are eight colours."""


@dataclass(frozen=True)
class ListedRun:
    """A run of the folder, as far as it is known."""

    name: str
    summary: Summary | None
    """None if it was not read yet."""
    state: RunState
    """The state of its writers."""


@dataclass(frozen=True)
class Folder:
    """The runs that a reader can choose from."""

    runs: Mapping[str, str]
    """Name -> path, in order."""
    view: Callable[[str], View]
    """A path -> the run as a page shows it beside another. Raises RatioscopeError where it cannot be read."""
    listed: Callable[[Sequence[str]], tuple[list[ListedRun], int]] = lambda wanted: ([], 0)
    """(every run, the number that is not read yet). It reads some more first, in the order of these paths."""
    roots: Sequence[str] = ()
    """The served folders and runs, below which a run can be pinned; none in a file."""
    note: str = ""
    """A sentence on a part that was left out of the folder, and why."""


NO_FOLDER = Folder({}, dict[str, View]().__getitem__)


def chosen_runs(face: Face, names: Iterable[str], key: str, title: str, **look: Any) -> list[str]:
    """The runs of these names that the reader chooses. look: other fields of the question."""
    shown = {visible(name): name for name in names}
    chosen = face.ask(Several(key, title, [*shown], absent="not served here: {}", **look))
    return [shown[name] for name in chosen]


def opened(folder: Folder, names: Iterable[str], left_out: list[Block]) -> dict[str, View]:
    """Name -> run, for the runs that can be read. left_out: gets a warning for each of the others."""
    found = {}
    for name in names:
        try:
            found[name] = folder.view(folder.runs[name])
        except (RatioscopeError, KeyError) as error:
            left_out.append(Paragraph(f"{name} is left out: {error}", "warning"))
    return found
