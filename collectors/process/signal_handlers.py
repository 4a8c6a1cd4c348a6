"""Exceptions of the trainer's signal handlers: a handler may interrupt a call of ours, and its exceptions are not ours to keep.

A watchdog's TimeoutError, or the exception with which a trainer saves a checkpoint at SIGUSR1, ends that call and reaches the
trainer, as it would have reached it between two calls.
"""

import functools
import signal
from types import CodeType
from typing import Any


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
