"""Clicks that fail: the page stays, and the reader is told why."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import streamlit as st

from ...presentation.escape import streamlit_label as label

Given = ParamSpec("Given")
FAILED = "_failed"
"""Place of the words on a click that failed, until the page is drawn."""


def calmly(act: Callable[Given, None]) -> Callable[Given, None]:
    """The callback of a click; an error in it is told beside the page, which stays.

    Streamlit writes such an error over the page, and the browser then draws nothing more: 'setIn' cannot be called.
    """

    @wraps(act)
    def calm(*args: Given.args, **kwargs: Given.kwargs) -> None:
        try:
            act(*args, **kwargs)
        except Exception as error:  # of any kind: the page is as it was, and the next click may succeed
            logging.getLogger(__name__).exception("a click failed")
            st.session_state[FAILED] = label(f"This click failed: {error}. The server's output has more.", 600)

    return calm


def say_failed() -> None:
    """Tells of the click that failed since the page was drawn last, if any."""
    if words := st.session_state.pop(FAILED, ""):
        st.toast(words, icon=":material/error:")
