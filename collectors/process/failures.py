"""Failures of looks into a trainer: how many in a row, the first one's words, and nothing of the trainer's with them.

An exception holds its traceback, a traceback its frames, and a frame the tensors it worked on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

ENOUGH = 100
"""Failures of one look in a row after which it is not taken any more. One odd step of many micro-batches stays below."""


@dataclass(frozen=True)
class Streak:
    """Failures of one look in a row. reason: of the first. logged: calls of `log` that had succeeded by then."""

    reason: str
    logged: int
    times: int = 0


class Streaks:
    """The looks whose last call failed, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Streak] = {}

    def of(self, name: str) -> Streak:
        return self._known[name]

    def is_over(self, name: str) -> bool:
        """Whether the look has failed too often to be taken again."""
        streak = self._known.get(name)
        return streak is not None and streak.times >= ENOUGH

    def add(self, name: str, reason: str, logged: int) -> bool:
        """Another failure. True where it is one too many."""
        streak = self._known.get(name) or Streak(reason, logged)
        self._known[name] = replace(streak, times=streak.times + 1)
        return self.is_over(name)

    def end(self, name: str) -> None:
        """The look has succeeded."""
        self._known.pop(name, None)


def let_go(error: BaseException, outer: BaseException | None = None) -> None:
    """Cuts the error, and those it came from, off from their frames, so that what those hold is freed though a cycle keeps them.

    outer: the error that the caller is handling itself, and what led to that: they are the trainer's, and stay as they are.
    """
    kept, waiting = {id(outer)}, [error]
    while waiting:
        found = waiting.pop()
        if id(found) in kept:
            continue
        kept.add(id(found))
        parts = found.exceptions if isinstance(found, BaseExceptionGroup) else ()
        waiting += [part for part in (found.__context__, found.__cause__, *parts) if part is not None]
        found.__traceback__ = None
