"""The Where page: the gap by position, probability, replica, token class and every other recorded slice."""

from collections.abc import Mapping, Sequence

import polars as pl
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ratioscope.ingest.analysis.slice_over_steps import slice_over_steps
from ratioscope.metrics.analysis.concentration import concentration
from ratioscope.metrics.analysis.slice_parts import MOST, bucket_label, size_metric, slice_parts
from ratioscope.metrics.definitions.registry import BY_NAME

from ....figures.drawing.head import metric_head
from ....figures.slice_heat import slice_heat
from ....presentation.concentration_words import concentration_words
from ....presentation.escape import streamlit_label as label
from ....presentation.slice_names import BY_NAME as WORDS
from ....presentation.slice_names import SLICES, SliceWords, only_value_words, part_words
from ...model.scope import Scope
from ...model.slice_absences import absences
from ...model.view import View, asked_gap
from ...panels.charts import appearance, draw
from ...panels.layout import columns, control_row
from ...panels.slice_reading import slice_frame, steps_shown
from .slice_chart import slice_chart
from .slice_pickers import heat_picker, measured_picker, metric_picker

ShownSlice = tuple[SliceWords, range | None]
"""(slice, steps of its chart)."""
HEAD = 9
"""Height of a chart's title and axis, in rows."""


def render(scope: Scope) -> None:
    view = scope.view
    absent = absences(view)
    answer = st.container(key="where_answer")
    with control_row("heat"):
        metric = metric_picker(scope.gap)
        heat = heat_picker([words for words in SLICES if words.name not in absent])
    measured = measured_picker([words for words in SLICES if not words.written and words.name not in absent])
    chosen = scope.chosen
    if not scope.recorded:
        st.info("The run has no steps in this range.")
        return
    shown = [words for words in SLICES if words.name not in absent and (words.written or words.name in measured)]
    frames = {words.name: slice_frame(view, words, steps_shown(view, words, chosen), scope.gap) for words in shown}
    with answer:
        _say_where(scope, [(words, steps_shown(view, words, chosen)) for words in shown])
    _say_filter(scope)
    if heat is not None:
        _heat(scope, WORDS[heat], metric, chosen)
    alone = {words.name: key for words in shown if (key := _only_key(frames[words.name], words, scope.gap)) is not None}
    for column, words in _side_by_side([words for words in shown if words.name not in alone], frames):
        with column:
            slice_chart(scope, words, frames[words.name], metric, chosen)
    _say_alone(alone)
    _say_absent(absent)


def _side_by_side(
    shown: Sequence[SliceWords], frames: Mapping[str, pl.DataFrame]
) -> list[tuple[DeltaGenerator, SliceWords]]:
    """Each chart with its column. The tallest chart goes first, each into the shorter column, so that the heights agree."""
    rows = {words.name: HEAD + min(len(frames[words.name]), MOST) for words in shown}
    heights, at = [0, 0], dict[str, int]()
    for name in sorted(rows, key=lambda name: rows[name], reverse=True):
        at[name] = heights.index(min(heights))
        heights[at[name]] += rows[name]
    left = at[shown[0].name] if shown else 0  # the first chart goes into the left column
    sides = columns(2, "slices")
    return [(sides[0 if at[words.name] == left else 1], words) for words in shown]


def _say_where(scope: Scope, shown: Sequence[ShownSlice]) -> None:
    """The answer of the page, above all of it."""
    sentences = scope.view.figure(_sentences, scope.view, scope.gap, tuple(shown))
    st.markdown("  \n".join(f"**{label(sentence, 300)}**" for sentence in sentences))


def _sentences(view: View, gap: str, shown: Sequence[ShownSlice]) -> list[str]:
    """The sentences on the slices that concentrate the gap. Their metrics have been computed for the charts."""
    size = size_metric(gap)
    found = [
        (words, concentration(slice_parts(view.metrics((words.name,), steps, gap), words.name, gap, size)))
        for words, steps in shown
    ]
    return concentration_words(found, BY_NAME[size].title)


def _say_filter(scope: Scope) -> None:
    if scope.only is None:
        st.caption("Click a bar to show only its tokens on the other pages.")
        return
    st.caption(
        f"Other pages show only {label(part_words(scope.only), 200)}. Click a marked bar again to drop it; a bar of another chart"
        " adds a condition. The charts of this page still show all tokens."
    )


def _heat(scope: Scope, words: SliceWords, metric: str, chosen: range | None) -> None:
    view, gap = scope.view, scope.gap
    steps = steps_shown(view, words, chosen)
    if not words.written:
        with st.spinner(f"reading token rows by {words.title}, one part of the steps after the other"):
            course = view.of(slice_over_steps, words.name, steps, *asked_gap(gap))
    else:
        course = view.of(slice_over_steps, words.name, steps, *asked_gap(gap))
    parts = slice_parts(slice_frame(view, words, steps, gap), words.name, gap, metric)
    figure = slice_heat(
        course,
        parts,
        words.name,
        BY_NAME[metric],
        gap,
        metric_head(BY_NAME[metric], gap, appearance(), f"by {words.title} over the steps"),
        events=view.events(),
        theme=appearance(),
    )
    draw(figure, "slice_heat", f"{gap} {metric} by {words.title} over the steps", numbers=lambda: course)


def _only_key(frame: pl.DataFrame, words: SliceWords, gap: str) -> str | None:
    """The only value of a slice, of which a chart would have one bar."""
    known = frame.drop_nulls(f"{gap}/tokens") if f"{gap}/tokens" in frame.columns else frame
    return bucket_label(words.name, str(known[words.name][0])) if len(known) == 1 else None


def _say_alone(alone: dict[str, str]) -> None:
    st.caption("  \n".join(only_value_words(WORDS[name], label(value, 60)) for name, value in alone.items()))


def _say_absent(absent: dict[str, str]) -> None:
    reasons = (f"By {WORDS[name].title}: not available, {label(reason, 300)}." for name, reason in absent.items())
    st.caption("  \n".join(reasons))
