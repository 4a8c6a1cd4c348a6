"""What a page says of a run, or a step, of which statistics are on record and no token rows."""

import streamlit as st

from ...model.view import View

RECORD = (
    "Whatever is told by sequence or by token needs rows: `ratioscope.attach(trainer, run)` and `Collector(run)` keep them "
    "unless a budget of 0 says otherwise; a run that was imported from logged scalars never had any."
)


def is_summary_only(view: View) -> bool:
    """Whether no token row of the run is on record."""
    return view.run.size.rows == 0


def say_summary_only(view: View) -> bool:
    """Says that the run holds statistics alone, what still works and what does not; whether it does."""
    if not is_summary_only(view):
        return False
    st.caption(
        ":material/info: This run holds statistics only: every number here is exact and over all tokens, but no sequence and "
        f"no token can be shown. {RECORD}"
    )
    return True
