"""The steps of an earlier start of a run that a later start replaces: all from the first step that was recorded again.

A start of the whole job is a new attempt. It replaces the steps of all ranks. A single rank can be started again while the
other ranks go on; it replaces only what its own earlier process recorded. A writer that went on after a start is not replaced.
Restarts of a run, from its files and logs: which steps of which writers later ones replace (attempts.py has the rules).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .entries import Segment, TokenFile
from .file_parts import parts_by_writer, steps_of, writers_of
from .writer_history import WriterHistory

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
    """Steps of an attempt that are not shown, because a later attempt recorded them again, or began at an earlier step."""

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
    is_again: bool = True
    """True if the later attempt recorded these steps; False if it only began before them."""
    since: int = field(default=0, compare=False)
    """The step from which on the attempt is not shown."""


def cutoffs(parts: Sequence[WriterSteps]) -> Cutoffs:
    """From which steps on these attempts and writers are replaced."""
    recorded = [part for part in parts if part.steps]
    first: dict[int, int] = {}
    for part in recorded:
        first[part.attempt] = min(part.first, first.get(part.attempt, part.first))
    # (attempt, later attempt) where a writer of the earlier one went on: the later one was no start of the whole job.
    opened: dict[int, float] = {}
    jobs: dict[int, set[str]] = {}
    for part in recorded:
        if part.opened is not None:
            opened[part.attempt] = min(part.opened, opened.get(part.attempt, part.opened))
        jobs.setdefault(part.attempt, set()).update([part.job] if part.job is not None else [])
    alone = {
        (part.attempt, by)
        for part in recorded
        for by, since in opened.items()
        if by > part.attempt and _goes_on(part, since) and not (jobs[by] and part.job and part.job not in jobs[by])
    }
    return Cutoffs(dict(_of_attempts(first, alone)), dict(_of_writers(recorded, alone)))


Again = Mapping[tuple[int, int | None], Collection[int]]
"""(attempt, rank) -> the steps that it recorded; rank None: those of all ranks."""


def shadows(hidden: Mapping[tuple[int, Cutoff], Mapping[int, int]], recorded: Again) -> tuple[Shadow, ...]:
    """One Shadow for each attempt and what replaces it. hidden: (attempt, cutoff) -> step not shown -> its token rows."""
    totals: dict[tuple[int, int, int, bool], dict[int, int]] = {}
    since: dict[int, int] = {}
    for (attempt, cutoff), rows_of in hidden.items():
        since[attempt] = min(cutoff.step, since.get(attempt, cutoff.step))
        for step, rows in rows_of.items():
            # the later attempt that recorded the step: the one that replaces it, else the newest; None if none has
            others = (by for by, rank in recorded if rank is None and by > attempt) if cutoff.rank is None else ()
            ordered = (cutoff.by, *sorted(others, reverse=True))
            again = next((by for by in ordered if step in recorded.get((by, cutoff.rank), ())), None)
            rank = -1 if cutoff.rank is None else cutoff.rank
            of_key = totals.setdefault((attempt, cutoff.by if again is None else again, rank, again is None), {})
            of_key[step] = of_key.get(step, 0) + rows
    return tuple(
        Shadow(
            attempt, by, min(steps), max(steps), len(steps), None if rank < 0 else rank, sum(steps.values()),
            not is_apart, since[attempt],
        )
        for (attempt, by, rank, is_apart), steps in sorted(totals.items())
    )  # fmt: skip


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


def _goes_on(part: WriterSteps, since: float | None) -> bool:
    return None not in (since, part.last_heard) and (part.last_heard or 0.0) > (since or 0.0) + STRAGGLES_SECONDS


def cutoffs_of(recorded: Sequence[TokenFile | Segment], histories: Mapping[str, WriterHistory]) -> Cutoffs:
    """From which steps on attempts and single writers are replaced by later ones. recorded: every file of the run."""
    is_restarted = any(history.takes_over for history in histories.values())
    if not is_restarted and len({item.attempt for item in recorded}) < 2:  # most runs
        return Cutoffs()
    steps: dict[tuple[int, str], set[int]] = {}
    policies: dict[str, frozenset[str]] = {}
    for item in recorded:
        for part in parts_by_writer(item):
            steps.setdefault((item.attempt, part.writer), set()).update(part.steps)
            policies[part.writer] = policies.get(part.writer, frozenset()) | part.policies
    return cutoffs(
        [
            _writer_steps(histories.get(writer), attempt, writer, own, policies[writer])
            for (attempt, writer), own in steps.items()
        ]
    )


def shadows_of(
    recorded: Sequence[TokenFile | Segment], histories: Mapping[str, WriterHistory], cutoffs: Cutoffs
) -> tuple[Shadow, ...]:
    """The steps that are not shown, because they were recorded again or because a later start began before them."""
    hidden = dict[tuple[int, Cutoff], dict[int, int]]()
    again = dict[tuple[int, int | None], set[int]]()
    for item in recorded if cutoffs else ():
        cutoff = cutoffs.of(item.attempt, writers_of(item))
        rows = item.rows if isinstance(item, TokenFile) else 0
        steps = steps_of(item)
        if cutoff is not None:
            rows_of = hidden.setdefault((item.attempt, cutoff), {})
            rows_of |= {step: rows_of.get(step, 0) + rows for step in steps if step >= cutoff.step}
        again.setdefault((item.attempt, None), set()).update(steps)
        for part in parts_by_writer(item) if cutoffs.writers else ():
            if (history := histories.get(part.writer)) is not None:
                own = cutoffs.writers.get(part.writer)
                shown = (step for step in part.steps if own is None or step < own.step)
                again.setdefault((item.attempt, history.rank), set()).update(shown)
    return shadows(hidden, again)


def _writer_steps(
    history: WriterHistory | None, attempt: int, writer: str, steps: set[int], policies: frozenset[str]
) -> WriterSteps:
    if history is None or history.is_offline:
        return WriterSteps(writer, attempt, steps, policies)
    last_times = [time for time in (history.last_commit, history.closed) if time is not None]
    job = history.launch if history.launch is not None and history.launch.startswith("job:") else None
    times = history.opened, max(last_times, default=None)
    return WriterSteps(writer, attempt, steps, policies, history.rank, *times, job, history.takes_over)
