"""The drawer for a note on a step. The run keeps the note, so every chart over steps and the report show it to everybody."""

import streamlit as st

from ratioscope.collectors.writing.remark import write_remark
from ratioscope.errors import SourceError
from ratioscope.layout import NOTE

from ...pages.view import View
from ...presentation.escape import streamlit_label as label
from ..model.live import show_newest

LONGEST = 2000
LAST = (1 << 53) - 1
"""The largest step that a field of a page can hold. A run with larger ones takes notes by `ratioscope note` only."""
SAID = "_note_said"


def note_button(view: View) -> None:
    """A drawer with a field for the words, one for the step, and a button that writes them into the run."""
    newest = max(view.run.steps, default=0)
    if newest > LAST:
        return
    with st.popover("", icon=":material/edit_note:", help="note on a step", type="tertiary", key="note"):
        st.caption("The run keeps a note. Every chart over steps marks it, and the report lists it.")
        st.text_input("note", key="note_text", max_chars=LONGEST, placeholder="what happened, e.g. restarted node 7")
        st.number_input("at step", min_value=0, max_value=LAST, value=newest, key="note_step", width=160)
        st.button("keep in the run", key="note_keep", on_click=_keep, args=(view.path,))
        if said := st.session_state.pop(SAID, ""):
            st.caption(label(said, 500))


def _keep(path: str) -> None:
    words, step = " ".join(str(st.session_state["note_text"]).split()), int(st.session_state["note_step"])
    if not words:
        st.session_state[SAID] = "A note needs words."
        return
    try:
        write_remark(path, NOTE, step, words)
    except SourceError as error:
        st.session_state[SAID] = f"The note was not kept: {error}"
        return
    st.session_state[SAID] = f"Noted at step {step}."
    st.session_state["note_text"] = ""
    show_newest()
