"""What a later start of a run replaces of an earlier one: its steps, from the first one that was recorded again.

A start of the whole job is a new attempt and replaces the steps of all ranks. A rank that was started again by itself replaces
only what its own earlier process recorded; the other ranks go on, and a writer that went on after a start is not replaced by it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

STRAGGLES_SECONDS = 60.0
"""A writer that is still heard of so long after a start goes on beside it: until then it may be writing its last. A convention,
also for what the clocks of two hosts differ by."""


@dataclass(frozen=True)
class WriterSteps:
    """What one writer recorded. opened, spoke: when it was first and last heard of. job: what the job's launcher named its start.
    takes_over: writers whose work it said that it goes on with."""

    writer: str
    attempt: int
    steps: Collection[int]
    policies: frozenset[str] = frozenset()
    rank: int | None = None
    opened: float | None = None
    last_heard: float | None = None
    job: str | None = None
    takes_over: frozenset[str] = frozenset()

    @property
    def first(self) -> int:
        return min(self.steps)


@dataclass(frozen=True)
class Limit:
    """From which step on something is replaced, and by which attempt; rank: by this rank of it alone."""

    step: int
    by: int
    rank: int | None = None


@dataclass(frozen=True)
class Limits:
    """Of attempts and of single writers."""

    attempts: Mapping[int, Limit] = field(default_factory=dict)
    writers: Mapping[str, Limit] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.attempts or self.writers)

    def of(self, attempt: int, writers: Collection[str]) -> Limit | None:
        """Of a file with rows of these writers: it is shown as long as one of them is."""
        if not self.writers:
            return self.attempts.get(attempt)
        own = [self._of_writer(attempt, writer) for writer in writers] or [self.attempts.get(attempt)]
        known = [limit for limit in own if limit is not None]
        return max(known, key=lambda limit: limit.step) if len(known) == len(own) else None

    def taken_over(self, writers: Collection[str], step: int | None = None) -> bool:
        """Whether all of these writers were replaced by themselves, at this step or at any."""
        own = [self.writers.get(writer) for writer in writers]
        return bool(own) and all(limit is not None and (step is None or step >= limit.step) for limit in own)

    def _of_writer(self, attempt: int, writer: str) -> Limit | None:
        both = [limit for limit in (self.attempts.get(attempt), self.writers.get(writer)) if limit is not None]
        return min(both, key=lambda limit: limit.step, default=None)


@dataclass(frozen=True)
class Shadow:
    """Steps of an attempt that are not shown, because a later attempt began at or before them. rank: of this rank alone, which
    was started again by itself. rows: token rows of them."""

    attempt: int
    by: int
    first_step: int
    last_step: int
    steps: int
    rank: int | None = None
    rows: int = field(default=0, compare=False)


def limits(parts: Sequence[WriterSteps]) -> Limits:
    """What of these writers later ones replace."""
    recorded = [part for part in parts if part.steps]
    first: dict[int, int] = {}
    for part in recorded:
        first[part.attempt] = min(part.first, first.get(part.attempt, part.first))
    alone = _started_alone(recorded)
    return Limits(dict(_of_attempts(first, alone)), dict(_of_writers(recorded, alone)))


def shadows(hidden: Mapping[tuple[int, Limit], tuple[Collection[int], int]]) -> tuple[Shadow, ...]:
    """hidden: (attempt, what replaces it) -> the steps that are not shown, and their token rows."""
    found: dict[tuple[int, int, int | None], tuple[set[int], int]] = {}
    for (attempt, limit), (steps, rows) in hidden.items():
        known = found.get((attempt, limit.by, limit.rank), (set[int](), 0))
        found[attempt, limit.by, limit.rank] = known[0] | set(steps), known[1] + rows
    ordered = sorted(found.items(), key=lambda item: (item[0][:2], -1 if item[0][2] is None else item[0][2]))
    return tuple(
        Shadow(attempt, by, min(steps), max(steps), len(steps), rank, rows)
        for (attempt, by, rank), (steps, rows) in ordered
    )


def _of_attempts(first: Mapping[int, int], alone: Collection[tuple[int, int]]) -> Iterator[tuple[int, Limit]]:
    for attempt in sorted(first):
        later = [Limit(first[by], by) for by in first if by > attempt and (attempt, by) not in alone]
        if later:
            yield attempt, min(later, key=lambda limit: (limit.step, -limit.by))


def _of_writers(parts: Sequence[WriterSteps], alone: Collection[tuple[int, int]]) -> Iterator[tuple[str, Limit]]:
    again = {by for _, by in alone}
    starts = [part for part in parts if part.takes_over or part.attempt in again]
    for part in parts if starts else ():
        after = [
            Limit(later.first, later.attempt, later.rank)
            for later in starts
            if later is not part and _takes_over(later, part, alone) and part.policies <= later.policies
        ]
        if after:
            yield part.writer, min(after, key=lambda limit: limit.step)


def _takes_over(later: WriterSteps, part: WriterSteps, alone: Collection[tuple[int, int]]) -> bool:
    is_said = part.writer in later.takes_over
    is_again = (part.attempt, later.attempt) in alone and part.rank is not None and part.rank == later.rank
    return (is_said or is_again) and not _goes_on(part, later.opened)


def _started_alone(parts: Sequence[WriterSteps]) -> set[tuple[int, int]]:
    """(attempt, later attempt) where a writer of the first went on, so that the later one was no start of the whole job."""
    opened: dict[int, float] = {}
    jobs: dict[int, set[str]] = {}
    for part in parts:
        if part.opened is not None:
            opened[part.attempt] = min(part.opened, opened.get(part.attempt, part.opened))
        jobs.setdefault(part.attempt, set()).update([part.job] if part.job is not None else [])
    return {
        (part.attempt, by)
        for part in parts
        for by, since in opened.items()
        if by > part.attempt and _goes_on(part, since) and not (jobs[by] and part.job and part.job not in jobs[by])
    }


def _goes_on(part: WriterSteps, since: float | None) -> bool:
    return None not in (since, part.last_heard) and (part.last_heard or 0.0) > (since or 0.0) + STRAGGLES_SECONDS
