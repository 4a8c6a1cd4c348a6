"""The Sequences page: the sequences of one step, worst first, with a line for each, filters, and the list of prompts."""

import math

import polars as pl
import streamlit as st

from ratioscope.ingest.analysis.part_rows import part_sequences
from ratioscope.ingest.analysis.sequence_lines import POINTS, log_ratio_lines, text_previews, tokens_within
from ratioscope.metrics.grading.coverage import NOT_MEASURED

from ....browser.listener import is_narrow
from ....pages.scope import Scope
from ....pages.view import View, asked_gap
from ....presentation.digits import count, digits, percent
from ....presentation.escape import streamlit_label as label
from ....presentation.metric_places import in_words, sequence_measures_at, title_of
from ....presentation.number_columns import number_format
from ....presentation.slice_names import part_words
from ....presentation.theme import MARKS
from ...panels.charts import number_column, table, worded
from ...panels.choices import choice, dropdown
from ...panels.clicked_rows import CELLS, clicked_row
from ...panels.controls import nearest, severity_of, step_picker, steps_with_rows
from ...panels.layout import control_row
from ...panels.links import go_to
from ...panels.read_steps import read_here
from ...panels.step_buttons import show_step, step_buttons
from .filters import KEY, Filters, filter_widgets
from .prompt_groups import group_picker, has_groups, say_group, show_groups

FIRST = ("lag", "reward", "group_id")
"""Facts that stand left of the gap's metrics, because a table on half a screen is cut off on the right."""
OWN = ("matching", "tokens_within", "first_within")
"""Columns of a filter: its tokens in a sequence, and the first of them."""
FACTS = ("minibatch", "reward", "advantage", "lag", "group_id", "replica", "rank", "finish_reason")
NUMBERS = (*sequence_measures_at("column"), *sequence_measures_at("fault"), "advantage", "reward", "lag", *OWN)
WHOLE = ("worst_position", "tokens", *sequence_measures_at("fault"), "lag", *OWN)
SHOWN = 500
HERE = "▸"
"""The mark of the row that the keys have reached."""
NO_ROWS = "not available, because no token rows of this step were kept; the other pages show its statistics."


def render(scope: Scope) -> None:
    view, gap = scope.view, scope.gap
    with control_row("step"):
        step = step_picker(view, gap)
        step_buttons(view, step)
        frame = rows_of(view, step, gap)
        if frame.is_empty():
            return
        whole = with_weight(frame, gap)
        order = dropdown("worst first by", _orders(whole, gap) or ["tokens"], "order", width=340, shown=in_words)
        group = group_picker(frame) if has_groups(frame) else None
        prompts = has_groups(frame) and group is None
        by_prompt = prompts and choice("list", ("sequences", "prompts"), "list") == "prompts"
    with st.expander("which sequences", key="sequence_filters"):
        filters = filter_widgets(frame, _columns_offered(whole, gap))
    matching = filters.of(whole if group is None else whole.filter(group_id=group), gap)
    matching = _having(view, _part(scope, matching, step), step, gap, filters.within)
    _say_step(view, step, gap, frame, matching, filters, by_prompt=by_prompt)
    if group is not None and len(matching):
        say_group(matching, whole.filter(group_id=group)["sequence_id"].n_unique())
    if by_prompt and matching["group_id"].count():
        show_groups(matching, gap)
    elif len(matching):
        _show(view, worst_first(matching, gap, order).head(SHOWN), step, gap, order)


def rows_of(view: View, step: int, gap: str) -> pl.DataFrame:
    """The sequences of a step at which the gap is known. If there are none, the reason is on the page."""
    frame = view.sequences(step, gap)
    if frame.is_empty():
        why = f"not available, because {view.run.no_tokens}" if view.run.no_tokens else NO_ROWS
        st.caption(f"step {step}: {why}")
        if (there := nearest(steps_with_rows(view, gap), step)) != step and not view.run.no_tokens:
            show_step(f"show step {there}, the nearest with token rows", "step_with_rows", there)
        return frame
    if not read_here(view, gap, step):
        return frame.clear()
    if not asked_gap(gap):
        return frame
    worst = f"{gap}/{sequence_measures_at('order')[0]}"
    return frame.drop_nulls(worst) if worst in frame.columns else frame.clear()


def worst_first(frame: pl.DataFrame, gap: str, order: str) -> pl.DataFrame:
    """The rows by falling size of the chosen column. Equal ones are ordered by id, so that the order never changes by itself."""
    column = order if order in frame.columns else f"{gap}/{order}"
    size = -pl.col(column) if order == "reward" else pl.col(column).cast(pl.Float64).abs()
    return frame.sort(size, "sequence_id", descending=[True, False], nulls_last=True)


