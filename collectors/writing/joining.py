"""Finds the attempt of a run that a writer belongs to, and the writers that it takes over from.

An attempt is a start of the whole job. If one rank is started again while the others go on, it stays in their attempt and takes
over from its earlier process: readers hide the steps that are recorded again, of that process alone. Forked children of a
recording process, and processes without a rank of their own, record beside each other and take over from nobody. A driver of Ray
and a worker of the same rank do not take over from each other either.
"""

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from ratioscope import process
from ratioscope.errors import ConfigError
from ratioscope.inside import entries, kind, open_regular
from ratioscope.layout import CLOSE, COMMITS, OPEN, decode_line

from ..process.notice import warn
from ..process.ranks import in_ray_worker
from ..process.trainer_process import trainer_process
from ..process.variables import LAUNCH
from .run_file import SHARED, is_certain, is_of_ray, launch

_TAIL = 1 << 14  # bytes; an open or close line is far shorter
_MOST_BESIDE = 16
_MOST_ATTEMPTS = 1 << 30  # the column has 32 bits

Opening = Mapping[str, Any]
"""The open line of a writer, with `closed`."""


@dataclass(frozen=True)
class WriterPlace:
    """The place of a writer in a run."""

    attempt: int
    """0 for the first start of the job."""
    takes_over: tuple[str, ...] = ()
    """Earlier writers of the attempt whose work this writer continues."""
    part_of: str | None = None
    """The pool or parent that the process belongs to, see ranks.py; None for a process with a rank of its own."""


def place_in_run(root: Path, rank: int, part_of: str | None = None) -> WriterPlace:
    """The place of this writer: in the latest attempt, or in a new one if the whole job was started again.

    The job was started again if the launcher gives this start another name, or if an earlier writer of the rank has ended and
    no other writer of the attempt is at work. Raises ConfigError while a writer of another job and the same rank is at work. A
    process whose parent records the same rank belongs to that parent.
    """
    writers = openings(root)
    latest = _latest(writers)
    of_latest = [writer for writer in writers if writer["attempt"] == latest]
    own, pid = launch(), trainer_process().pid
    part_of = part_of or _recording_parent([w for w in of_latest if _is_same_start(w, own)], rank, pid)
    others = [writer for writer in of_latest if not _is_kin(writer, part_of, pid)]
    strangers = [writer for writer in others if not _is_same_start(writer, own)]
    _refuse(root, [writer for writer in strangers if writer.get("rank") == rank and _is_running(writer, pid)])
    if is_named(own) and any(is_named(str(writer.get("launch"))) for writer in strangers):
        return WriterPlace(latest + 1, (), part_of)
    before = [writer for writer in others if writer.get("rank") == rank]
    ended = [writer for writer in before if writer in strangers or not _is_running(writer)]
    of_ray = in_ray_worker()
    continued = [writer for writer in ended if part_of is None and bool(writer.get("ray_worker")) == of_ray]
    replaced = [writer for writer in continued if not _is_of_this_process(writer, pid)]
    takes_over = tuple(str(writer.get("writer")) for writer in replaced)
    goes_on = len(others) < len(of_latest) or len(ended) < len(before) or not before
    is_same = is_certain(own) and not any(writer in strangers for writer in before)
    if goes_on or is_same or any(_is_at_work(writer, own, pid) for writer in others if writer not in before):
        return WriterPlace(latest, takes_over, part_of)
    return WriterPlace(latest + 1, (), part_of)


def begins_anew(root: Path, rank: int, part_of: str | None) -> bool:
    """True if this writer begins a new attempt of the run. ConfigError while another start of its rank is at work."""
    return place_in_run(root, rank, part_of).attempt > _latest(openings(root))


def openings(root: Path) -> list[dict[str, Any]]:
    """The open lines of all logs of the run, with `closed`; none if there is no run."""
    try:
        return [writer for log in _logs(root) if (writer := _opening(root, log)) is not None]
    except FileNotFoundError:
        return []


def _latest(writers: Sequence[Opening]) -> int:
    return max((int(writer["attempt"]) for writer in writers), default=0)


def logs_beside(root: Path, writer: str) -> list[str]:
    """Names of up to 16 other writers with a log in the run. If there are more, different writers name different ones."""
    others = [name for log in _logs(root) if (name := PurePath(log).stem) != writer]
    return sorted(sorted(others, key=lambda name: zlib.crc32(f"{writer} {name}".encode()))[:_MOST_BESIDE])


def _refuse(root: Path, running: Sequence[Opening]) -> None:
    if running:
        raise ConfigError(
            f"process {running[0]['pid']} is recording another start of a run into {root}; give this one a folder of its own, or "
            "end that one: recording begins once it has ended"
        )


