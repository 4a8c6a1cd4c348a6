"""Changes of shared state, one at a time, without anybody waiting.

A lock that the trainer's thread holds can be asked for again by the trainer's own signal handler, on the same thread, and by
the writer's thread that the handler waits for: either would wait for ever. Here nobody waits. Who finds the state in use
leaves the change to the one who uses it.
"""

from collections import deque
from collections.abc import Callable
from threading import Lock


class OneAtATime:
    """Runs changes one after the other, each on whichever thread comes first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._changes: deque[Callable[[], object]] = deque()

    def do(self, change: Callable[[], object]) -> None:
        """Has the change made: now, or by the thread that is making one. The change must neither raise nor wait."""
        self._changes.append(change)
        while self._changes and self._lock.acquire(blocking=False):
            try:
                while self._changes:
                    self._changes.popleft()()
            finally:
                self._lock.release()