def with_weight(frame: pl.DataFrame, gap: str) -> pl.DataFrame:
    """The rows with `<gap>/weight`, exp(S) of the whole sequence."""
    total = f"{gap}/log_ratio_sum"
    return frame.with_columns(pl.col(total).exp().alias(f"{gap}/weight")) if total in frame.columns else frame


def _having(view: View, frame: pl.DataFrame, step: int, gap: str, within: tuple[float, float] | None) -> pl.DataFrame:
    """The rows with tokens in the range of log-ratios, and the number of these tokens."""
    if within is None:
        return frame
    return frame.join(view.of(tokens_within, step, gap, *within), on=KEY, how="inner", nulls_equal=True)


def _part(scope: Scope, frame: pl.DataFrame, step: int) -> pl.DataFrame:
    """The rows with a token of the filter, and the number of these tokens."""
    if scope.only is None:
        return frame
    st.caption(
        f":material/filter_alt: sequences with a token of {label(part_words(scope.only), 200)}; matching: their number"
    )
    return with_part_only(scope, frame, step)


def with_part_only(scope: Scope, frame: pl.DataFrame, step: int) -> pl.DataFrame:
    """The rows with a token of the filter, and the number of these tokens; all rows without a filter."""
    if scope.only is None:
        return frame
    return frame.join(scope.view.of(part_sequences, step, scope.gap, scope.only), on=KEY, how="inner", nulls_equal=True)


def _orders(frame: pl.DataFrame, gap: str) -> list[str]:
    return [name for name in sequence_measures_at("order") if name in frame.columns or f"{gap}/{name}" in frame.columns]


def _columns_offered(frame: pl.DataFrame, gap: str) -> list[str]:
    """The numeric columns that a filter can bound."""
    return [*_orders(frame, gap), *(name for name in ("advantage", "lag") if name in frame.columns)]


