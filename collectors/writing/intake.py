"""Intake: when the commit log records how many sequences a writer has taken, before their rows are written.

A writer whose process is killed leaves no other count of them. Rows that are written soon cost no line. A step whose rows come
slowly costs a line each time their number has doubled.
"""

import math

FIRST_SECONDS = 0.5
"""Wait of rows before the first step is written: nobody knows yet how long the trainer lives."""
SECONDS = 1.5
"""Later: longer than the least patience with a step (step_patience.py), so that a step of one call costs no line."""


class Intake:
    """Belongs to one writer. now: seconds on any clock that never goes back."""

    def __init__(self) -> None:
        self._held = self._said = 0
        self._since = math.inf
        self._has_written = False

    def hold(self, sequences: int, now: float) -> None:
        """Adds sequences that wait."""
        self._held += sequences
        self._since = min(self._since, now)

    def let_go(self, sequences: int) -> None:
        """Takes off sequences that wait no more: their fate is in the log."""
        self._held, self._said, self._since, self._has_written = self._held - sequences, 0, math.inf, True

    def wait(self, now: float) -> float | None:
        """Seconds until the log should say how many wait, 0 or less if it should now; None if it says so, or none waits."""
        if self._held < max(1, 2 * self._said):
            return None
        since = now if self._since == math.inf else self._since
        return since + (SECONDS if self._has_written else FIRST_SECONDS) - now

    def say(self) -> None:
        """Notes that the log records how many wait."""
        self._said = self._held
