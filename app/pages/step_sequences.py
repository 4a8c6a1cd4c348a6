"""The sequences of one step on a gap, and the reason where there is none."""

from collections.abc import Iterator

import polars as pl

from ratioscope.ingest.analysis.part_rows import part_sequences

from ..blocks import Action, Block, Link, Paragraph
from ..presentation.metric_places import sequence_measures_at
from .scope import Scope
from .step_choice import nearest, steps_with_rows
from .unread_steps import not_read
from .view import View, asked_gap

KEY = ["sequence_id", "minibatch"]
FACTS = ("minibatch", "reward", "advantage", "lag", "group_id", "replica", "rank", "finish_reason")
NO_ROWS = "no token rows of this step were kept; the other pages show its statistics."


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


def with_part_only(scope: Scope, frame: pl.DataFrame, step: int) -> pl.DataFrame:
    """The rows with a token of the filter, and the number of these tokens; all rows without a filter."""
    if scope.only is None:
        return frame
    return frame.join(scope.view.of(part_sequences, step, scope.gap, scope.only), on=KEY, how="inner", nulls_equal=True)
