"""Health: the state of one writer, which is ok, degraded (statistics only) or paused (nothing reaches the disk).

A pure state machine: its caller reports what could be written, and asks what may be tried. It recovers by itself.
"""

from dataclasses import dataclass
from typing import Literal

WritingState = Literal["ok", "degraded", "paused"]
MOST_SECONDS = 30.0
MEANING: dict[WritingState, str] = {
    "ok": "token rows and statistics are written",
    "degraded": "statistics of all tokens are written, token rows are not",
    "paused": "nothing can be written; statistics wait in memory",
}


@dataclass(frozen=True)
class StateChange:
    """A change of the state."""

    before: WritingState
    """The state until now."""
    now: WritingState
    """The state from now on."""
    reason: str

    def __str__(self) -> str:
        return f"{self.before} -> {self.now}: {MEANING[self.now]}{f' ({self.reason})' if self.reason else ''}"


@dataclass
class Health:
    """Decides when to try again: at the next step after a first failure, then after 1, 2, 4 ... seconds."""

    most_seconds: float = MOST_SECONDS
    """The longest time between two tries."""
    state: WritingState = "ok"
    reason: str = ""
    _try_again: float = 0.0
    """Time on the writer's clock from which on writing is tried again."""
    _wait: float = 0.0
    """Seconds of the next wait."""

    def may_write_rows(self, now: float) -> bool:
        """True if writing token rows should be tried: always in the state ok, else once it is time to try again."""
        return self.state == "ok" or now >= self._try_again

    def may_write_statistics(self, now: float) -> bool:
        """True if writing statistics should be tried."""
        return self.state != "paused" or now >= self._try_again

    def try_now(self) -> None:
        """Has the next step try again what failed, because the folder has changed."""
        self._try_again = self._wait = 0.0

    def update(self, now: float, *, rows: str | None, statistics: str | None) -> StateChange | None:
        """Takes the result of a step; the change of state that follows, if any.

        rows, statistics: why they could not be written; None if they were. If only statistics could not be written the state is
        ok: they wait in memory, and can be computed from the rows.
        """
        state: WritingState = "ok" if rows is None else "paused" if statistics is not None else "degraded"
        reason = "" if rows is None else statistics or rows
        if state == "ok":
            self._wait = 0.0
        elif now >= self._try_again:
            self._try_again = now + self._wait
            self._wait = min(self.most_seconds, max(1.0, 2 * self._wait))
        change = StateChange(self.state, state, reason) if state != self.state else None
        self.state, self.reason = state, reason
        return change
