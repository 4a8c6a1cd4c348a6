"""The steps of an earlier start of a run that a later start replaces: all from the first step that was recorded again.

A start of the whole job is a new attempt. It replaces the steps of all ranks. A single rank can be started again while the
other ranks go on; it replaces only what its own earlier process recorded. A writer that went on after a start is not replaced.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

STRAGGLES_SECONDS = 60.0
"""A writer that still commits this long after a later start goes on beside that start. Until then it may only be finishing its
last step, or the clocks of two hosts may differ. A convention."""


@dataclass(frozen=True)
class WriterSteps:
    """The steps that one writer recorded in one attempt."""

    writer: str
    attempt: int
    steps: Collection[int]
    policies: frozenset[str] = frozenset()
    """Policies that it recorded."""
    rank: int | None = None
    opened: float | None = None
    """When the writer opened its log, in seconds since 1970."""
    last_heard: float | None = None
    """When the writer last committed or closed, in seconds since 1970."""
    job: str | None = None
    """The name that the job's launcher gave to this start."""
    takes_over: frozenset[str] = frozenset()
    """Earlier writers whose work this writer continues, by its log."""

    @property
    def first(self) -> int:
        return min(self.steps)


@dataclass(frozen=True)
class Cutoff:
    """The step at which the rows of an attempt or of a writer stop being shown."""

    step: int
    """The first step that is replaced."""
    by: int
    """The attempt that replaces it."""
    rank: int | None = None
    """The rank that was started again; None where the whole job was."""


@dataclass(frozen=True)
class Cutoffs:
    """All cutoffs of a run."""

    attempts: Mapping[int, Cutoff] = field(default_factory=dict)
    """attempt -> its cutoff, for attempts that a later start of the whole job replaces."""
    writers: Mapping[str, Cutoff] = field(default_factory=dict)
    """writer -> its cutoff, for writers whose rank was started again alone."""

    def __bool__(self) -> bool:
        return bool(self.attempts or self.writers)

    def of(self, attempt: int, writers: Collection[str]) -> Cutoff | None:
        """The cutoff of a file with rows of these writers. The file is shown as long as one of the writers is."""
        if not self.writers:
            return self.attempts.get(attempt)
        cutoffs = [self._of_writer(attempt, writer) for writer in writers] or [self.attempts.get(attempt)]
        actual = [cutoff for cutoff in cutoffs if cutoff is not None]
        return max(actual, key=lambda cutoff: cutoff.step) if len(actual) == len(cutoffs) else None

    def taken_over(self, writers: Collection[str], step: int | None = None) -> bool:
        """True if a restart of their own ranks replaced all of these writers: at this step, or (None) at any step."""
        own = [self.writers.get(writer) for writer in writers]
        return bool(own) and all(cutoff is not None and (step is None or step >= cutoff.step) for cutoff in own)

    def _of_writer(self, attempt: int, writer: str) -> Cutoff | None:
        both = [cutoff for cutoff in (self.attempts.get(attempt), self.writers.get(writer)) if cutoff is not None]
        return min(both, key=lambda cutoff: cutoff.step, default=None)


@dataclass(frozen=True)
class Shadow:
    """Steps of an attempt that are not shown, because a later attempt recorded them again."""

    attempt: int
    by: int
    """The later attempt."""
    first_step: int
    last_step: int
    steps: int
    """Number of steps that are not shown."""
    rank: int | None = None
    """The rank that was started again alone; None where the whole job was."""
    rows: int = field(default=0, compare=False)
    """Number of token rows of these steps."""


def cutoffs(parts: Sequence[WriterSteps]) -> Cutoffs:
    """From which steps on these attempts and writers are replaced."""
    recorded = [part for part in parts if part.steps]
    first: dict[int, int] = {}
    for part in recorded:
        first[part.attempt] = min(part.first, first.get(part.attempt, part.first))
    alone = _started_alone(recorded)
    return Cutoffs(dict(_of_attempts(first, alone)), dict(_of_writers(recorded, alone)))


def shadows(hidden: Mapping[tuple[int, Cutoff], tuple[Collection[int], int]]) -> tuple[Shadow, ...]:
    """One Shadow for each attempt and what replaces it. hidden: (attempt, cutoff) -> (steps not shown, their token rows)."""
    totals: dict[tuple[int, int, int | None], tuple[set[int], int]] = {}
    for (attempt, cutoff), (steps, rows) in hidden.items():
        total = totals.get((attempt, cutoff.by, cutoff.rank), (set[int](), 0))
        totals[attempt, cutoff.by, cutoff.rank] = total[0] | set(steps), total[1] + rows
    ordered = sorted(totals.items(), key=lambda item: (item[0][:2], -1 if item[0][2] is None else item[0][2]))
    return tuple(
        Shadow(attempt, by, min(steps), max(steps), len(steps), rank, rows)
        for (attempt, by, rank), (steps, rows) in ordered
    )


def _of_attempts(first: Mapping[int, int], alone: Collection[tuple[int, int]]) -> Iterator[tuple[int, Cutoff]]:
    for attempt in sorted(first):
        later = [Cutoff(first[by], by) for by in first if by > attempt and (attempt, by) not in alone]
        if later:
            yield attempt, min(later, key=lambda cutoff: (cutoff.step, -cutoff.by))


def _of_writers(parts: Sequence[WriterSteps], alone: Collection[tuple[int, int]]) -> Iterator[tuple[str, Cutoff]]:
    again = {by for _, by in alone}
    starts = [part for part in parts if part.takes_over or part.attempt in again]
    for part in parts if starts else ():
        after = [
            Cutoff(later.first, later.attempt, later.rank)
            for later in starts
            if later is not part and _takes_over(later, part, alone) and part.policies <= later.policies
        ]
        if after:
            yield part.writer, min(after, key=lambda cutoff: cutoff.step)


def _takes_over(later: WriterSteps, part: WriterSteps, alone: Collection[tuple[int, int]]) -> bool:
    is_said = part.writer in later.takes_over
    is_again = (part.attempt, later.attempt) in alone and part.rank is not None and part.rank == later.rank
    return (is_said or is_again) and not _goes_on(part, later.opened)


def _started_alone(parts: Sequence[WriterSteps]) -> set[tuple[int, int]]:
    """(attempt, later attempt) where a writer of the earlier one went on: the later one was no start of the whole job."""
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
