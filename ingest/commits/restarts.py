"""Restarts of a run, from its files and logs: which steps of which writers later ones replace (attempts.py has the rules)."""

from collections.abc import Mapping, Sequence

from .attempts import Cutoff, Cutoffs, Shadow, WriterSteps, cutoffs, shadows
from .entries import Segment, TokenFile
from .file_parts import parts_by_writer, steps_of, writers_of
from .writer_history import WriterHistory


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
