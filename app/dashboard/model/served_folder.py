"""The served runs as the page Runs lists them: each is read once per state of its commit logs, a few runs at a time.

Tags that readers put on runs are in the run for everybody, or beside this server if the run cannot be written.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

import streamlit as st

from ratioscope.collectors.writing.offline import write_remark
from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.analysis.acknowledgements import note_of, tag_name
from ratioscope.ingest.commits.liveness import current_writers, sizes, writer_statuses
from ratioscope.ingest.files.run_file import run_file
from ratioscope.inside import status
from ratioscope.layout import RUN_FILE, TAG
from ratioscope.process import Here, here
from ratioscope.whole_file import whole_file

from ...pages.folder import Folder, ListedRun, Summary, summary_of
from ...pages.kept_summaries import FolderSignature, keep_summary, read_summary, signature_of
from ...pages.run_groups import settings_of
from ...presentation.run_state import Life, RunState, run_state
from ...presentation.theme import MARKS
from ...referee.baselines import baselines_folder
from .diagnoses import diagnoses
from .live import beside
from .opened_runs import attempt_asked, opened_run
from .served_runs import served

AGAIN = 20.0
"""Pause before a growing run is read again, as a multiple of the time of the last reading."""
BUDGET = 1.0
"""Seconds of reading between two drawings of the list, so that it fills while the page stays usable."""


@dataclass(frozen=True)
class _KeptSummary:
    signature: FolderSignature
    life: Life | None
    """State of the run. A writer that dies commits nothing, and its run is no longer measured whole."""
    summary: Summary
    until: float
    """Time on the clock up to which it is used without a new look at the folder."""


@dataclass
class Summaries:
    """Summaries that were read, shared by all sessions."""

    clock: Callable[[], float] = time.monotonic
    """Seconds on a clock that never goes back."""
    _kept: dict[str, _KeptSummary] = field(default_factory=dict)
    """Path of a run -> its summary."""
    _words: dict[str, dict[str, Any]] = field(default_factory=dict)
    _lives: dict[str, Life] = field(default_factory=dict)
    """Path of a run -> its state at the last look."""
    _settings: dict[str, tuple[tuple[int, int], Mapping[str, str]]] = field(default_factory=dict)
    """Path of a run -> (size and time of run.json, its settings)."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, path: str) -> Summary | None:
        """The last summary of the run; None if the run was never read."""
        entry = self._kept.get(path)
        return None if entry is None else entry.summary

    def state(self, path: str, here: Here, now: float) -> RunState:
        """The present state of the run, in the words of its own pages. It reads the ends of changed commit logs."""
        try:
            self._words[path] = writer_statuses(Path(path), sizes(Path(path)), self._words.get(path, {}))
        except SourceError:
            self._words.pop(path, None)
            return RunState("dead", "gone: its folder was deleted or moved", "", brief=f"{MARKS['act']} gone")
        known = run_state(current_writers(word for _, word in self._words[path].values()), here, now)
        self._lives[path] = known.life
        return known

    def settings(self, path: str) -> Mapping[str, str]:
        """The settings of the run, before it is read: run.json is read again only when it changes."""
        try:
            about = status(Path(path), RUN_FILE)
            stamp = about.st_size, about.st_mtime_ns
            if path not in self._settings or self._settings[path][0] != stamp:
                self._settings[path] = stamp, settings_of(run_file(Path(path)).info)
            return self._settings[path][1]
        except (OSError, SourceError):
            return {}

    def note_tag(self, path: str, tag: str, *, holds: bool) -> None:
        """Notes a tag that the run has, or has no more, so that the list tells it before the run is read again."""
        with self._lock:
            if (entry := self._kept.get(path)) is not None:
                tags = with_beside(entry.summary.tags, {tag: holds})
                self._kept[path] = replace(entry, summary=replace(entry.summary, tags=tags))

    def read_some(self, paths: Iterable[str], seconds: float) -> int:
        """Reads runs that were never read, then changed ones, for about so many seconds; at least one.

        Returns the number of runs that were never read.
        """
        with self._lock:
            end = self.clock() + seconds
            waiting = list(paths)
            new = [path for path in waiting if path not in self._kept]
            for done, path in enumerate(self._in_turn(new, waiting)):
                self._kept[path] = self._read(path)
                if self.clock() >= end:
                    return max(0, len(new) - done - 1)
            return 0

    def _in_turn(self, new: list[str], paths: list[str]) -> Iterator[str]:
        yield from new
        for path in paths:
            entry = self._kept[path]
            if path in new or self.clock() < entry.until:
                continue
            if self._lives.get(path) != entry.life or signature_of(path) != entry.signature:
                yield path

    def _read(self, path: str) -> _KeptSummary:
        began = self.clock()
        signature, life = signature_of(path), self._lives.get(path)
        summary = read_summary(lambda: summary_of(opened_run(path)))
        if attempt_asked() is None:
            keep_summary(path, signature, life, summary, is_diagnosed=True)
        return _KeptSummary(signature, life, summary, self.clock() + AGAIN * (self.clock() - began))


