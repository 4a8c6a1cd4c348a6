"""Counts failures of looks into a trainer, and keeps only their words.

An exception itself must not be kept: it holds a traceback, the traceback holds frames, and a frame holds tensors.

A trainer's signal handler may interrupt a call of ours, and its exceptions are not ours to keep. A watchdog's TimeoutError, or
the exception with which a trainer saves a checkpoint at SIGUSR1, ends that call and reaches the trainer, as it would have reached
it between two calls.
"""

import functools
import signal
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

ENOUGH = 100
"""After so many failures in a row a look is not taken any more. One odd step of many micro-batches has fewer."""


@dataclass(frozen=True)
class Streak:
    """Failures of one look in a row."""

    reason: str
    """The words of the first failure."""
    logged: int
    """Calls of `log` that had succeeded before the first failure."""
    times: int = 0
    """Number of failures."""


class Streaks:
    """The streaks of looks whose last call failed, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Streak] = {}

    def of(self, name: str) -> Streak:
        return self._known[name]

    def is_over(self, name: str) -> bool:
        """True if the look has failed too often to be taken again."""
        streak = self._known.get(name)
        return streak is not None and streak.times >= ENOUGH

    def add(self, name: str, reason: str, logged: int) -> bool:
        """Counts another failure. True if the look is not to be taken any more."""
        streak = self._known.get(name) or Streak(reason, logged)
        self._known[name] = replace(streak, times=streak.times + 1)
        return self.is_over(name)

    def end(self, name: str) -> None:
        """Ends the streak of a look that has succeeded."""
        self._known.pop(name, None)


def let_go(error: BaseException, outer: BaseException | None = None) -> None:
    """Removes the tracebacks of the error and of the errors it came from, so that what their frames hold is freed.

    outer: an error that the caller was handling before. It belongs to the trainer, so it and its causes stay as they are.
    """
    seen, waiting = {id(outer)}, [error]
    while waiting:
        exception = waiting.pop()
        if id(exception) in seen:
            continue
        seen.add(id(exception))
        parts = exception.exceptions if isinstance(exception, BaseExceptionGroup) else ()
        waiting += [part for part in (exception.__context__, exception.__cause__, *parts) if part is not None]
        exception.__traceback__ = None


def is_of_a_handler(error: BaseException) -> bool:
    """True if the exception comes out of a handler that is set for a signal now."""
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    trace = error.__traceback__ if codes else None
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    """The code of a handler that is written in Python; None for any other, and where there is none.

    SIG_DFL cannot be called, but its class can: `type(SIG_DFL).__call__` is the code that makes any member of an enumeration.
    """
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):
        return None
    function = handler if hasattr(handler, "__code__") or hasattr(handler, "__func__") else type(handler).__call__
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, CodeType) else None
