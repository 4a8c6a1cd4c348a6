"""A folder that hangs for as long as a file, its gate, is there: calls into the file system below it wait in this process.

A stand-in for a network disk whose server is gone, where no such disk can be mounted. Imports nothing that a writer's process
does not have.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CALLS = (
    "open", "write", "fsync", "mkdir", "replace", "rename", "link", "unlink", "remove", "rmdir", "ftruncate", "stat", "lstat",
    "fstat", "statvfs", "scandir", "listdir",
)  # fmt: skip
_LOOK = 0.01


def hang_below(root: str, gate: str, seconds: float) -> Callable[[], None]:
    """Has all such calls below the folder wait while the gate is there, each for so many seconds at most; the undoing of that."""
    real = {name: getattr(os, name) for name in CALLS}
    real_open, stat = builtins.open, os.stat

    def is_there() -> bool:
        try:
            stat(gate)
        except OSError:
            return False
        return True

    def waiting(call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def wait_and_call(*values: Any, **named: Any) -> Any:
            if values and f"{_place(values[0])}/".startswith(f"{root}/"):
                end = time.monotonic() + seconds
                while is_there() and time.monotonic() < end:
                    time.sleep(_LOOK)
            return call(*values, **named)

        return wait_and_call

    for name, call in real.items():
        setattr(os, name, waiting(call))
    builtins.open = io.open = waiting(real_open)

    def undo() -> None:
        for name, call in real.items():
            setattr(os, name, call)
        builtins.open = io.open = real_open

    return undo


@contextmanager
def hanging_below(root: str, gate: str, seconds: float) -> Iterator[None]:
    """The folder may hang in here, for this process and for every writer's process that it starts in here."""
    from ratioscope.collectors.writing import writer_process

    program = writer_process._PROGRAM
    line = f"from chaos.stuck import hang_below\nhang_below({root!r}, {gate!r}, {seconds})\n"
    before, last = program.rsplit("\n", 1)
    writer_process._PROGRAM = f"{before}\n{line}{last}"
    undo = hang_below(root, gate, seconds)
    try:
        yield
    finally:
        undo()
        writer_process._PROGRAM = program


def _place(argument: Any) -> str:
    """The path that a call is about: of a descriptor, what it is open on."""
    if isinstance(argument, int):
        try:
            return os.readlink(f"/proc/self/fd/{argument}")
        except OSError:
            return ""
    return os.fsdecode(argument) if isinstance(argument, str | bytes | os.PathLike) else ""
