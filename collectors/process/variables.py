"""The environment variables that make a process record, and the word to the process beside a command of `ratioscope run`.

The word is a datagram, so that nobody waits: a script may be killed in its first second. Linux alone has names of sockets that
are no files.
"""

import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256

RUN = "RATIOSCOPE_RUN"
LAUNCH = "RATIOSCOPE_LAUNCH"
NAME = "RATIOSCOPE_NAME"
TEXT = "RATIOSCOPE_TEXT"
EXISTING = "RATIOSCOPE_EXISTING"
SCALARS = "RATIOSCOPE_SCALARS"
SELF_NOISE = "RATIOSCOPE_SELF_NOISE"
VARIABLES = {
    RUN: "the run folder; recording begins where it is set",
    LAUNCH: "names this start of the job, the same in all its processes; made where it is not set",
    NAME: "the run's name; else the folder's",
    EXISTING: "resume, new or error: what happens if a run is in the folder; else the collector finds out",
    TEXT: "full, ids or none: whether token ids and texts are kept",
    SCALARS: "1: puts ratioscope/... among the scalars that the trainer logs",
    SELF_NOISE: "10x4: each 10 steps the trainer reads 4 sequences on each rank a second time; 0 or nothing: never",
}

BY_HAND = "ranks-by-hand"
"""Begins the name of a start whose ranks were started one by one: later starts have the same name."""

installed_for: list[str] = []
"""The run folder for which import hooks were put on. Global, because these are those of the process."""


def is_installed() -> bool:
    """True if this process records because of its environment."""
    return bool(installed_for)


def recording_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Those of VARIABLES that are set, with an absolute run folder. A process on another host needs the same."""
    variables = {name: environment[name] for name in VARIABLES if environment.get(name)}
    return {name: os.path.abspath(value) if name == RUN else value for name, value in variables.items()}


_MOST_HEARD = 64


def tell_of_this_process() -> None:
    """Sends the number of this process, if a `ratioscope run` on this machine listens."""
    if not (os.environ.get(LAUNCH) and os.environ.get(RUN)):
        return
    with suppress(Exception), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(str(os.getpid()).encode(), _address(os.environ))


def listening(environment: Mapping[str, str]) -> socket.socket | None:
    """The socket at which the processes of a command are heard of; None if there can be none."""
    with suppress(Exception):
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        receiver.setblocking(False)
        receiver.bind(_address(environment))
        return receiver
    return None


def heard(receiver: socket.socket | None) -> list[int]:
    """The processes that were heard of."""
    pids: list[int] = []
    with suppress(OSError):
        while receiver is not None and len(pids) < _MOST_HEARD:
            message = receiver.recv(32)
            pids += [int(message)] if message.isdigit() else []
    return pids


def _address(environment: Mapping[str, str]) -> str:
    if not sys.platform.startswith("linux"):
        raise OSError("no abstract names")
    named = f"{environment[LAUNCH]}\n{environment[RUN]}".encode(errors="surrogateescape")
    return f"\0ratioscope-{sha256(named).hexdigest()[:32]}"
