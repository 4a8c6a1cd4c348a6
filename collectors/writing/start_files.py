"""The files in which the first process of each start of a job keeps the folder that the start records into.

`.starts/000001.json` lies in the folder that the job named. A name is taken by one process alone, on a network file system too:
two starts at one instant decide one after the other.
"""

import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from ratioscope import process
from ratioscope.flat_json import loaded
from ratioscope.inside import content, entries
from ratioscope.layout import STARTS

from ..process.trainer_process import trainer_process
from .durable_file import create_whole, delete, make_folder
from .run_file import MOST_BYTES, job, launch

_MOST = 16


@dataclass(frozen=True)
class Start:
    """A process that may decide for its start of the job, or has."""

    rank: int
    """As launchers number processes; 0 if nobody told it."""
    token: str
    """Names the collector, also in its forked children and after its writer was started again."""
    part_of: str | None
    """The pool or parent that the process belongs to, see ranks.py."""
    launch: str
    """The name of the start of the job, see run_file.py."""
    job: str | None
    """The launch without the numbers of its restarts."""
    process: process.Process
    parent: int | None
    """The process that started it."""
    folder: str = ""
    """The name of the folder that was decided on."""
    time: float = field(default_factory=time.time)
    """When it decided, in seconds since 1970."""


def this_start(rank: int, token: str, part_of: str | None) -> Start:
    """This process, which has decided nothing yet."""
    own, here = trainer_process(), process.here()
    named = process.Process(here.host, own.pid, own.started, here.namespace)
    return Start(rank, token, part_of, launch(), job(), named, process.parent_of(own.pid))


def starts_of(base: Path) -> dict[int, Start | None]:
    """Number -> start that decided, the newest first; None for one that cannot be read."""
    try:
        names = [found.name for found in entries(base, STARTS)]
    except OSError:
        return {}
    numbers = sorted((int(name[:-5]) for name in names if re.fullmatch(r"\d{6,9}\.json", name)), reverse=True)
    return {number: _start(base, number) for number in numbers[:_MOST]}


def _start(base: Path, number: int) -> Start | None:
    try:
        found = loaded(content(base, _file(number), MOST_BYTES))
        folder = str(found["folder"])
        if not re.fullmatch(rf"{re.escape(base.name)}(-[1-9]\d{{0,8}})?", folder):
            return None
        there = process.Process(found.get("host"), int(found["pid"]), found.get("started"), found.get("namespace"))
        told = int(found["rank"]), str(found["token"]), found.get("part_of"), str(found["launch"]), found.get("job")
        return Start(*told, there, found.get("parent"), folder, float(found["time"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _file(number: int) -> str:
    return f"{STARTS}/{number:06d}.json"


def is_claimed(base: Path, number: int, own: Start, root: Path) -> bool:
    """Writes the decision. False if another start was faster. If none can be written, each process decides for itself."""
    entry = {
        "folder": root.name, "rank": own.rank, "token": own.token, "part_of": own.part_of, "launch": own.launch, "job": own.job,
        "host": own.process.host, "pid": own.process.pid, "started": own.process.started, "namespace": own.process.namespace,
        "parent": own.parent, "time": own.time,
    }  # fmt: skip
    try:
        make_folder(base, STARTS)
        is_first = create_whole(base, _file(number), json.dumps(entry).encode())
        delete(base, [_file(number - _MOST)] if is_first and number > _MOST else [])
    except OSError:
        return True
    return is_first
