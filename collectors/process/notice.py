"""Messages of the collectors, through the logger `ratioscope`. Its handlers belong to the trainer: they may raise, or hang.

A message becomes text at once, so that no object of the trainer is kept. A short-lived thread hands it to the handlers. The
caller waits for that for a moment, which keeps the order of a log. While a handler hangs, later callers do not wait.
"""

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
    """Logs a warning, as `logger.warning` does. Never raises. Waits at most PATIENCE for handlers."""
    say(logging.WARNING, message, *args)


def say(level: int, message: str, *args: object) -> None:
    """Logs a message at a level of `logging`. Never raises. Waits at most PATIENCE for handlers."""
    try:
        _speaker.say(level, _text(message, args))
    except Exception:  # out of memory, say
        return


class _Speaker:
    """Hands messages over in order, one at a time. Uses `_thread`, because a signal may come inside locks of `threading`."""

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
        """Logs what waits, and looks again after it released the lock, for messages that came in between."""
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
    except BaseException:  # a handler raised, perhaps SystemExit: there is no other way to report it
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
    _speaker = _Speaker()  # the thread that logged in the parent does not exist here


def _finish_at_exit() -> None:
    _speaker._speaking.acquire(timeout=_LAST_WORDS)


atexit.register(_finish_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
