"""The pinned run of a folder of runs, which a page pins or unpins."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from ratioscope.errors import ConfigError
from ratioscope.ingest.files.reference_file import Pinned, folders_above, pin, pinned_above, unpin

from ..blocks import Action, Paragraph
from ..presentation.run_names import shortened
from .face import Face
from .scope import Scope

SAID = "_reference_said"


def pin_action(scope: Scope, name: str) -> Action | None:
    """A button that pins the run in its folder, or unpins it; None where nothing can be pinned."""
    path = scope.runs.runs.get(name)
    if path is None or not scope.runs.roots:
        return None
    known, folder = None, Path(path).parent
    with suppress(ConfigError):  # a damaged file pins nothing, and a click says so
        known, folder = pinned_above(Path(path), scope.runs.roots)
    project = folders_above(Path(path), scope.runs.roots)[-1]
    is_pinned = run_path(known, folder) == path
    words = f"{'unpin' if is_pinned else 'pin'} {shortened(name)}"
    change = (folder, None) if is_pinned else (project, Path(path).relative_to(project).as_posix())
    about = "Every chart and card of the runs in its folder then compares with it."
    return Action(f"pin_{name}", words, partial(_change, scope.face, *change), about)


def run_path(known: Pinned | None, folder: Path) -> str:
    """The path of the run that this folder pins; empty if it pins a baseline, or nothing."""
    return str(folder / known.name) if known is not None and known.kind == "run" else ""


def say(face: Face, words: str) -> None:
    """Keeps the result of a click for `said_of_pin`."""
    face.forget(SAID)
    face.remembered(SAID, words)


def said_of_pin(face: Face) -> Iterator[Paragraph]:
    """The result of a click, once."""
    if said := face.remembered(SAID, ""):
        yield Paragraph(said, "muted")
    face.forget(SAID)


def _change(face: Face, folder: Path, run: str | None) -> None:
    try:
        if run is None:
            unpin(folder)
        else:
            pin(folder, Pinned("run", run))
        said = "No run is pinned now." if run is None else f"{run} is the pinned run of {folder}."
    except ConfigError as error:
        said = f"Not pinned: {error}"
    say(face, said)
