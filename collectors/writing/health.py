"""The state of one writer: OK, DEGRADED (statistics only) or PAUSED (nothing reaches the disk). It finds its way back by itself.

A pure state machine: it is told what could be written, and says what may be tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "degraded", "paused"]
MOST_SECONDS = 30.0
MEANING: dict[State, str] = {
    "ok": "token rows and statistics are written",
    "degraded": "statistics of all tokens are written, token rows are not",
    "paused": "nothing can be written; statistics wait in memory",
}


@dataclass(frozen=True)
class Change:
    """The state became another one."""

    before: State
    now: State
    reason: str

    def __str__(self) -> str:
        return f"{self.before} -> {self.now}: {MEANING[self.now]}{f' ({self.reason})' if self.reason else ''}"


@dataclass
class Health:
    """After a first failure the next step tries again, after further ones a step some seconds later, at most `most_seconds`."""

    most_seconds: float = MOST_SECONDS
    state: State = "ok"
    reason: str = ""
    _try_again: float = 0.0
    _wait: float = 0.0

    def may_write_rows(self, now: float) -> bool:
        """Whether token rows may be tried: always while all is well, else once the time to probe has come."""
        return self.state == "ok" or now >= self._try_again

    def may_write_statistics(self, now: float) -> bool:
        """Whether statistics may be tried."""
        return self.state != "paused" or now >= self._try_again

    def try_now(self) -> None:
        """Something changed: what failed before is tried with the next step."""
        self._try_again = self._wait = 0.0

    def told(self, now: float, *, rows: str | None, statistics: str | None) -> Change | None:
        """What came of a step: why token rows, or statistics, could not be written; None: they were.

        Statistics alone are no matter: they wait in memory, and can be had from the rows.
        """
        state: State = "ok" if rows is None else "paused" if statistics is not None else "degraded"
        reason = "" if rows is None else statistics or rows
        if state == "ok":
            self._wait = 0.0
        elif now >= self._try_again:
            self._try_again = now + self._wait
            self._wait = min(self.most_seconds, max(1.0, 2 * self._wait))
        change = Change(self.state, state, reason) if state != self.state else None
        self.state, self.reason = state, reason
        return change
