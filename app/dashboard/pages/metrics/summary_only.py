"""Texts for a run or step that has statistics but no token rows."""

import streamlit as st

from ....pages.view import View
from ....presentation.escape import markdown

RECORD = (
    "Pages about sequences and tokens need token rows. `ratioscope.attach(trainer, run)` and `Collector(run)` record them "
    "unless the budget is 0."
)


def is_summary_only(view: View) -> bool:
    """True if the run has no token rows."""
    return view.run.size.rows == 0


def say_summary_only(view: View) -> bool:
    """Prints a note if the run has statistics only, and returns True then."""
    if not is_summary_only(view):
        return False
    if reason := view.run.no_tokens:
        note = next((note for note in view.run.notes if note.startswith(reason)), reason)
        st.caption(f":material/info: Sequences and tokens are not available, because {markdown(note)}.")
        return True
    st.caption(
        ":material/info: This run has statistics only. Every number here is exact and covers all tokens, but sequences and "
        f"tokens cannot be shown. {RECORD}"
    )
    return True
