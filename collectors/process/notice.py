"""What the collectors say, through the logger `ratioscope`. Its handlers are the trainer's: they may raise, block, or log to us.

A notice becomes text at once, so that nothing of the trainer's is kept for it, and goes to the handlers on a short-lived
thread. The caller waits for that a moment, which keeps the order of a log, and not a second time while a handler hangs.
"""

from __future__ import annotations

import atexit
import logging
import os
from _thread import LockType, allocate_lock, start_new_thread
from collections import deque

PATIENCE = 0.2
"""Seconds that the caller waits for the trainer's handlers."""
_LAST_WORDS = 2.0  # seconds, as the process exits
_LONGEST = 4000  # characters

logger = logging.getLogger("ratioscope")


def warn(message: str, *args: object) -> None:
    """Says that something went wrong, as `logger.warning` does. Never raises; waits for handlers PATIENCE at most."""
    say(logging.WARNING, message, *args)


def say(level: int, message: str, *args: object) -> None:
    """Says something at a level of `logging`. Never raises; waits for handlers PATIENCE at most."""
    try:
        _speaker.say(level, _text(message, args))
    except Exception:  # out of memory, say
        return


class _Speaker:
    """Hands notices over in their order, one at a time. Of `_thread`, as a signal may come inside `threading`'s own locks."""

    def __init__(self) -> None:
        self._waiting = deque[tuple[int, str, LockType]](maxlen=64)  # while a handler hangs, the newest
        self._speaking = allocate_lock()
        self._is_stuck = False

    def say(self, level: int, text: str) -> None:
        said = allocate_lock()
        said.acquire()
        self._waiting.append((level, text, said))
        if self._speaking.acquire(blocking=False):
            try:
                start_new_thread(self._speak, ())
            except RuntimeError:  # no thread can be started
                self._speak()
        if not self._is_stuck:
            self._is_stuck = not said.acquire(timeout=PATIENCE)

    def _speak(self) -> None:
        """Says what waits. Looks again after it lets go: what came in between found somebody speaking."""
        is_mine = True
        while is_mine:
            while self._waiting:
                _hand_over(*self._waiting.popleft())
                self._is_stuck = False
            self._speaking.release()
            is_mine = bool(self._waiting) and self._speaking.acquire(blocking=False)


def _hand_over(level: int, text: str, said: LockType) -> None:
    try:
        logger.log(level, "%s", text)
    except BaseException:  # the handler's, SystemExit too; there is nobody left to tell
        return
    finally:
        said.release()


def _text(message: str, args: tuple[object, ...]) -> str:
    try:
        return (message % args if args else message)[:_LONGEST]
    except Exception as error:  # the `str` of somebody's object
        return f"{message[:_LONGEST]} ({type(error).__name__} as it was put in words)"


_speaker = _Speaker()
"""Global, because the logger is the process's."""


def _after_fork_in_child() -> None:
    global _speaker
    _speaker = _Speaker()  # whoever spoke in the parent does not speak here


def _finish_at_exit() -> None:
    _speaker._speaking.acquire(timeout=_LAST_WORDS)


atexit.register(_finish_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
