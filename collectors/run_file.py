"""run.json: what the run is. The first writer creates it, others join; a later start adds its attempt."""

import json
import os
import platform
import secrets
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ratioscope import __version__, process
from ratioscope.errors import ConfigError
from ratioscope.inside import content, entries, kind, open_regular
from ratioscope.layout import CLOSE, COMMITS, OPEN, RUN_FILE, checksum, decode_line
from ratioscope.record import SCHEMA_VERSION

from .durable_file import FOLDER_MODE, create_whole, write_whole
from .environment import LAUNCH
from .notice import warn
from .redaction import redacted

LAUNCHERS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "RAY_JOB_ID", "KUBERNETES_JOB_UID")
RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT", "MASTER_PORT")
JOB_RESTARTS = RESTARTS[:2]
NODES = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
"""What the ranks of one start have in common on all nodes, where each node's ranks were given a launch of their own."""
_NO_JOB = "ffffffff"  # RAY_JOB_ID of a worker that was started before its job
_VERSIONS = ("numpy", "pyarrow", "torch", "transformers", "trl", "vllm", "sglang", "verl")
_SHARED = " of "
_TAIL = 4096  # bytes; an open or close line is far shorter
_MOST_BYTES = 1 << 24  # of run.json, as in ingest
_MOST_ATTEMPTS = 1 << 30  # the column has 32 bits


