"""Engines carry out tasks, each in its own way; this file has what they share."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from .task import IndexTask, TaskResult


@dataclass(frozen=True)
class TaskOutcome:
    """The end of one attempt at a task."""

    task: IndexTask
    result: TaskResult | None
    """None where the attempt failed."""
    failure: str = ""
    """Why it failed."""


class Engine(Protocol):
    """Carries out tasks somewhere else, some at a time."""

    @property
    def capacity(self) -> int:
        """Tasks that may be under way at a time. It bounds memory: each of them holds the rows of a step."""
        ...

    def start(self, task: IndexTask) -> None:
        """Starts a task, while fewer than `capacity` are under way."""

    def ended(self) -> Iterable[TaskOutcome]:
        """Waits until a task has ended, and returns those that have."""
        ...

    def close(self) -> None:
        """Ends everything that is under way."""


def outcomes(engine: Engine, tasks: deque[IndexTask]) -> Iterator[TaskOutcome]:
    """The outcome of each attempt, as they end. The caller may add to `tasks` meanwhile, such as one that is tried again."""
    under_way = 0
    while tasks or under_way:
        while tasks and under_way < engine.capacity:
            engine.start(tasks.popleft())
            under_way += 1
        for outcome in engine.ended():
            under_way -= 1
            yield outcome