@st.cache_resource(show_spinner=False)
def summaries() -> Summaries:
    """The summaries of this process."""
    return Summaries()


def served_folder() -> Folder:
    """The runs that this server may open, as pages choose among them."""
    now = served()
    return Folder(now.runs, beside, _listed, now.roots, now.note, _tagged)


def _listed(wanted: Sequence[str]) -> tuple[list[ListedRun], int]:
    known, asking, now, runs = summaries(), here(), time.time(), served().runs
    states = {name: known.state(path, asking, now) for name, path in runs.items()}
    waiting = known.read_some(wanted, BUDGET)
    apart: Mapping[str, Mapping[str, bool]] = {}
    with suppress(ConfigError):  # a damaged file has no tags, and a click says so
        apart = tags_beside()
    listed = []
    for name, path in runs.items():
        own, state, beside_it = known.known(path), states[name], apart.get(path, {})
        summary = None if own is None else own.with_cause(diagnoses().of_whole(path), state.step)
        tags = with_beside(() if own is None else own.tags, beside_it)
        listed.append(ListedRun(name, summary, state, known.settings(path), tags, bool(beside_it)))
    return listed, waiting


def _tagged(names: Sequence[str], typed: str, holds: bool) -> str:
    """Puts the tag on the runs, or takes it off. Returns the words on it."""
    runs, why = served().runs, ""
    try:
        tag = tag_name(typed)
        for path in (runs[name] for name in names if name in runs):
            if reason := put_tag(path, tag, holds=holds):
                why = reason
            else:
                summaries().note_tag(path, tag, holds=holds)
    except ConfigError as error:
        return f"Not tagged: {error}"
    return f"{tag} is kept beside this server, in {tags_file()}, because {why}" if why else ""


SCHEMA = "ratioscope-tags/1"
_LOCK = Lock()


def tags_file() -> Path:
    """$XDG_CONFIG_HOME/ratioscope/tags.json, by default ~/.config/ratioscope/tags.json."""
    return baselines_folder().with_name("tags.json")


def tags_beside() -> dict[str, dict[str, bool]]:
    """Path of a run -> tag -> True if it was put on it, False if it was taken off. ConfigError if the file is damaged."""
    path = tags_file()
    try:
        read = json.loads(path.read_bytes())
        if read["schema"] != SCHEMA:
            raise ValueError(f"wanted schema {SCHEMA}")
        runs = read["runs"].items()
        return {str(run): {str(tag): holds is True for tag, holds in own.items()} for run, own in runs}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read ({str(error)[:120]}); mend it, or move it away") from error


def with_beside(tags: tuple[str, ...], beside: Mapping[str, bool]) -> tuple[str, ...]:
    """The tags of a run as readers of this server see them."""
    kept = {*tags} - {tag for tag, holds in beside.items() if not holds}
    return tuple(sorted(kept | {tag for tag, holds in beside.items() if holds}))


def put_tag(path: str, tag: str, *, holds: bool) -> str:
    """Puts the tag on the run, or takes it off. Returns the reason why it is kept beside the server; empty if the run keeps it.

    ConfigError if it can be kept nowhere.
    """
    try:
        write_remark(path, TAG, 0, note_of(tag, holds=holds))
        why = ""
    except SourceError as error:
        why = str(error)
    with _LOCK:
        known = tags_beside()
        if why or tag in known.get(path, {}):  # what the run keeps itself counts from now on
            own = {name: on for name, on in known.get(path, {}).items() if name != tag} | ({tag: holds} if why else {})
            _write(known | {path: own})
    return why


def _write(runs: Mapping[str, Mapping[str, bool]]) -> None:
    path = tags_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(json.dumps({"schema": SCHEMA, "runs": {run: own for run, own in runs.items() if own}}).encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}; wanted a folder that you may write") from error
