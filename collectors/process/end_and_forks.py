"""The end and the forks of this process: at its end every collector is closed, and in a forked child each begins anew."""

import atexit
import multiprocessing
import os
import sys
import time
import weakref
from typing import Protocol

_EXIT_SECONDS = 10.0


class Recorder(Protocol):
    """An object that records until its process ends. Its methods do not raise."""

    def close_unasked(self, timeout: float) -> None:
        """Writes what is left, for at most about so many seconds without progress."""
        ...

    def begin_in_child(self) -> None:
        """Forgets what the parent has recorded."""
        ...


_open: "weakref.WeakSet[Recorder]" = weakref.WeakSet()
"""Recorders of this process. Global, because the handlers of forks and exits are those of the process."""
_finalized_in: dict[str, int] = {}
"""The process whose end is already handled."""


def end_with_process(recorder: Recorder) -> None:
    """Closes the recorder when this process ends, and lets it begin anew in forked children."""
    _open.add(recorder)


def close_before_multiprocessing_exits() -> None:
    """A process that multiprocessing has forked runs no exit handlers, only multiprocessing's own finalizers."""
    util = sys.modules.get("multiprocessing.util")
    if util is None or _finalized_in.get("process") == os.getpid():
        return
    _finalized_in["process"] = os.getpid()
    if multiprocessing.parent_process() is not None:
        util.Finalize(None, _close_all, exitpriority=0)


def _close_all() -> None:
    deadline = time.monotonic() + _EXIT_SECONDS
    for recorder in list(_open):
        recorder.close_unasked(max(0.1, deadline - time.monotonic()))


def _after_fork_in_child() -> None:
    for recorder in list(_open):
        recorder.begin_in_child()


def handle_end_and_forks() -> None:
    """Sets the handlers, once per process. Exit handlers run from the last to the first: call it after pyarrow is imported."""
    atexit.register(_close_all)
    os.register_at_fork(after_in_child=_after_fork_in_child)
