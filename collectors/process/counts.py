"""Counts of what became of the sequences that a trainer logged.

At any moment offered = written + left out + dropped + pending.

OneAtATime changes shared state, one change at a time, and nobody waits. If the trainer's thread held a lock, a signal handler on
the same thread could ask for it again, or wait for the writer's thread that asks for it: both would wait for ever. A thread that
finds the state in use leaves its change to the thread that uses it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from operator import add
from threading import Lock
from typing import Any, TypeVar

from ratioscope.redaction import without_secrets


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


T = TypeVar("T")


@dataclass(frozen=True)
class Tally:
    """A count of sequences, or of tokens (response positions, masked ones included). A sequence logged twice counts twice."""

    offered: int = 0
    """Sequences passed to `log`."""
    written: int = 0
    """On disk as token rows."""
    dropped: int = 0
    """Lost to token rows; `Counts.reasons` says why. The reason "in the statistics only" leaves their statistics on disk."""
    left_out: int = 0
    """In the statistics, but without token rows, because the budget had no room for them."""

    @property
    def pending(self) -> int:
        """Number of offered sequences that are not yet written, left out or dropped."""
        return self.offered - self.written - self.dropped - self.left_out

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class Counts:
    """All counts of a collector at one moment."""

    sequences: Tally = Tally()
    tokens: Tally = Tally()
    """Tokens are counted when the writer looks at a batch. A batch that was dropped before that adds none."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Reason -> sequences dropped for it."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Name of a step that failed without losing a sequence -> number of failures."""

    @property
    def losses(self) -> str:
        """One line: how many sequences were lost and why, and what else failed."""
        lost = ", ".join(f"{sequences} {reason}" for reason, sequences in self.reasons.items())
        failed = ", ".join(f"{what} failed {times} times" for what, times in self.failures.items())
        total = f"{self.sequences.dropped} of {self.sequences.offered} sequences not recorded"
        return "; ".join(part for part in (total, lost, failed) if part)


@dataclass(frozen=True)
class Dropped:
    """Sequences of one step that were dropped for one reason, not yet reported in the commit log."""

    step: int | None
    reason: str
    """In a few fixed words, such as "queue full": sequences are counted by it."""
    detail: str
    """Particulars of the reason, such as the message of an error."""
    sequences: int
    tokens: int


def reason_of(error: BaseException) -> str:
    """The error's type and message, without secrets and cut to 500 characters. Never raises, whatever the error's `str` does."""
    try:
        return without_secrets(f"{type(error).__name__}: {error}"[:1000])[:500]
    except Exception:
        return type(error).__name__


class Ledger:
    """Keeps the counts. The trainer's thread and the writer's thread both post to it, and neither waits.

    echo: called with the name and the values of each post of the writer (write, leave_out, drop, fail). A writer's process
    sends them to the trainer's process with it. detail: returns what may be published of the detail of dropped sequences.
    """

    def __init__(
        self,
        echo: Callable[[str, tuple[Any, ...]], None] = lambda post, values: None,
        detail: Callable[[str], str] = str,
    ) -> None:
        self._echo, self._detail = echo, detail
        self._posts = OneAtATime()
        self.counts = Counts()
        self._unlogged: dict[tuple[int | None, str], Dropped] = {}
        self._outgoing: deque[Dropped] = deque()
        self._first: dict[tuple[str, str], object] = {}
        self.is_sealed = False
        """True if the counts are final: later posts of the writer change nothing."""

    def offer(self, sequences: int) -> None:
        """Adds sequences that were taken and are pending. Negative: the call of `log` had counted too many."""
        self._post(Tally(offered=sequences), Tally())

    def refuse(self, dropped: Dropped) -> bool:
        """Counts sequences that were logged but not taken. True the first time for this reason, when the caller is to warn."""
        self._posts.do(lambda: self._refuse(dropped))
        return self._is_first("reason", dropped.reason)

    def write(self, sequences: int, tokens: int) -> None:
        """Counts pending sequences as on disk."""
        self._echo("write", (sequences, tokens))
        self._post(Tally(written=sequences), Tally(tokens, tokens))

    def leave_out(self, sequences: int, tokens: int) -> None:
        """Counts pending sequences of which the budget keeps statistics alone."""
        self._echo("leave_out", (sequences, tokens))
        self._post(Tally(left_out=sequences), Tally(tokens, left_out=tokens))

    def drop(self, dropped: Dropped, is_logged: bool = False) -> bool:
        """Counts pending sequences as lost. True the first time for this reason, when the caller is to warn.

        is_logged: the commit log already has a line on it.
        """
        self._echo("drop", astuple(dropped))
        if self.is_sealed:
            return False
        self._posts.do(lambda: None if self.is_sealed else self._drop(dropped, is_logged))
        return self._is_first("reason", dropped.reason)

    def fail(self, what: str) -> bool:
        """Counts a failure that lost no sequence. True the first time, when the caller is to warn."""
        self._echo("fail", (what,))
        self._posts.do(lambda: self._fail(what))
        return self._is_first("failure", what)

    def seal(self, reason: str) -> None:
        """Counts all pending sequences as dropped. Later posts of the writer change nothing."""
        self._posts.do(lambda: self._seal(reason))

    def newly_dropped(self) -> tuple[Dropped, ...]:
        """The drops since the last call, for the commit log: one entry per step and reason."""
        self._posts.do(self._move_out)
        return tuple(drained(self._outgoing))

    def _post(self, sequences: Tally, tokens: Tally) -> None:
        self._posts.do(lambda: None if self.is_sealed else self._add(sequences, tokens))

    def _add(self, sequences: Tally, tokens: Tally) -> None:
        self.counts = replace(
            self.counts, sequences=self.counts.sequences + sequences, tokens=self.counts.tokens + tokens
        )

    def _refuse(self, dropped: Dropped) -> None:
        """Both in one post: a signal handler that closes in between would count the sequences as pending and drop them again."""
        self._add(Tally(offered=dropped.sequences), Tally())
        self._drop(dropped)

    def _drop(self, dropped: Dropped, is_logged: bool = False) -> None:
        self._add(Tally(dropped=dropped.sequences), Tally(dropped.tokens, dropped=dropped.tokens))
        self.counts = replace(self.counts, reasons=_more(self.counts.reasons, dropped.reason, dropped.sequences))
        if is_logged:
            return
        known = self._unlogged.get((dropped.step, dropped.reason), Dropped(dropped.step, dropped.reason, "", 0, 0))
        sequences, tokens = known.sequences + dropped.sequences, known.tokens + dropped.tokens
        self._unlogged[dropped.step, dropped.reason] = replace(
            dropped, detail=self._detail(dropped.detail), sequences=sequences, tokens=tokens
        )

    def _fail(self, what: str) -> None:
        self.counts = replace(self.counts, failures=_more(self.counts.failures, what, 1))

    def _seal(self, reason: str) -> None:
        if self.counts.sequences.pending > 0:
            self._drop(Dropped(None, reason, "", self.counts.sequences.pending, 0))
        self.is_sealed = True

    def _move_out(self) -> None:
        self._outgoing.extend(self._unlogged.values())
        self._unlogged = {}

    def _is_first(self, kind: str, name: str) -> bool:
        mine = object()
        return self._first.setdefault((kind, name), mine) is mine


def drained(items: "deque[T]") -> Iterator[T]:
    """Takes all items out, oldest first. Several threads may do so at the same time."""
    with suppress(IndexError):
        while True:
            yield items.popleft()


def _more(counts: Mapping[str, int], name: str, times: int) -> dict[str, int]:
    return {**counts, name: counts.get(name, 0) + times}
