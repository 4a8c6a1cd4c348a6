"""Counts failures of looks into a trainer, and keeps only their words.

An exception itself must not be kept: it holds a traceback, the traceback holds frames, and a frame holds tensors.
"""

from dataclasses import dataclass, replace

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
