"""The sequences of one step, worst first."""

import polars as pl
import streamlit as st

from ..controls import severity_of, step_picker
from ..digits import count
from ..escape import streamlit_label as label
from ..theme import MARKS
from ..view import View
from .drawn import table
from .links import go_to

ORDERS = ("max_abs_log_ratio", "kl_k3", "log_ratio_sum", "log_ratio_mean", "tokens", "reward")
"""What sequences can be sorted by; sums and means by their size, either sign."""
MEASURED = (
    "max_abs_log_ratio",
    "worst_position",
    "kl_k3",
    "abs_log_ratio",
    "log_ratio_sum",
    "log_ratio_mean",
    "tokens",
)
COUNTED = ("non_finite", "zero_weight_tokens")
FACTS = ("minibatch", "reward", "advantage", "lag", "group_id", "replica", "rank", "finish_reason")
DECIMALS = {
    name: st.column_config.NumberColumn(format="%.4g")
    for name in ("max_abs_log_ratio", "kl_k3", "abs_log_ratio", "log_ratio_sum", "log_ratio_mean", "advantage")
}
SHOWN = 500
NO_ROWS = "no token rows of this step were kept; its statistics are on the other pages."


def render(view: View, gap: str) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        step = step_picker(view)
        frame = view.sequences(step)
        orders = _orders(frame, gap)
        order = st.selectbox("worst first by", orders, key="order", bind="query-params", width=240)
    _say_step(view, step, frame)
    if frame.is_empty():
        return
    ranked = worst_first(frame, gap, order or "tokens").head(SHOWN)
    st.session_state["_ranked"] = ranked.select("sequence_id", "minibatch").rows()
    table(
        _columns(ranked, gap),
        f"Sequences of step {step}, worst first by {order}",
        key="sequence_rows",
        on_select=_sequence_chosen,
        selection_mode="single-row",
        height="content" if len(ranked) < 20 else 720,
        column_config=DECIMALS,
    )


def worst_first(frame: pl.DataFrame, gap: str, order: str) -> pl.DataFrame:
    """The rows by falling size of the chosen column; equal ones by id, so that the order never changes by itself."""
    column = order if order in frame.columns else f"{gap}/{order}"
    size = -pl.col(column) if order == "reward" else pl.col(column).cast(pl.Float64).abs()
    return frame.sort(size, "sequence_id", descending=[True, False], nulls_last=True)


def _orders(frame: pl.DataFrame, gap: str) -> list[str]:
    return [name for name in ORDERS if name in frame.columns or f"{gap}/{name}" in frame.columns]


def _columns(ranked: pl.DataFrame, gap: str) -> pl.DataFrame:
    """The id, what the gap measures, and the facts on record; counts of bad tokens only where there are any."""
    measured = [f"{gap}/{name}" for name in MEASURED]
    measured += [f"{gap}/{name}" for name in COUNTED if (_known(ranked, f"{gap}/{name}") > 0).any()]
    named = {name: name.partition("/")[2] for name in measured if name in ranked.columns}
    facts = [name for name in FACTS if name in ranked.columns and ranked[name].null_count() < len(ranked)]
    return ranked.select("sequence_id", *named, *facts).rename(named)


def _known(ranked: pl.DataFrame, name: str) -> pl.Series:
    return ranked[name] if name in ranked.columns else pl.Series([0.0])


def _say_step(view: View, step: int, frame: pl.DataFrame) -> None:
    graded = severity_of(view, step)
    grade = (
        f"{MARKS[str(graded['severity'])]} {graded['severity']} · {label(str(graded['reading']), 200)}"
        if graded
        else "not graded"
    )
    most = f" · showing the worst {SHOWN:,}" if len(frame) > SHOWN else ""
    rows = f"{count(len(frame), 'row')} on record{most}. Select a row to read its tokens."
    st.caption(f"step {step}: {grade} · {rows if len(frame) else NO_ROWS}")


def _sequence_chosen() -> None:
    rows = st.session_state["sequence_rows"].selection.rows
    if rows:
        sequence_id, minibatch = st.session_state["_ranked"][rows[0]]
        go_to("tokens", sequence=sequence_id, **({} if minibatch is None else {"minibatch": minibatch}))