def _recording_parent(writers: Sequence[Opening], rank: int, pid: int) -> str | None:
    parent = process.parent_of(pid)
    own = (writer for writer in writers if writer.get("rank") == rank and writer.get("host") == process.host_name())
    return next((f"{writer['host']}:{parent}" for writer in own if writer.get("pid") == parent), None)


def _is_kin(writer: Opening, part_of: str | None, pid: int) -> bool:
    """True if both belong to one tree of processes, or to one pool of processes without ranks."""
    theirs = writer.get("part_of")
    here = process.host_name()
    is_parent = part_of is not None and part_of == f"{writer.get('host')}:{writer.get('pid')}"
    return is_parent or theirs == f"{here}:{pid}" or (part_of is not None and theirs == part_of)


def _is_of_this_process(writer: Opening, pid: int) -> bool:
    """True if the earlier writer is of this very process, in a start with $RATIOSCOPE_LAUNCH.

    Several recorders of one process, a trainer's and an orchestrator's for example, record beside each other.
    """
    is_same = (writer.get("host"), writer.get("pid")) == (process.host_name(), pid)
    return bool(os.environ.get(LAUNCH)) and is_same and writer.get("started") == process.process_start(pid)


def _is_same_start(writer: Opening, own: str) -> bool:
    return is_same_name(writer.get("launch"), own) or _is_other_node(writer, own)


def _is_at_work(writer: Opening, own: str, pid: int) -> bool:
    """True if a writer of another rank goes on: its process is alive on this host, or it is open and of the same Ray job.

    Only Ray restarts single processes while their job goes on. A launcher that counts restarts starts all ranks again.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ and is_named(own):
        return False
    if _is_running(writer, None if _is_same_start(writer, own) else pid):
        return True
    is_elsewhere = writer.get("host") != process.host_name() and not writer["closed"]
    return is_elsewhere and is_of_ray(own) and _is_same_start(writer, own)


def is_named(name: str) -> bool:
    """True if a launcher gave the start its name."""
    return name.startswith("job:")


def is_same_name(a: Any, b: Any) -> bool:
    """True if two processes call their start the same."""
    return str(a).partition(SHARED)[0] == str(b).partition(SHARED)[0]


def _is_other_node(writer: Opening, own: str) -> bool:
    """True if the writer is on another host and of the same start: restarts and torchrun's variables are equal."""
    theirs = str(writer.get("launch"))
    if writer.get("host") == process.host_name() or not (SHARED in own and SHARED in theirs):
        return False
    return own.partition("/")[2] == theirs.partition("/")[2]


def _is_running(writer: Opening, but: int | None = None) -> bool:
    """True if the writer may still write: it has not closed, and its process is alive on this host.

    but: the pid of a process that is known not to be the writer's. A writer on another host or in another container counts as
    ended: nobody here can know, and a restarted container would wait for its predecessor for ever. Its later rows belong to
    its own attempt.
    """
    named = process_of(writer)
    return not writer["closed"] and named.pid != but and named.life(process.here()) == "alive"


def process_of(writer: Opening) -> process.Process:
    """The process that an open line names."""
    return process.Process(writer.get("host"), int(writer["pid"]), writer.get("started"), writer.get("namespace"))


def _logs(root: Path) -> list[str]:
    """The commit logs of the run. Anything of such a name that is no regular file is left out with a warning."""
    named = sorted(e for e in entries(root, COMMITS) if e.name.endswith(".jsonl") and not e.name.startswith("."))
    for entry in named:
        if not entry.is_file:
            warn("%s/%s/%s is %s: it is left out, move it away", root, COMMITS, entry.name, kind(entry.mode))
    return [f"{COMMITS}/{entry.name}" for entry in named if entry.is_file]


def _opening(root: Path, log: str) -> dict[str, Any] | None:
    """The open line of a commit log, with `closed` added; None if there is none or it cannot be read."""
    try:
        with open_regular(root, log) as file:
            first = decode_line(file.readline(_TAIL))
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            last = decode_line((file.read(_TAIL).splitlines(keepends=True) or [b""])[-1])
    except OSError as error:
        warn("%s/%s cannot be read, and is left out: %s", root, log, error)
        return None
    if first is None or first.get("kind") != OPEN or not _can_be(first):
        return None
    return {"attempt": 0, **first, "closed": last is not None and last.get("kind") == CLOSE}


def _can_be(opening: Opening) -> bool:
    """True if attempt and pid are numbers that a writer can have: a stranger's log must not stop this writer."""
    attempt, pid = opening.get("attempt", 0), opening.get("pid")
    return type(attempt) is int and 0 <= attempt < _MOST_ATTEMPTS and type(pid) is int