def run_info(name: str, trainer: str | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """What run.json says of a run, before there is one."""
    modules = {module: getattr(sys.modules.get(module), "__version__", None) for module in _VERSIONS}
    versions = {module: str(version) for module, version in modules.items() if version is not None}
    return {
        "name": name,
        "trainer": trainer,
        "config": redacted(config),
        "versions": {"ratioscope": __version__, "python": platform.python_version(), **versions},
        "created": time.time(),
    }


def start_run(root: Path, info: Mapping[str, Any]) -> None:
    """Makes the folder and run.json, where there is none yet."""
    root.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    entry = {"attempt": 0, "time": time.time(), "launch": launch()}
    create_whole(root, RUN_FILE, _encoded({**info, "schema_version": SCHEMA_VERSION, "attempts": [entry]}))


def note_attempt(root: Path, attempt: int, info: Mapping[str, Any]) -> None:
    """Adds an attempt to run.json, with what differs from the first one. Several ranks may race: they write the same.

    A run.json that is not as it was written is left alone, since a new checksum would make it look sound.
    """
    try:
        run = json.loads(content(root, RUN_FILE, _MOST_BYTES))
    except RecursionError as error:
        raise ValueError("it is nested more deeply than any that was written") from error
    if not isinstance(run, dict) or run.pop("crc32", None) not in (None, checksum(run)):
        raise ValueError("it was changed after it was written")
    known = run.setdefault("attempts", [])
    if not isinstance(known, list) or not all(isinstance(entry, dict) for entry in known):
        raise ValueError("its attempts are no list of objects")
    if any(entry.get("attempt") == attempt for entry in known):
        return
    changed = {name: value for name, value in info.items() if value != run.get(name)}
    known.append({"attempt": attempt, "time": time.time(), "launch": launch(), **changed})
    write_whole(root, RUN_FILE, _encoded(run))


def attempt_to_join(root: Path, rank: int) -> int:
    """Which start of the run this writer belongs to, told from the writers that opened before it. 0 for the first.

    The latest attempt, unless it has a writer of the same rank that has ended or is of another launch, or a writer of
    another launch where both launches have a launcher's name; refused where that writer is still at work. So the ranks of
    one launch meet without asking each other, and those that `ratioscope run` started on several nodes, whose launches
    differ, by what torchrun tells all of them.
    """
    writers = [writer for log in _logs(root) if (writer := _opening(root, log)) is not None]
    latest = max((int(writer["attempt"]) for writer in writers), default=0)
    own = launch()
    for writer in (writer for writer in writers if writer["attempt"] == latest):
        same_launch = _name(writer.get("launch")) == _name(own)
        if same_launch and os.environ.get(LAUNCH):
            continue  # every process of the start was given this name, several of one rank among them
        same_launch = same_launch or _is_other_node(writer, own)
        if not same_launch and writer.get("rank") == rank and writer.get("pid") != os.getpid() and _is_running(writer):
            raise ConfigError(
                f"process {writer['pid']} is recording another start of a run into {root}; give this one a folder of its own, or "
                "end that one: recording begins once it has ended"
            )
        if writer.get("rank") == rank and not (same_launch and _is_running(writer)):
            return latest + 1
        if not same_launch and _is_named(own) and _is_named(str(writer.get("launch"))):
            return latest + 1
    return latest


@cache
def launch() -> str:
    """Names the start of the training job: ours, else the launcher's name for it, else this process and those it forks."""
    if given := os.environ.get(LAUNCH):
        nodes = [os.environ.get(name, "") for name in NODES]
        shared = _SHARED + "/".join(nodes) if all(nodes) else ""
        # a process that no launcher restarts is of the first start
        return "job:" + "/".join((given, *(os.environ.get(name, "0") for name in JOB_RESTARTS))) + shared
    names = [os.environ[name] for name in LAUNCHERS if os.environ.get(name, _NO_JOB) not in ("", _NO_JOB)]
    if names:
        return "job:" + "/".join((*names, *(os.environ.get(name, "") for name in RESTARTS)))
    return f"process:{process.host_name()}:{os.getpid()}:{secrets.token_hex(4)}"


def _is_named(name: str) -> bool:
    return name.startswith("job:")


def _name(launch_of: Any) -> str:
    return str(launch_of).partition(_SHARED)[0]


def _is_other_node(writer: Mapping[str, Any], own: str) -> bool:
    """Whether the writer is of our start, on another host: its restarts and all that torchrun tells every node are ours."""
    theirs = str(writer.get("launch"))
    if writer.get("host") == process.host_name() or not (_SHARED in own and _SHARED in theirs):
        return False
    return own.partition("/")[2] == theirs.partition("/")[2]


def _is_running(writer: Mapping[str, Any]) -> bool:
    """Whether the writer may still write: it has not closed, and its process is here and alive.

    Of one on another host or in another container nobody here can tell: it is not waited for, as a container that was
    started again would wait for the one before it for ever; what it still writes is of its own attempt.
    """
    named = process.Process(writer.get("host"), int(writer["pid"]), writer.get("started"), writer.get("namespace"))
    return not writer["closed"] and named.life(process.here()) == "alive"


def _logs(root: Path) -> list[str]:
    """The commit logs. What bears the name of one and is no regular file is left out, and said: recording goes on beside it."""
    named = sorted(e for e in entries(root, COMMITS) if e.name.endswith(".jsonl") and not e.name.startswith("."))
    for entry in named:
        if not entry.is_file:
            warn("%s/%s/%s is %s: it is left out, move it away", root, COMMITS, entry.name, kind(entry.mode))
    return [f"{COMMITS}/{entry.name}" for entry in named if entry.is_file]


def _opening(root: Path, log: str) -> dict[str, Any] | None:
    """The open line of a commit log, with `closed`; None where there is none, or where it cannot be read."""
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


def _can_be(opening: Mapping[str, Any]) -> bool:
    """Whether attempt and process are numbers that a writer has: what a stranger's log claims must not end this start."""
    attempt, pid = opening.get("attempt", 0), opening.get("pid")
    return type(attempt) is int and 0 <= attempt < _MOST_ATTEMPTS and type(pid) is int


def _encoded(run: Mapping[str, Any]) -> bytes:
    """With the checksum of what a reader will find: names that are no text become one in JSON."""
    found = json.loads(json.dumps(dict(run), allow_nan=False))
    return json.dumps({**found, "crc32": checksum(found)}, indent=2).encode() + b"\n"
