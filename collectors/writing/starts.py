"""The folder that a start of a job records into: decided once, by the first of its processes, and on record for the others.

A start goes on in the run that it finds if that is of the same experiment, else it begins a run beside it: NAME-2, NAME-3, and so
on. See start_files.py for the record, and for the question who belongs to a start.
"""

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ratioscope import process
from ratioscope.errors import ConfigError
from ratioscope.inside import entries, is_file
from ratioscope.layout import COMMITS, RUN_FILE, STARTS, STATISTICS, TOKENS

from .durable_file import make_root, write_whole
from .joining import is_named, is_same_name, openings, process_of
from .run_file import new_run, start_run
from .same_experiment import in_words
from .start_files import (
    Start,
    described,
    differences_to,
    has_ended,
    has_steps,
    is_claimed,
    is_of_a_run,
    is_same_start,
    names_in,
    run_file_of,
    starts_of,
    this_start,
)

Existing = Literal["auto", "resume", "new", "error"]
SUB_FOLDER = "ratioscope-run"
"""The run in a folder of other files."""
_OWN = {RUN_FILE, STARTS, TOKENS, STATISTICS, COMMITS}
_HARMLESS = re.compile(r"\..*|.*\.(log|out|err)|control\.json|ratioscope\.toml")
"""Names beside which a run begins in the folder itself: hidden ones, output of the job, and what is given to a run in advance."""
_MOST_LOOKED_AT, _MOST_RUNS, _MOST_TRIES = 1000, 1000, 50
_PAUSE, _BEGINS_WITHIN = 0.05, 10.0
"""Seconds between two looks at a start that has decided and not begun, and its age from which on nobody waits for it."""


@dataclass(frozen=True)
class Settled:
    """The answer for one process."""

    root: Path
    """The folder that it records into."""
    info: Mapping[str, Any]
    """The content of run.json."""
    words: str
    """A sentence on what was found and what happens; empty where there is nothing to tell."""


def settled(asked: Path, info: Mapping[str, Any], own: Start, existing: Existing) -> Settled:
    """The folder that this start records into, with a run.json. OSError if it cannot be made; ConfigError for "error" and a run.

    asked: the folder that the job named.
    """
    base, words = _base(asked)
    make_root(base)
    for left in reversed(range(_MOST_TRIES)):
        starts = starts_of(base)
        known = [each for each in starts.values() if each is not None]
        if (first := next((each for each in known if is_same_start(base, each, own, info)), None)) is not None:
            root = base.with_name(first.folder)
            if left and _has_yet_to_begin(root, first, own):
                time.sleep(_PAUSE)
                continue
            start_run(root, named := _named(info, base, root))
            is_to_tell = own.rank == 0 and root != base and first.token != own.token
            return Settled(root, named, _joined(words, f"this start records into {root}") if is_to_tell else "")
        root, why = _Found.at(base, info, own, known).decision(existing)
        if is_claimed(base, max(starts, default=0) + 1, own, root):
            _begin(root, named := _named(info, base, root), is_given_up=_is_given_up(root, known, own))
            return Settled(root, named, _joined(words, why))
    raise OSError(f"{_MOST_TRIES} other starts were faster; try again")


def _has_yet_to_begin(root: Path, first: Start, own: Start) -> bool:
    """True if the start has claimed its folder and is about to write run.json, which tells its experiment from others."""
    is_other = first.token != own.token and first.process.pid != own.process.pid
    is_new = 0 <= time.time() - first.time < _BEGINS_WITHIN
    return is_other and is_new and not is_file(root, RUN_FILE) and first.process.life(process.here()) == "alive"


def demand_none(asked: Path, own: Start | str) -> None:
    """ConfigError if the folder holds a run of another start. own: this start, or the $RATIOSCOPE_LAUNCH of one to come."""
    base, _ = _base(asked)
    known = [each for each in starts_of(base).values() if each is not None]
    if isinstance(own, str):
        ours, own = (each for each in known if each.job == f"job:{own}"), this_start(0, "", None)
    else:
        ours = (each for each in known if is_same_start(base, each, own, {}))
    if next(ours, None) is None:
        _Found.at(base, {}, own, known).decision("error")


def place_for(asked: Path) -> tuple[Path, bool]:
    """The folder that a start would record into, and True if no run is there, so that this is certain."""
    base, _ = _base(asked)
    return base, not has_steps(base)


def folder_of_launch(asked: Path, name: str) -> Path:
    """The folder that the newest start of this $RATIOSCOPE_LAUNCH records into; the one that was named if none has decided."""
    base, _ = _base(asked)
    found = (each.folder for each in starts_of(base).values() if each is not None and each.job == f"job:{name}")
    return base.with_name(next(found, base.name))


