"""The title and the icon of the browser's tab: open alerts, the severity and the name of the run."""

import streamlit as st

from ...presentation.theme import LIGHT, MARKS
from ..model.acknowledgement import open_alerts
from ..model.diagnoses import judged_verdict
from ..model.view import View

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">{}<path d="M1 10 5 6l3 3 7-7" fill="none" '
    'stroke="{}" stroke-width="2"/><path d="M1 14h14" stroke="{}" stroke-width="2"/></svg>'
)
PLAIN = ICON.format("", "#1f66b0", "#c2540a")


def name_tab(view: View | None = None) -> None:
    """Names the tab after a run and its verdict; without a run after ratioscope.

    Call it again when the page is drawn: the verdict must not hold the page up.
    """
    if view is None or not (view.run.steps and view.run.gaps):
        st.set_page_config(page_title="ratioscope", page_icon=PLAIN, layout="wide")
        return
    word = judged_verdict(view).word
    waiting = open_alerts(view)
    number = f"({waiting}) " if waiting else ""
    st.set_page_config(page_title=f"{number}{MARKS[word]} {word} · {view.run.name} · ratioscope", page_icon=_icon(word))


def _icon(word: str) -> str:
    ground = f'<rect width="16" height="16" rx="3" fill="{LIGHT.severity.get(word, LIGHT.muted)}"/>'
    return ICON.format(ground, "#ffffff", "#ffffff")
