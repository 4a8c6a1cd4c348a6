"""The runs below a folder: a tree of sweeps and seeds, looked through without following links or entering a run.

Bounded, because the folder can be anybody's home; what was left out is counted.
"""

import os
from collections import deque
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ratioscope.layout import COMMITS, RUN_FILE, STATISTICS, TOKENS

from .folder import is_run

DEEPEST = 6
"""Folders between the root and a run, at most; a convention: project / sweep / setting / seed, and some."""
MOST_FOLDERS = 5000
MOST_ENTRIES = 20_000
"""Of one folder; a folder of more holds data."""
MOST_RUNS = 1000
_MARKS = frozenset({RUN_FILE, TOKENS, STATISTICS, COMMITS})


@dataclass(frozen=True)
class RunTree:
    """runs: by path, the shallow ones first. folders: how many were looked through. unreadable: could not be listed.
    left_out: folders beyond the limits, with whatever lies in them; links: symbolic links, which are not followed.
    """

    runs: tuple[Path, ...] = ()
    folders: int = 0
    unreadable: int = 0
    left_out: int = 0
    links: int = 0

    @property
    def note(self) -> str:
        """What a reader should know of what was not looked at; empty where that is nothing."""
        told = (
            (self.left_out, "not looked through: too deep, or too many"),
            (self.unreadable, "that cannot be listed"),
        )
        return "; ".join(f"{number:,} folder{'s' * (number > 1)} {why}" for number, why in told if number)


@dataclass(frozen=True)
class _Listed:
    """One folder: the folders in it by name, and what else there is to know."""

    folders: tuple[str, ...] = ()
    may_be_run: bool = False
    links: int = 0
    more: bool = False


def runs_below(root: str | os.PathLike[str]) -> RunTree:
    """The runs at or below a folder. A root that cannot be listed counts as unreadable; nothing raises.

    Folders whose name begins with a dot are left aside: they are a program's own.
    """
    waiting: deque[tuple[Path, int]] = deque([(Path(root), 0)])
    runs: list[Path] = []
    folders = unreadable = left_out = links = 0
    while waiting:
        path, depth = waiting.popleft()
        if folders >= MOST_FOLDERS or len(runs) >= MOST_RUNS:
            left_out += 1 + len(waiting)
            break
        folders += 1
        try:
            found = _listed(path)
        except OSError:
            unreadable += 1
            continue
        links += found.links
        if found.may_be_run and is_run(path):
            runs.append(path)
            continue
        left_out += found.more
        if depth >= DEEPEST:
            left_out += len(found.folders)
        else:
            waiting.extend((path / name, depth + 1) for name in found.folders)
    return RunTree(tuple(runs), folders, unreadable, left_out, links)


def _listed(path: Path) -> _Listed:
    folders, links, may_be_run = [], 0, False
    with os.scandir(path) as entries:
        for entry in islice(entries, MOST_ENTRIES):
            may_be_run |= entry.name in _MARKS
            if entry.is_symlink():
                links += 1
            elif not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
        more = next(entries, None) is not None
    return _Listed(tuple(sorted(folders)), may_be_run, links, more)
