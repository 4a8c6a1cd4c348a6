"""What was offered, written, left out by the budget, and dropped. These and what is pending add up to what was offered."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import RLock

from ratioscope.redaction import without_secrets


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
    """Keeps the counts; the trainer's thread and the writer's both post to it."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._sequences, self._tokens = Tally(), Tally()
        self._reasons: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._is_sealed = False
        self._gaps: dict[tuple[int | None, str], Gap] = {}

    @property
    def counts(self) -> Counts:
        with self._lock:
            return Counts(self._sequences, self._tokens, dict(self._reasons), dict(self._failures))

    @property
    def is_sealed(self) -> bool:
        """Whether nothing is pending any more, whatever the writer does."""
        return self._is_sealed

    def offer(self, sequences: int) -> None:
        """Sequences were taken and are pending. Negative: fewer than were counted at the call."""
        with self._lock:
            if not self._is_sealed:
                self._sequences = replace(self._sequences, offered=self._sequences.offered + sequences)

    def refuse(self, gap: Gap) -> bool:
        """Sequences came in and were not taken. True the first time for this reason: say so once."""
        with self._lock:
            self._sequences = replace(self._sequences, offered=self._sequences.offered + gap.sequences)
            return self._drop(gap)

    def write(self, sequences: int, tokens: int) -> None:
        """Pending sequences are on disk."""
        with self._lock:
            if not self._is_sealed:
                self._sequences = replace(self._sequences, written=self._sequences.written + sequences)
                self._tokens = replace(
                    self._tokens, offered=self._tokens.offered + tokens, written=self._tokens.written + tokens
                )

    def leave_out(self, sequences: int, tokens: int) -> None:
        """Pending sequences are in the statistics only, as the budget has it."""
        with self._lock:
            if not self._is_sealed:
                s, t = self._sequences, self._tokens
                self._sequences = replace(s, left_out=s.left_out + sequences)
                self._tokens = replace(t, offered=t.offered + tokens, left_out=t.left_out + tokens)

    def drop(self, gap: Gap) -> bool:
        """Pending sequences will never be on disk. True the first time for this reason: say so once."""
        with self._lock:
            return not self._is_sealed and self._drop(gap)

    def fail(self, what: str) -> bool:
        """Something went wrong that lost no sequence. True the first time."""
        with self._lock:
            self._failures[what] += 1
            return self._failures[what] == 1

    def seal(self, reason: str) -> None:
        """Counts all that is pending as dropped. What the writer posts afterwards changes nothing."""
        with self._lock:
            if self._sequences.pending > 0:
                self._drop(Gap(None, reason, "", self._sequences.pending, 0))
            self._is_sealed = True

    def unsaid_gaps(self) -> tuple[Gap, ...]:
        """The gaps since the last call, one per step and reason."""
        with self._lock:
            gaps = tuple(self._gaps.values())
            self._gaps.clear()
            return gaps

    def _drop(self, gap: Gap) -> bool:
        t = self._tokens
        self._sequences = replace(self._sequences, dropped=self._sequences.dropped + gap.sequences)
        self._tokens = replace(t, offered=t.offered + gap.tokens, dropped=t.dropped + gap.tokens)
        is_first = gap.reason not in self._reasons
        self._reasons[gap.reason] += gap.sequences
        known = self._gaps.get((gap.step, gap.reason), Gap(gap.step, gap.reason, "", 0, 0))
        together = replace(gap, sequences=known.sequences + gap.sequences, tokens=known.tokens + gap.tokens)
        self._gaps[gap.step, gap.reason] = together
        return is_first
