"""Navigation in a sequence: the chosen token, the next worse one, and the window of text."""

import numpy as np
import polars as pl
import streamlit as st

from ratioscope.arrays import Floats

from ....presentation.digits import count
from ....presentation.escape import streamlit_label as label
from ...panels.controls import asked

WINDOW = 500
"""Number of tokens whose text is shown; the strip chart shows all. Twice as many take twice as long to draw."""
LONGEST_TEXT = 40
"""Characters of a token's text beside its number. The text itself shows all of them."""
BEFORE = 125
"""Number of tokens shown before the one that the reader jumped to."""


def worst_order(values: Floats, tokens: pl.DataFrame, by: str) -> list[int]:
    """Rows of the unmasked tokens by falling size of their value (weights: of their logarithm). Unknown values are left out."""
    if by == "weight":
        with np.errstate(divide="ignore"):
            values = np.log(values)
    sizes = np.abs(values)
    sampled = tokens["mask"].fill_null(True).to_numpy() if "mask" in tokens.columns else np.ones(len(tokens), np.bool_)
    known = np.flatnonzero(~np.isnan(sizes) & sampled)
    return [int(row) for row in known[np.argsort(-sizes[known], kind="stable")]]


def token_picker(tokens: pl.DataFrame, order: list[int]) -> int | None:
    """The row of the chosen token; None without one. The buttons go through `order`, the worst first."""
    last = len(tokens) - 1
    _forget_unless("at", 0, last)
    at = st.number_input(
        "token", 0, max(last, 0), value=None, key="at", bind="query-params", width=150, on_change=_follow, args=(len(tokens),),
        placeholder="token", label_visibility="collapsed",
    )  # fmt: skip
    rank = order.index(at) if at in order else -1
    following = order[rank + 1] if rank + 1 < len(order) else None
    previous = order[rank - 1] if rank > 0 else None
    word = "worst token" if rank < 0 else "next worse"
    _jump(word, "worse", "n", following, len(tokens))
    _jump("back", "less_bad", "shift+n", previous, len(tokens))
    if rank >= 0:
        st.caption(
            f"{_ordinal(rank + 1)} of {count(len(order), 'token')} by size{_text_of(tokens, at)}", width="content"
        )
    elif order:
        st.caption(f"the worst is token {order[0]:,}{_text_of(tokens, order[0])}", width="content")
    return None if at is None else int(at)


def _text_of(tokens: pl.DataFrame, row: int | None) -> str:
    """The text of the token, to stand behind its number; empty if no text is on record."""
    text = tokens["token_text"][row] if "token_text" in tokens.columns and row is not None else None
    return "" if text is None else label(f": “{text}”", LONGEST_TEXT)


def _jump(word: str, key: str, shortcut: str, row: int | None, rows: int) -> None:
    st.button(word, key=key, shortcut=shortcut, on_click=go_to_token, args=(row, rows), disabled=row is None)


def text_window(tokens: pl.DataFrame, at: int | None) -> tuple[int, int]:
    """(first row, rows) of the part of a long sequence whose text is shown."""
    if len(tokens) <= WINDOW:
        return 0, len(tokens)
    if at is not None and asked("from") is None:
        _follow(len(tokens))
    _forget_unless("from", 0, len(tokens) - WINDOW)
    first = st.slider(
        f"text of {WINDOW:,} tokens from position", 0, len(tokens) - WINDOW, key="from", bind="query-params"
    )
    return int(first), WINDOW


def go_to_token(row: int, rows: int) -> None:
    """Chooses the token and shows the text around it."""
    st.session_state["at"] = row
    _follow(rows)


def forget_token() -> None:
    """Clears the chosen token, because another sequence has other tokens."""
    st.session_state["at"] = None
    st.session_state["from"] = 0


def keep_token_of(sequence: str) -> None:
    """Clears the chosen token if it was chosen in another sequence, and not by a link to this one."""
    chosen = (sequence, asked("at"))
    before = st.session_state.get("_token_of", chosen)
    if before[0] != sequence and str(before[1]) == str(chosen[1]):
        forget_token()
        chosen = (sequence, None)
    st.session_state["_token_of"] = chosen


def _follow(rows: int) -> None:
    at = asked("at")
    if at is not None and rows > WINDOW:
        st.session_state["from"] = int(np.clip(int(at) - BEFORE, 0, rows - WINDOW))


def _forget_unless(key: str, low: int, high: int) -> None:
    """Clears a choice that was made in another sequence and does not exist in this one."""
    choice = asked(key)
    if choice is None:
        return
    try:
        known = low <= int(choice) <= high
    except ValueError:
        known = False
    if not known:
        st.session_state[key] = None if key == "at" else low


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
