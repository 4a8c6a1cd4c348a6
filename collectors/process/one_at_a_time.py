"""Changes of shared state, one at a time, without anybody waiting.

If the trainer's thread held a lock, a signal handler on the same thread could ask for it again, or wait for the writer's thread
that asks for it: both would wait for ever. Here nobody waits. A thread that finds the state in use leaves its change to the
thread that uses it.
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
