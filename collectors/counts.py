"""What was offered, written and dropped. The contract in one line: written + dropped + pending = offered."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Lock


@dataclass(frozen=True)
class Tally:
    """Of sequences, or of tokens (response positions, masked ones too). A sequence logged twice counts twice."""

    offered: int = 0
    written: int = 0
    dropped: int = 0

    @property
    def pending(self) -> int:
        """Offered, and neither written nor dropped yet."""
        return self.offered - self.written - self.dropped


@dataclass(frozen=True)
class Counts:
    """`reasons`: reason -> sequences dropped for it; `failures`: what else went wrong, without a sequence being lost.

    Tokens are known once the writer has looked at a batch: those of a batch that never got so far are not in `tokens`.
    """

    sequences: Tally = Tally()
    tokens: Tally = Tally()
    reasons: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Gap:
    """Sequences of one step that were dropped for one reason and of which the commit log does not tell yet."""

    step: int | None
    reason: str
    detail: str
    sequences: int
    tokens: int


class Ledger:
    """Keeps the counts; the trainer's thread and the writer's both post to it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sequences, self._tokens = Tally(), Tally()
        self._reasons: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._sealed = False
        self._gaps: dict[tuple[int | None, str], Gap] = {}

    @property
    def counts(self) -> Counts:
        with self._lock:
            return Counts(self._sequences, self._tokens, dict(self._reasons), dict(self._failures))

    def offer(self, sequences: int) -> None:
        """Sequences came in. Negative: fewer than were counted at the call."""
        with self._lock:
            self._sequences = replace(self._sequences, offered=self._sequences.offered + sequences)

    def write(self, sequences: int, tokens: int) -> None:
        """Sequences are on disk."""
        with self._lock:
            if self._sealed:
                return
            t = self._tokens
            self._sequences = replace(self._sequences, written=self._sequences.written + sequences)
            self._tokens = replace(t, offered=t.offered + tokens, written=t.written + tokens)

    def drop(self, gap: Gap) -> bool:
        """Sequences will never be on disk. True the first time for this reason: say so once."""
        with self._lock:
            if self._sealed:
                return False
            t = self._tokens
            self._sequences = replace(self._sequences, dropped=self._sequences.dropped + gap.sequences)
            self._tokens = replace(t, offered=t.offered + gap.tokens, dropped=t.dropped + gap.tokens)
            first = gap.reason not in self._reasons
            self._reasons[gap.reason] += gap.sequences
            known = self._gaps.get((gap.step, gap.reason), Gap(gap.step, gap.reason, "", 0, 0))
            self._gaps[gap.step, gap.reason] = replace(
                gap, sequences=known.sequences + gap.sequences, tokens=known.tokens + gap.tokens
            )
            return first

    def fail(self, what: str) -> bool:
        """Something went wrong that lost no sequence. True the first time."""
        with self._lock:
            self._failures[what] += 1
            return self._failures[what] == 1

    def seal(self, reason: str) -> None:
        """Counts all that is pending as dropped; what is posted afterwards changes nothing."""
        pending = self.counts.sequences.pending
        if pending and not self._sealed:
            self.drop(Gap(None, reason, "", pending, 0))
        self._sealed = True

    @property
    def sealed(self) -> bool:
        return self._sealed

    def unsaid_gaps(self) -> tuple[Gap, ...]:
        """The gaps since the last call, one per step and reason."""
        with self._lock:
            gaps = tuple(self._gaps.values())
            self._gaps.clear()
            return gaps