def _show(view: View, ranked: pl.DataFrame, step: int, gap: str, order: str) -> None:
    with_lines = ranked
    for beside in (view.of(log_ratio_lines, step, gap), view.of(text_previews, step)):
        with_lines = with_lines.join(beside, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    st.session_state["_ranked"] = ranked.select(KEY).rows()
    here = _walk(len(ranked))
    shown, reach = _drawable(with_lines)
    columns = _columns(shown, gap).with_columns(
        pl.Series("", [HERE if row == here else "" for row in range(len(shown))])
    )
    first = [order] if is_narrow() and order in columns.columns else []
    first += [name for name in ("text", "line") if name in columns.columns]
    table(
        columns.select("", "sequence_id", *first, pl.exclude("", "sequence_id", *first)),
        f"Sequences of step {step}, worst first by {title_of(order)}",
        cut=("sequence_id", "group_id", "replica", "finish_reason"),
        key="sequence_rows",
        on_select=_sequence_chosen,
        selection_mode=CELLS,
        height="content" if len(ranked) < 20 else 720,
        column_config={
            **worded(columns.columns),
            **_heads(columns),
            "": st.column_config.TextColumn("", width=28),
            "text": st.column_config.TextColumn("begins with", width=230),
            "line": _line_column(reach),
        },
    )


def _heads(columns: pl.DataFrame) -> dict[str, object]:
    """The columns of numbers by their names."""
    return {
        name: number_column(title_of(name), name, None if name in WHOLE else number_format(columns[name]))
        for name in NUMBERS
        if name in columns.columns
    }


def _drawable(frame: pl.DataFrame) -> tuple[pl.DataFrame, float]:
    """The rows with infinite points of their lines moved to the edge of the axis, and the end of the axis."""
    points = frame["line"].list.explode() if len(frame) else pl.Series([], dtype=pl.Float64)
    largest = points.filter(points.is_finite()).abs().max() if len(points) else None
    reach = float(largest) if isinstance(largest, float) and largest > 0 else 1.0
    inside = pl.element().fill_null(0.0).clip(-reach, reach)
    return frame.with_columns(pl.col("line").fill_null([]).list.eval(inside)), reach


def _line_column(reach: float) -> object:
    return st.column_config.LineChartColumn(
        "log-ratio along it",
        y_min=-reach,
        y_max=reach,
        width=130,
        help=f"The log-ratio along the sequence, from −{digits(reach)} to {digits(reach)} nats in every row. Each of up to "
        f"{POINTS} points shows the token with the largest |log-ratio| of its part. Masked tokens are 0; infinite values lie at "
        "the edge.",
    )


def _walk(rows: int) -> int:
    """The row that the keys have reached, and the buttons that move it."""
    here = min(int(st.session_state.get("_here", 0)), rows - 1)
    st.session_state["_here"] = here
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("open", key="open", shortcut="enter", on_click=_open, args=(here,))
        st.button("up", key="up", shortcut="k", on_click=_move, args=(here - 1,), disabled=here == 0)
        st.button("down", key="down", shortcut="j", on_click=_move, args=(here + 1,), disabled=here == rows - 1)
        st.caption(
            f"row {here + 1:,} of {rows:,} {HERE} · keys: j / k move, Enter opens, \\[ \\] other steps", width="content"
        )
    return here


def _move(row: int) -> None:
    st.session_state["_here"] = row


def _open(row: int) -> None:
    sequence_id, minibatch = st.session_state["_ranked"][row]
    go_to("tokens", sequence=sequence_id, **({} if minibatch is None else {"minibatch": minibatch}))


def _columns(ranked: pl.DataFrame, gap: str) -> pl.DataFrame:
    """The id, the gap's metrics and the recorded facts; counts of bad tokens only if there are any."""
    measured = [f"{gap}/{name}" for name in sequence_measures_at("column")]
    faults = [f"{gap}/{name}" for name in sequence_measures_at("fault")]
    measured += [name for name in faults if (_known(ranked, name) > 0).any()]
    named = {name: name.partition("/")[2] for name in measured if name in ranked.columns}
    own = [name for name in OWN if name in ranked.columns]
    facts = [name for name in FACTS if name in ranked.columns and ranked[name].null_count() < len(ranked)]
    first = [name for name in FIRST if name in facts]
    later = [name for name in facts if name not in first]
    text = ["text"] if ranked["text"].null_count() < len(ranked) else []
    return ranked.select("sequence_id", *text, "line", *own, *first, *named, *later).rename(named)


def _known(ranked: pl.DataFrame, name: str) -> pl.Series:
    return ranked[name] if name in ranked.columns else pl.Series([0.0])


def _say_step(
    view: View, step: int, gap: str, frame: pl.DataFrame, matching: pl.DataFrame, filters: Filters, *, by_prompt: bool
) -> None:
    graded = severity_of(view, step)
    grade = (
        f"{MARKS[str(graded['severity'])]} {graded['severity']} · {label(str(graded['reading']), 200)}"
        if graded
        else NOT_MEASURED
    )
    shown = min(len(matching), SHOWN)
    size = count(len(frame), "row") if shown == len(frame) else f"{shown:,} of {count(len(frame), 'row')}"
    worst = f", the worst of {len(matching):,} that match" if len(matching) > SHOWN else ""
    hint = "on record" if by_prompt else f"on record{worst}. Click a row to read its tokens."
    unread = len(view.sequences(step, gap)) - len(frame)
    hint += (
        f" {count(unread, 'row')} without this reading {'is' if unread == 1 else 'are'} not shown." if unread else ""
    )
    st.caption(f"step {step}: {grade} · {size} {hint}")
    words = [label(word, 120) for word in filters.words]
    if words:
        st.caption(f":material/filter_alt: {' · '.join(words)}")
    if sentence := _kept(view, step, gap, frame):
        st.caption(f":material/info: {sentence}")


def _kept(view: View, step: int, gap: str, frame: pl.DataFrame) -> str:
    """A sentence on the budget's choice of rows for this step; empty if all were kept."""
    chances = frame.unique("sequence_id")["inclusion_probability"].fill_null(1.0)
    drawn = chances.filter((chances > 0) & (chances < 1)).to_numpy()
    if not len(drawn):
        return ""
    if asked_gap(gap):
        read = f"{count(len(chances), 'sequence')} of this step were read: some for certain, the others by chance"
        return f"{read}. Estimates from them weigh each by the inverse of its chance."
    metrics = view.metrics(("step",), None, gap).filter(step=step)
    name = f"{gap}/sequences"
    offered = metrics[name][0] if name in metrics.columns and len(metrics) else None
    of = f" of {count(offered, 'sequence')}" if offered is not None and math.isfinite(offered) else ""
    low, high = percent(float(drawn.min())), percent(float(drawn.max()))
    share = low if low == high else f"{low} to {high}"
    return (
        f"The budget kept {count(len(chances))}{of}: the worst ones always, and a {share} sample of the others. Estimates from "
        "these rows weigh each sequence by the inverse of its chance to be kept. The statistics on other pages cover all of them."
    )


def _sequence_chosen() -> None:
    row = clicked_row(st.session_state["sequence_rows"], len(st.session_state["_ranked"]))
    if row is not None:
        _open(row)
