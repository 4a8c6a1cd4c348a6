"""One line with the answer of the diagnosis, for pages on symptoms."""

import streamlit as st

from ...pages.cause_line import cause_line as lines
from ...pages.view import View
from ...presentation.escape import streamlit_label as label

READABLE = 1100
"""The widest line of a sentence, in pixels."""


def cause_line(view: View) -> None:
    """One line with the answer; nothing while there is none."""
    for line in lines(view):
        st.markdown(f"**{label(line.head)}** {label(line.text, 600)}")
