"""The runs this server may open: those it was started for, and those below the folders it was started for; nothing else.

A URL contains the name of a run. The name is looked up among the runs that were found, so no URL opens any other path. The
folders are searched again while pages are used, so that later runs appear.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import streamlit as st

from ratioscope.ingest.files.quarantine import printable
from ratioscope.ingest.files.run_tree import RunTree, runs_below
from ratioscope.layout import COMMITS

from .opened_runs import RUNS

EVERY = 2.0
"""Seconds between two looks, at least."""
SHARE = 20.0
"""Pause between searches, as a multiple of the time of the last one: a large tree on a slow disk is not searched without
pause."""


@dataclass(frozen=True)
class Served:
    """The runs that a server may open."""

    roots: tuple[str, ...] = ()
    """Runs, and folders of runs, that the server was started for."""
    runs: Mapping[str, str] = field(default_factory=dict)
    """Name -> absolute path, in the order of the roots and then by path."""
    first: str = ""
    """Name of the default run: the root that is a run, else the run below it that began last."""
    waits: bool = False
    """True if more runs may appear."""
    note: str = ""

    def name_of(self, path: str) -> str:
        """The name of a served run; the path of any other."""
        return next((name for name, known in self.runs.items() if known == path), path)


@dataclass
class SearchedRoots:
    """Roots, and the runs below them at the last search."""

    roots: tuple[str, ...]
    """Runs, and folders of runs, that the server was started for."""
    clock: Callable[[], float] = time.monotonic
    """Seconds on a clock that never goes back."""
    _found: Served | None = None
    """The result of the last search; None before the first."""
    _next: float = 0.0
    """Time on the clock from which on the roots are searched again."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> Served:
        """The served runs, from a search at most a few seconds old."""
        with self._lock:
            began = self.clock()
            if self._found is None or began >= self._next:
                self._found = found_below(self.roots)
                ended = self.clock()
                self._next = ended + max(EVERY, SHARE * (ended - began))
            return self._found


def served() -> Served:
    """The runs that this server may open. All sessions share them."""
    return _watched(tuple(json.loads(os.environ.get(RUNS, "[]")))).now()


@st.fragment(run_every=EVERY)
def watch(shown: Served) -> None:
    """Redraws the page when a run appears in the served folders or disappears."""
    if served().runs != shown.runs:
        st.rerun()


def found_below(roots: Sequence[str]) -> Served:
    """Searches these roots. A run below several of them is found once."""
    trees = {root: runs_below(root) for root in roots}
    runs: dict[str, str] = {}
    known: set[str] = set()
    for name, path in _named(trees):
        if path not in known:
            known.add(path)
            runs[_unused(name, runs)] = path
    waits = any(tree.runs != (Path(root),) for root, tree in trees.items())
    note = "; ".join(f"{Path(root).name}: {tree.note}" for root, tree in trees.items() if tree.note)
    return Served(tuple(roots), runs, _first(trees, runs), waits, note)


def other_than(served_runs: Served, own: str) -> str:
    """The default run to compare with the run `own`; `own` itself if it is the only one."""
    return next((name for name in served_runs.runs if name != own), own)


def distinct_names(paths: Sequence[str]) -> dict[str, str]:
    """Path -> the shortest end of it that no other path shares."""
    names = {}
    for path in paths:
        parts = Path(path).parts
        ends = ("/".join(parts[-size:]) for size in range(1, len(parts) + 1))
        others = [other for other in paths if other != path]
        names[path] = next((end for end in ends if not any(f"/{other}".endswith(f"/{end}") for other in others)), path)
    return names


@st.cache_resource(show_spinner=False, max_entries=8)
def _watched(roots: tuple[str, ...]) -> SearchedRoots:
    return SearchedRoots(roots)


def _named(trees: Mapping[str, RunTree]) -> Iterator[tuple[str, str]]:
    """(name, path) of every run: its path below its root, after the root's own name where there are several.

    The name depends on the roots alone, so that a link stays valid when other runs appear.
    """
    names = distinct_names(tuple(trees))
    for root, tree in trees.items():
        for path in tree.runs:
            below = path.relative_to(root).as_posix()
            yield (names[root] if below == "." else below if len(trees) == 1 else f"{names[root]}/{below}"), str(path)


def _unused(name: str, runs: Mapping[str, str]) -> str:
    """The name as text, with a number if names of several runs look the same."""
    shown = printable(name)
    numbered = (f"{shown} ({number})" for number in count(2))
    return shown if shown not in runs else next(other for other in numbered if other not in runs)


def _first(trees: Mapping[str, RunTree], runs: Mapping[str, str]) -> str:
    paths = next((tree.runs for tree in trees.values() if tree.runs), ())
    if not paths:
        return ""
    newest = str(max(paths, key=_began))
    return next(name for name, path in runs.items() if path == newest)


def _began(run: Path) -> float:
    """The approximate time at which a writer last joined the run: its folder of commit logs changes then."""
    for path in (run / COMMITS, run):
        with suppress(OSError):
            return path.stat().st_mtime
    return 0.0
