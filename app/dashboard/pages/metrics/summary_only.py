"""What a page says of a run, or a step, of which statistics are on record and no token rows."""

import streamlit as st

from ...model.view import View

RECORD = (
    "Pages about sequences and tokens need token rows. `ratioscope.attach(trainer, run)` and `Collector(run)` record them "
    "unless the budget is 0. A run that was imported from logged scalars has none."
)


def is_summary_only(view: View) -> bool:
    """Whether no token row of the run is on record."""
    return view.run.size.rows == 0


def say_summary_only(view: View) -> bool:
    """Says that the run holds statistics alone, what still works and what does not; whether it does."""
    if not is_summary_only(view):
        return False
    st.caption(
        ":material/info: This run has statistics only. Every number here is exact and covers all tokens, but sequences and "
        f"tokens cannot be shown. {RECORD}"
    )
    return True