@dataclass(frozen=True)
class _Found:
    """The runs that a start finds."""

    base: Path
    """The folder that the job named, or the run in it."""
    info: Mapping[str, Any]
    """The content of run.json if this start begins a run."""
    own: Start
    """This start."""
    starts: Sequence[Start]
    """Starts that decided, the newest first."""
    runs: Sequence[Path]
    """The folder itself, and runs that earlier starts began beside it; the newest first."""

    @classmethod
    def at(cls, base: Path, info: Mapping[str, Any], own: Start, starts: Sequence[Start]) -> "_Found":
        name = re.compile(rf"{re.escape(base.name)}-([2-9]|[1-9]\d{{1,8}})")
        numbers = [int(match[1]) for found in names_in(base.parent) if (match := name.fullmatch(found))]
        beside = (base.with_name(f"{base.name}-{number}") for number in sorted(numbers, reverse=True)[:_MOST_RUNS])
        return cls(
            base, info, own, starts, [*(run for run in beside if run_file_of(run).get("beside") == base.name), base]
        )

    def decision(self, existing: Existing) -> tuple[Path, str]:
        """The folder, and what to tell."""
        is_empty = not has_steps(self.base)
        if existing == "error" and not is_empty:
            what = f"{self.base} holds {described(self.base)}"
            raise ConfigError(f"{what}; wanted a folder without a run, because of existing='error': name another one")
        if existing == "resume":
            return self.base, "" if is_empty else _goes_on(self.base)
        why = "existing='new'"
        for run in self.runs if existing == "auto" else ():
            if not has_steps(run):
                continue
            differ = in_words(differences_to(run, self.info, self.own.rank)) or self._in_use(run)
            if not differ:
                return run, _goes_on(run)
            why = differ if run == self.base else why
        why = self._in_use(self.base) if is_empty else why
        free = (run for run in self.runs if not has_steps(run) and not self._in_use(run))
        root = next(free, None) or self._next()
        return root, "" if root == self.base else self._beside(root, why)

    def _in_use(self, run: Path) -> str:
        """The process of another start that records into the run, in words; empty if none does, as far as is known here."""
        decided = [each for each in self.starts if each.folder == run.name and self._is_alive(each.process)]
        at_work: list[tuple[process.Process, object, object]] = [
            (each.process, each.rank, each.launch) for each in decided if not has_ended(run, each)
        ]
        writers = [each for each in openings(run) if not each["closed"] and self._is_alive(process_of(each))]
        at_work += [(process_of(each), each.get("rank"), each.get("launch")) for each in writers]
        for theirs, rank, name in at_work:
            if rank == self.own.rank or self._is_named_otherwise(name) or differences_to(run, self.info, self.own.rank):
                return f"process {theirs.pid} records there"
        return ""

    def _is_alive(self, theirs: process.Process) -> bool:
        """True if it is another process, and alive on this host."""
        return theirs.pid != self.own.process.pid and theirs.life(process.here()) == "alive"

    def _is_named_otherwise(self, name: object) -> bool:
        """True if a launcher tells the starts apart. Without one, a process of another rank may be of this start."""
        return not is_same_name(name, self.own.launch) and (is_named(str(name)) or is_named(self.own.launch))

    def _next(self) -> Path:
        taken = {each.folder for each in self.starts}
        names = (self.base.with_name(f"{self.base.name}-{number}") for number in range(2, 1 << 30))
        return next(path for path in names if path.name not in taken and not os.path.lexists(path))

    def _beside(self, root: Path, why: str) -> str:
        there = f"{self.base} holds {described(self.base)}" if has_steps(self.base) else f"{self.base} is taken"
        return f"{there} ({why}): this start records into {root}; existing='resume' would go on in {self.base.name}"


def _goes_on(run: Path) -> str:
    what = "what it records takes the place of the older steps from its first one on; existing='new' would begin a run beside it"
    return f"{run} holds {described(run)}: this start goes on with it as its next attempt, and {what}"


def _is_given_up(root: Path, starts: Sequence[Start], own: Start) -> bool:
    """True if the starts that were to record there have ended, or were of this process, and none did: its run.json may go."""
    theirs = [each.process for each in starts if each.folder == root.name and each.process.pid != own.process.pid]
    is_known = any(each.folder == root.name for each in starts)
    return is_known and not any(names_in(root, COMMITS)) and all(each.life(process.here()) == "gone" for each in theirs)


def _begin(root: Path, info: Mapping[str, Any], *, is_given_up: bool) -> None:
    """Makes the folder and run.json; that of starts that recorded nothing gives way."""
    make_root(root)
    if is_given_up:
        write_whole(root, RUN_FILE, new_run(info))
    else:
        start_run(root, info)


def _named(info: Mapping[str, Any], base: Path, root: Path) -> Mapping[str, Any]:
    """The content of run.json, with the number of a run that was begun beside another, and the id that its logs name."""
    named = {writer["run"] for writer in openings(root) if isinstance(writer.get("run"), str)}
    info = {**info, "id": named.pop()} if len(named) == 1 and not is_file(root, RUN_FILE) else info
    if root == base:
        return info
    return {**info, "name": f"{info['name']}{root.name.removeprefix(base.name)}", "beside": base.name}


def _base(asked: Path) -> tuple[Path, str]:
    """The folder of the run, and what to tell: a folder of other files becomes no run, it gets one."""
    try:
        names = [found.name for found in entries(asked, "", _MOST_LOOKED_AT)]
    except FileNotFoundError:
        return asked, ""
    other = next((name for name in sorted(names) if not _HARMLESS.fullmatch(name)), None)
    own = _OWN.intersection(names)
    if other is None or own - {RUN_FILE} or (own and is_of_a_run(run_file_of(asked))):
        return asked, ""
    return asked / SUB_FOLDER, f"{asked} holds files that are no run, such as {other}: the run is {asked / SUB_FOLDER}"


def _joined(*words: str) -> str:
    return "; ".join(filter(None, words))
