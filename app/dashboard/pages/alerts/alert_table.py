"""The table of alerts, a row per happening: open ones first, the worst first. A click in a row opens it below the table."""

from collections.abc import Sequence

import streamlit as st

from ratioscope.ingest.analysis.acknowledgements import Acknowledgements, is_acknowledged
from ratioscope.ingest.analysis.events_and_alerts import until
from ratioscope.metrics.grading.alerts import Alert

from ....browser.listener import is_narrow
from ....pages.scope import Scope
from ....pages.view import View
from ....presentation.alert_words import rows_of
from ....presentation.escape import streamlit_label as label
from ....presentation.theme import MARKS
from ...model.acknowledgement import change
from ...model.live import deselect, selectable, show_newest
from ...panels.charts import table
from ...panels.clicked_rows import CELLS, clicked_row
from ...panels.links import go_to

AROUND = 5
"""Number of steps before and after an alert in a link to it."""
MOST_AT_ONCE, TALLEST = 11, 430
"""Rows of a table that is shown whole, and the height in pixels of a longer one."""
COLUMNS = ("severity", "state", "alert", "steps", "out of bounds", "peak step", "worst reading")
"""The shown ones, which fit into a window of 1440 pixels. The clicked alert has its gaps and the name of its signal."""
NARROW = ("severity", "alert", "steps", "state", *COLUMNS[4:])
"""The same where a narrow window has room for two: open alerts come first, so that the state can wait."""
FAILED = "_not_acknowledged"


def alert_table(scope: Scope, ordered: Sequence[Alert], known: Acknowledgements) -> None:
    """The table, and below it the clicked alert with its meaning and its links."""
    st.caption(
        "Open alerts first, the worst first, then the newest. Click a row to see what it means, what to try, and its steps."
    )
    chosen = table(
        rows_of(ordered, known),
        "Alerts, the open ones first",
        key=selectable("alert_rows", [(alert.signal.name, alert.gap, alert.first_step) for alert in ordered]),
        on_select="rerun",
        selection_mode=CELLS,
        height="content" if len(ordered) <= MOST_AT_ONCE else TALLEST,
        column_order=NARROW if is_narrow() else COLUMNS,
        column_config={
            "severity": st.column_config.TextColumn(width=72),
            "alert": st.column_config.TextColumn(width=315),
            "steps": st.column_config.TextColumn(width=80),
            "out of bounds": st.column_config.NumberColumn("steps out", help="graded steps out of bounds", width=78),
            "peak step": st.column_config.NumberColumn(width=78),
            "worst reading": st.column_config.TextColumn(width=570),
        },
    )
    at = clicked_row(chosen, len(ordered))
    if at is not None:
        _detail(scope, ordered[at], known)


def _detail(scope: Scope, alert: Alert, known: Acknowledgements) -> None:
    grade = f"{MARKS[alert.severity.label]} {alert.severity.label}"
    with st.container(border=True, key="alert_detail"):
        st.markdown(
            f"**{grade} · {label(alert.signal.title)}** :gray[{label(alert.signal.name)}], {alert.gaps}, {until(alert)}"
        )
        st.caption(f"{label(alert.reading, 300)} at step {alert.peak_step}. {label(alert.signal.meaning)}")
        st.markdown(f"**Try:** {label(alert.signal.remedy)}")
        with st.container(horizontal=True, key="alert_links"):
            for name, title, step in (
                ("to_peak", "sequences at the peak", alert.peak_step),
                ("to_first", "sequences at the first step", alert.first_step),
            ):
                st.button(title, key=name, on_click=go_to, args=("sequences",), kwargs={"step": step})
            st.button("show on Overview", key="to_overview", on_click=_to_overview, args=(alert,))
            _acknowledgement(scope.view, alert, known)
            st.button("close", key="close_alert", icon=":material/close:", type="tertiary", on_click=deselect)


def _acknowledgement(view: View, alert: Alert, known: Acknowledgements) -> None:
    holds = is_acknowledged(alert, known)
    st.button(
        "undo the acknowledgement" if holds else "acknowledge",
        key="acknowledge",
        on_click=_acknowledge,
        args=(view, alert, not holds),
        help="The run keeps it, so everybody sees it. The tab no longer counts the alert, unless it becomes worse.",
    )
    if failed := st.session_state.pop(FAILED, ""):
        st.caption(f":red[:material/error: Not acknowledged: {label(failed, 400)}]")


def _acknowledge(view: View, alert: Alert, holds: bool) -> None:
    st.session_state[FAILED] = change(view, alert, holds=holds)
    show_newest()


def _to_overview(alert: Alert) -> None:
    """Goes to the Overview at the steps of the alert. This page has the same widget for steps, so it is set first."""
    st.session_state["steps"] = f"{max(0, alert.first_step - AROUND)}:{alert.last_step + AROUND}"
    go_to("overview")
