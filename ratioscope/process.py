"""The life of a process that a writer named in its log, for writers, readers and verbs that change a run.

A process is called gone only if that is certain: it ran on this host and in this process namespace (a container has one of
its own and counts its processes itself), and no longer exists.
"""

import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Life = Literal["alive", "gone", "unknown"]


@dataclass(frozen=True)
class Here:
    """The asking process: its host's name, its process namespace, and start times of processes, as in writers' logs."""

    host: str
    namespace: str | None
    started: Callable[[int], str | None]
    """Process id -> start time of the process, as text; None if there is no such process."""


@dataclass(frozen=True)
class Process:
    """A writer's process, as its log names it."""

    host: str | None = None
    pid: int | None = None
    started: str | None = None
    """Start time, as text: a later process of the same id has another. None if the log has none."""
    namespace: str | None = None
    """The process namespace, in which `pid` counts. None if the log has none."""

    def life(self, here: Here) -> Life:
        if self.pid is None or (self.host, self.namespace) != (here.host, here.namespace):
            return "unknown"
        if not _runs(self.pid):
            return "gone"
        began = here.started(self.pid)
        return "alive" if None in (began, self.started) or began == self.started else "gone"


def here() -> Here:
    return Here(host_name(), pid_namespace(), process_start)


def host_name() -> str:
    """The host's name as it may stand in a file name."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname())[:40].strip("-") or "host"


def process_start(pid: int) -> str | None:
    """When a process of this host began, in the kernel's clock: tells it from a later one of the same number. None: unknown."""
    fields = _stat(pid)
    return None if fields is None else fields[19]


def parent_of(pid: int) -> int | None:
    """The process that started a process of this host. None: unknown."""
    fields = _stat(pid)
    return None if fields is None else int(fields[1])


def pid_namespace() -> str | None:
    """The namespace that process numbers belong to: a container counts its own. None: the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _stat(pid: int) -> list[str] | None:
    """The kernel's fields of a process, from its state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except PermissionError:
        return True
    return True
