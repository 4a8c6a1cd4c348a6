"""One sequence, token by token: its text tinted by the log-ratio, and under it every recorded curve on the same axis."""

from collections.abc import Sequence

import polars as pl
import streamlit as st

from ..controls import asked, step_picker
from ..digits import count, digits
from ..escape import streamlit_label as label
from ..escape import visible
from ..figures.strip_chart import token_strip
from ..figures.tinted_text import token_text
from ..view import View
from .drawn import appearance, draw, numbers_behind
from .sequences import FACTS, NO_ROWS, worst_first

WINDOW = 2000
"""Tokens of text shown at once; the strip chart shows all of them."""
OFFERED = 300
"""Sequences in the list, the worst of the step; any other can be asked for in the URL."""


def render(view: View, gap: str) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        step = step_picker(view)
        frame = view.sequences(step)
        if frame.is_empty():
            st.caption(f"step {step}: {NO_ROWS}")
            return
        order = "max_abs_log_ratio" if f"{gap}/max_abs_log_ratio" in frame.columns else "tokens"
        ranked = worst_first(frame, gap, order)
        sequence_id = _sequence_picker(ranked["sequence_id"].unique(maintain_order=True).to_list())
        rows = frame.filter(pl.col("sequence_id") == sequence_id)
        minibatch = _minibatch_picker(rows)
    tokens = view.tokens(step, sequence_id, minibatch)
    chosen = rows.filter(pl.col("minibatch").eq_missing(minibatch)) if minibatch is not None else rows
    _facts((chosen if len(chosen) else rows).row(0, named=True), tokens)
    _show(tokens, gap)
    numbers_behind(tokens, "token_numbers")


def _sequence_picker(ids: Sequence[str]) -> str:
    """The chosen sequence: the worst unless chosen. Previous and next go through the list in that order."""
    wanted = asked("sequence")
    offered = list(ids[:OFFERED])
    if wanted not in ids:
        st.session_state["sequence"] = ids[0]
    elif wanted not in offered:
        offered.append(str(wanted))
    chosen = st.selectbox(
        "sequence, worst first",
        offered,
        index=None,
        key="sequence",
        bind="query-params",
        width=360,
        format_func=lambda sequence_id: visible(sequence_id, 60),
    )
    sequence_id = chosen or ids[0]
    at = offered.index(sequence_id)
    before, after = offered[max(0, at - 1)], offered[min(len(offered) - 1, at + 1)]
    st.button("previous", shortcut="k", on_click=_choose, args=(before,), disabled=before == sequence_id)
    st.button("next", shortcut="j", on_click=_choose, args=(after,), disabled=after == sequence_id)
    if wanted not in ids and wanted is not None:
        st.caption(f"{label(str(wanted), 40)} is not of this step")
    return sequence_id


def _choose(sequence_id: str) -> None:
    st.session_state["sequence"] = sequence_id


def _minibatch_picker(rows: pl.DataFrame) -> int | None:
    """The minibatch whose current policy is shown, where the sequence went through several."""
    found = rows["minibatch"].drop_nulls().unique().sort().to_list() if "minibatch" in rows.columns else []
    if len(found) < 2:
        return found[0] if found else None
    chosen = st.segmented_control(
        "minibatch", found, default=found[0], required=True, key="minibatch", bind="query-params"
    )
    return int(chosen if chosen in found else found[0])


def _facts(row: dict[str, object], tokens: pl.DataFrame) -> None:
    """What is known of the sequence as a whole, in one line; its prompt in a drawer."""
    facts = [count(len(tokens), "token")]
    for name in FACTS:
        value = row.get(name)
        if value is not None:
            shown = digits(value) if isinstance(value, float) else label(str(value), 60)
            facts.append(f"{name.replace('_', ' ')} {shown}")
    st.caption(" · ".join(facts))
    prompt = row.get("prompt_text")
    if isinstance(prompt, str):
        with st.expander("prompt"):
            st.code(prompt, language=None, wrap_lines=True)


def _show(tokens: pl.DataFrame, gap: str) -> None:
    theme = appearance()
    if gap not in tokens.columns or tokens[gap].null_count() == len(tokens):
        st.caption(f"This sequence has no {gap}: not both of its policies were recorded. The text is not tinted.")
    st.html(token_text(_window(tokens), gap, theme=theme))
    draw(
        token_strip(tokens, gap, theme=theme),
        "strip",
        f"Log-ratio, log-probs and entropy of {count(len(tokens), 'token')}",
    )


def _window(tokens: pl.DataFrame) -> pl.DataFrame:
    """The part of a long sequence whose text is shown."""
    if len(tokens) <= WINDOW:
        return tokens
    first = st.slider(
        f"text of {WINDOW:,} tokens from position",
        0,
        len(tokens) - WINDOW,
        step=WINDOW // 4,
        key="from",
        bind="query-params",
    )
    return tokens.slice(first, WINDOW)
