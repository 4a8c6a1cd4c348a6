"""The pinned run of a folder of runs, or the saved baseline that it pins: what the runs in it are compared with."""

import json
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal

from ratioscope.errors import ConfigError
from ratioscope.inside import content
from ratioscope.whole_file import whole_file

REFERENCE_FILE = "ratioscope-reference.json"
SCHEMA = "ratioscope-reference/1"
MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Pinned:
    """The run or baseline that a folder of runs pins."""

    kind: Literal["run", "baseline"]
    name: str
    """The path of a run below the folder."""


def pinned(folder: Path) -> Pinned | None:
    """The run or baseline that a folder pins; None where it pins none. ConfigError where its file is damaged."""
    try:
        read = json.loads(content(folder, REFERENCE_FILE, MOST_BYTES))
        kinds = [kind for kind in ("run", "baseline") if isinstance(read.get(kind), str)]
        if read.get("schema") != SCHEMA or len(kinds) != 1:
            raise ValueError(f"wanted schema {SCHEMA} and one of run and baseline")
        name = read[kinds[0]]
        if kinds == ["run"]:
            _demand_below(name)
            return Pinned("run", name)
        return Pinned("baseline", name)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        path = folder / REFERENCE_FILE
        raise ConfigError(
            f"{path} pins nothing ({str(error)[:120]}); try: ratioscope baseline unpin {folder}"
        ) from error


def pinned_above(run: Path, roots: Sequence[str] = ()) -> tuple[Pinned | None, Path]:
    """(what is pinned, its folder) of the nearest of the `folders_above` that pins one. ConfigError where its file is damaged."""
    for folder in folders_above(run, roots):
        if (found := pinned(folder)) is not None:
            return found, folder
    return None, run.parent


def folders_above(run: Path, roots: Sequence[str] = ()) -> list[Path]:
    """The folders above a run, from its own up to the served one; for a run that is served itself its folder alone.

    Without served folders: up to the first that anybody may write, such as /tmp, where a stranger may have pinned something.
    """
    if not roots:
        own, *others = Path(os.path.abspath(run)).parents
        return [own, *takewhile(lambda folder: not folder.stat().st_mode & stat.S_IWOTH, others)]
    root = next((Path(root) for root in roots if Path(root) in run.parents), run.parent)
    return [folder for folder in run.parents if folder == root or root in folder.parents]


def pin(folder: Path, reference: Pinned) -> Path:
    """Pins it in place of an older one. The file appears whole or not at all; ConfigError if it cannot be written."""
    path = folder / REFERENCE_FILE
    try:
        if reference.kind == "run":
            _demand_below(reference.name)
        with whole_file(path) as file:
            file.write(json.dumps({"schema": SCHEMA, reference.kind: reference.name}).encode())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path} cannot be written: {reason}; wanted a folder of runs that you may write") from error
    return path


def unpin(folder: Path) -> None:
    """Unpins. ConfigError if none is pinned, or the folder cannot be written."""
    try:
        (folder / REFERENCE_FILE).unlink()
    except OSError as error:
        raise ConfigError(f"{folder / REFERENCE_FILE}: {error.strerror}; wanted a folder with a pinned run") from error


def _demand_below(name: str) -> None:
    """ValueError unless the path leads to a folder below the project, by its text alone."""
    parts = name.split("/")
    if not name or name.startswith("/") or any(part in ("", "..", ".") for part in parts) or "\0" in name:
        raise ValueError(f"{name[:80]!r} is no path below the folder")
