"""The title and the icon of the browser's tab: open alerts, the severity, the state and the name of the run."""

import streamlit as st

from ...pages.alerts import open_alerts
from ...pages.view import View
from ...presentation.run_state import ALARMS, Life
from ...presentation.theme import LIGHT, MARKS
from ..model.looks import state_seen

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">{}<path d="M1 10 5 6l3 3 7-7" fill="none" '
    'stroke="{}" stroke-width="2"/><path d="M1 14h14" stroke="{}" stroke-width="2"/></svg>'
)
PLAIN = ICON.format("", "#1f66b0", "#c2540a")


def name_tab(view: View | None = None) -> None:
    """Names the tab after a run, its verdict and its state; without a run after ratioscope.

    Call it again when the page is drawn: the verdict must not hold the page up.
    """
    if view is None:
        st.set_page_config(page_title="ratioscope", page_icon=PLAIN, layout="wide")
        return
    verdict = view.judged_verdict().word if view.run.steps and view.run.gaps else ""
    title, severity = tab_title(view.name, verdict, state_seen(view.path).life, open_alerts(view) if verdict else 0)
    st.set_page_config(page_title=title, page_icon=_icon(severity) if severity else PLAIN)


def tab_title(run: str, verdict: str, life: Life, waiting: int) -> tuple[str, str]:
    """The title, and the severity that colours the icon. A dead or silent run is never told by a healthy verdict alone.

    verdict: its word; empty for a run without a gap. waiting: number of open alerts.

    >>> tab_title("r", "healthy", "live", 0), tab_title("r", "healthy", "dead", 0)
    (('● healthy · r · ratioscope', 'healthy'), ('■ dead · r · ratioscope', 'act'))
    >>> tab_title("r", "act", "silent", 2), tab_title("r", "", "live", 0)
    (('(2) ■ silent · act · r · ratioscope', 'act'), ('r · ratioscope', ''))
    """
    alarm = ALARMS.get(life, "")
    words = [life, *([] if verdict == "healthy" else [verdict])] if alarm else [verdict]
    severity = verdict if verdict == "act" or not alarm else alarm
    first = (f"({waiting})" if waiting else "", MARKS.get(severity, ""))
    return " ".join(part for part in (*first, " · ".join(filter(None, (*words, run, "ratioscope")))) if part), severity


def _icon(word: str) -> str:
    ground = f'<rect width="16" height="16" rx="3" fill="{LIGHT.severity.get(word, LIGHT.muted)}"/>'
    return ICON.format(ground, "#ffffff", "#ffffff")
