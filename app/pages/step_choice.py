"""The step that a page on one step shows, and its grade.

The words on steps without a reading.
The sequences of one step on a gap, and the reason where there is none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from ratioscope.ingest.analysis.part_rows import part_sequences
from ratioscope.metrics.grading import episodes as course
from ratioscope.metrics.grading.severity import with_readings
from ratioscope.record import sides

from ..blocks import Action, Block, Link, Paragraph
from ..presentation.digits import digits
from ..presentation.escape import visible
from ..presentation.metric_places import sequence_measures_at
from ..presentation.step_words import steps_words
from .scope import Scope
from .view import View, asked_gap

AT_ONCE = 32
TOKENS_AT_ONCE = 500_000
"""Most steps and tokens that are read without a question or a job: a second's work."""

KEY = ["sequence_id", "minibatch"]
FACTS = ("minibatch", "reward", "advantage", "lag", "group_id", "replica", "rank", "finish_reason")
NO_ROWS = "no token rows of this step were kept; the other pages show its statistics."


def known_facts(row: Mapping[str, Any], names: Iterable[str], longest: int) -> Iterator[str]:
    """The facts of a sequence that are on record, each with its name. longest: most characters of a value. Any: such a value."""
    for name in names:
        if (value := row.get(name)) is not None:
            shown = digits(value) if isinstance(value, float) else visible(str(value), longest)
            yield f"{name.replace('_', ' ')} {shown}"


def steps_with_rows(view: View, gap: str) -> list[int]:
    """The steps whose sequences can be listed; all steps if there is none."""
    return (view.read_steps(gap) if asked_gap(gap) else view.run.steps_with_rows) or view.steps


def worst_step(view: View, steps: Sequence[int]) -> int:
    """The worst of these steps: the verdict's if it is among them, else the worst grade; the last if all are healthy."""
    peak = view.verdict().peak_step
    if peak is not None and peak not in steps:
        peak = course.worst_step(view.graded().filter(pl.col("step").is_in(list(steps))), view.rules.rules)
    return steps[-1] if peak is None else nearest(steps, peak)


def nearest(steps: Sequence[int], step: int) -> int:
    """The recorded step nearest to this one."""
    return min(steps, key=lambda recorded: (abs(recorded - step), recorded))


def severity_of(view: View, step: int) -> dict[str, object] | None:
    """The step's row of the grades; None if it could not be graded."""
    rows = view.grades().filter(pl.col("step") == step)
    return with_readings(rows).row(0, named=True) if len(rows) else None


def are_few(view: View, steps: Sequence[int]) -> bool:
    """True if the token rows of these steps are read in about a second."""
    run = view.run
    return len(steps) <= AT_ONCE and len(steps) * run.size.tokens <= TOKENS_AT_ONCE * len(run.steps)


def not_read(view: View, gap: str, lacking: list[int]) -> str:
    """`not available, because ...`: the steps without a reading of the gap, and those with one."""
    read = view.read_steps(gap)
    here = f"{steps_words(lacking, view.steps)} {'has' if len(lacking) == 1 else 'have'} no reading {names(view, gap)}"
    there = f"; {steps_words(read, view.steps)} {'has' if len(read) == 1 else 'have'} one" if read else ""
    return f"not available, because {here}{there}"


def names(view: View, gap: str) -> str:
    """The readings that are sides of the gap."""
    return " and ".join(side for side in sides(gap) if side in view.run.readings)


def rows_of(view: View, step: int, gap: str) -> pl.DataFrame:
    """The sequences of a step at which the gap is known; without rows if there are none, see `no_rows`."""
    frame = view.sequences(step, gap)
    if not asked_gap(gap):
        return frame
    worst = f"{gap}/{sequence_measures_at('order')[0]}"
    return frame.drop_nulls(worst) if worst in frame.columns and step in view.read_steps(gap) else frame.clear()


def no_rows(view: View, step: int, gap: str) -> Iterator[Block]:
    """The reason why no sequence of the step can be listed, and the way to a step with some."""
    if view.sequences(step, gap).is_empty():
        yield Paragraph(f"step {step}: not available, because {view.run.no_tokens or NO_ROWS}", "muted")
        if (there := nearest(steps_with_rows(view, gap), step)) != step and not view.run.no_tokens:
            words = f"show step {there}, the nearest with token rows"
            yield Action("step_with_rows", words, Link("", {"step": there}))
    elif step not in view.read_steps(gap):
        yield Paragraph(f"{gap} is {not_read(view, gap, [step])}", "info")
    else:
        yield Paragraph(
            f"{gap} is not available, because its readings lack the sequences of step {step} on record.", "info"
        )


def worst_first(frame: pl.DataFrame, gap: str, order: str) -> pl.DataFrame:
    """The rows by falling size of the chosen column. Equal ones are ordered by id, so that the order never changes by itself."""
    column = order if order in frame.columns else f"{gap}/{order}"
    size = -pl.col(column) if order == "reward" else pl.col(column).cast(pl.Float64).abs()
    return frame.sort(size, "sequence_id", descending=[True, False], nulls_last=True)


def opened(choices: pl.DataFrame, row: int) -> Link:
    """The page of the sequence of a row. choices: `sequence` and, unless they are null, others of that page."""
    return Link("tokens", {name: value for name, value in choices.row(row, named=True).items() if value is not None})


def with_part_only(scope: Scope, frame: pl.DataFrame, step: int) -> pl.DataFrame:
    """The rows with a token of the filter, and the number of these tokens; all rows without a filter."""
    if scope.only is None:
        return frame
    return frame.join(scope.view.of(part_sequences, step, scope.gap, scope.only), on=KEY, how="inner", nulls_equal=True)
