"""Tells the process beside a command of `ratioscope run` of this process, before anything of it is on disk.

A datagram, so that nobody waits: a script may be killed in its first second. Linux alone has names of sockets that are no files.
"""

import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256

from .variables import LAUNCH, RUN

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
