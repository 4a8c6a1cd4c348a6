"""What was offered, written, left out by the budget, and dropped. These and what is pending add up to what was offered."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from typing import Any, TypeVar

from ratioscope.redaction import without_secrets

from .one_at_a_time import OneAtATime

T = TypeVar("T")


@dataclass(frozen=True)
class Tally:
    """Of sequences, or of tokens (response positions, masked ones too). A sequence logged twice counts twice.

    left_out: token rows that the budget had no room for; they are in the statistics.
    """

    offered: int = 0
    written: int = 0
    dropped: int = 0
    left_out: int = 0

    @property
    def pending(self) -> int:
        """Offered, and nothing became of it yet."""
        return self.offered - self.written - self.dropped - self.left_out

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.offered + other.offered,
            self.written + other.written,
            self.dropped + other.dropped,
            self.left_out + other.left_out,
        )


@dataclass(frozen=True)
class Counts:
    """`reasons`: reason -> sequences dropped for it; `failures`: what else went wrong, without a sequence being lost.

    Tokens are known once the writer has looked at a batch: those of a batch that never got so far are not in `tokens`.
    """

    sequences: Tally = Tally()
    tokens: Tally = Tally()
    reasons: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)

    @property
    def losses(self) -> str:
        """A line on what was lost and why."""
        lost = ", ".join(f"{sequences} {reason}" for reason, sequences in self.reasons.items())
        failed = ", ".join(f"{what} failed {times} times" for what, times in self.failures.items())
        total = f"{self.sequences.dropped} of {self.sequences.offered} sequences not recorded"
        return "; ".join(part for part in (total, lost, failed) if part)


@dataclass(frozen=True)
class Gap:
    """Sequences of one step that were dropped for one reason and of which the commit log does not tell yet."""

    step: int | None
    reason: str
    detail: str
    sequences: int
    tokens: int


def reason_of(error: BaseException) -> str:
    """The error's kind and message without secrets, cut to what a line should hold. Never raises, whatever its `str` does."""
    try:
        return without_secrets(f"{type(error).__name__}: {error}"[:1000])[:500]
    except Exception:
        return type(error).__name__


class Ledger:
    """Keeps the counts; the trainer's thread and the writer's both post to it. Nobody waits for anybody, see one_at_a_time.py.

    echo: hears of each post of the writer (write, leave_out, drop, fail) and its values, to post it elsewhere, too. detail:
    what may be told of a gap's detail.
    """

    def __init__(
        self,
        echo: Callable[[str, tuple[Any, ...]], None] = lambda post, values: None,
        detail: Callable[[str], str] = str,
    ) -> None:
        self._echo, self._detail = echo, detail
        self._posts = OneAtATime()
        self._counts = Counts()
        self._gaps: dict[tuple[int | None, str], Gap] = {}
        self._untold: deque[Gap] = deque()
        self._first: dict[tuple[str, str], object] = {}
        self._is_sealed = False

    @property
    def counts(self) -> Counts:
        return self._counts

    @property
    def is_sealed(self) -> bool:
        """Whether nothing is pending any more, whatever the writer does."""
        return self._is_sealed

    def offer(self, sequences: int) -> None:
        """Sequences were taken and are pending. Negative: fewer than were counted at the call."""
        self._post(Tally(offered=sequences), Tally())

    def refuse(self, gap: Gap) -> bool:
        """Sequences came in and were not taken. True the first time for this reason: say so once."""
        self._posts.do(lambda: self._refuse(gap))
        return self._is_first("reason", gap.reason)

    def write(self, sequences: int, tokens: int) -> None:
        """Pending sequences are on disk."""
        self._echo("write", (sequences, tokens))
        self._post(Tally(written=sequences), Tally(tokens, tokens))

    def leave_out(self, sequences: int, tokens: int) -> None:
        """Pending sequences are in the statistics only, as the budget has it."""
        self._echo("leave_out", (sequences, tokens))
        self._post(Tally(left_out=sequences), Tally(tokens, left_out=tokens))

    def drop(self, gap: Gap, told: bool = False) -> bool:
        """Pending sequences will never be on disk. True the first time for this reason: say so once. told: the log has it."""
        self._echo("drop", astuple(gap))
        if self._is_sealed:
            return False
        self._posts.do(lambda: None if self._is_sealed else self._drop(gap, told))
        return self._is_first("reason", gap.reason)

    def fail(self, what: str) -> bool:
        """Something went wrong that lost no sequence. True the first time."""
        self._echo("fail", (what,))
        self._posts.do(lambda: self._fail(what))
        return self._is_first("failure", what)

    def seal(self, reason: str) -> None:
        """Counts all that is pending as dropped. What the writer posts afterwards changes nothing."""
        self._posts.do(lambda: self._seal(reason))

    def unsaid_gaps(self) -> tuple[Gap, ...]:
        """The gaps since the last call, one per step and reason."""
        self._posts.do(self._tell_gaps)
        return tuple(drained(self._untold))

    def _post(self, sequences: Tally, tokens: Tally) -> None:
        self._posts.do(lambda: None if self._is_sealed else self._add(sequences, tokens))

    def _add(self, sequences: Tally, tokens: Tally) -> None:
        self._counts = replace(
            self._counts, sequences=self._counts.sequences + sequences, tokens=self._counts.tokens + tokens
        )

    def _refuse(self, gap: Gap) -> None:
        """At once, as a signal handler that closes in between would count the sequences as pending, and drop them, too."""
        self._add(Tally(offered=gap.sequences), Tally())
        self._drop(gap)

    def _drop(self, gap: Gap, told: bool = False) -> None:
        self._add(Tally(dropped=gap.sequences), Tally(gap.tokens, dropped=gap.tokens))
        self._counts = replace(self._counts, reasons=_more(self._counts.reasons, gap.reason, gap.sequences))
        if told:
            return
        known = self._gaps.get((gap.step, gap.reason), Gap(gap.step, gap.reason, "", 0, 0))
        sequences, tokens = known.sequences + gap.sequences, known.tokens + gap.tokens
        self._gaps[gap.step, gap.reason] = replace(
            gap, detail=self._detail(gap.detail), sequences=sequences, tokens=tokens
        )

    def _fail(self, what: str) -> None:
        self._counts = replace(self._counts, failures=_more(self._counts.failures, what, 1))

    def _seal(self, reason: str) -> None:
        if self._counts.sequences.pending > 0:
            self._drop(Gap(None, reason, "", self._counts.sequences.pending, 0))
        self._is_sealed = True

    def _tell_gaps(self) -> None:
        self._untold.extend(self._gaps.values())
        self._gaps = {}

    def _is_first(self, kind: str, name: str) -> bool:
        mine = object()
        return self._first.setdefault((kind, name), mine) is mine


def drained(items: "deque[T]") -> Iterator[T]:
    """Takes the items out, oldest first; others may do the same at the same time."""
    with suppress(IndexError):
        while True:
            yield items.popleft()


def _more(counts: Mapping[str, int], name: str, times: int) -> dict[str, int]:
    return {**counts, name: counts.get(name, 0) + times}
