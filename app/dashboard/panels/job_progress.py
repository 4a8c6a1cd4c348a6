"""The progress of a background job, updated every second, with a button that cancels it."""

import streamlit as st

from ...presentation.digits import count
from ..model.view import jobs

EVERY = "1s"


@st.fragment(run_every=EVERY)
def job_at_work(name: str, doing: str, redrawn: int = 0) -> None:
    """The progress of the job of this name, redrawn every second. The rest of the page is redrawn when the job has ended.

    redrawn: number of updates after which the whole page is redrawn with results so far; 0: never.
    """
    job = jobs().of(name)
    if job is None or not job.progress.at_work:
        st.rerun()
    progress = job.progress
    looks = int(st.session_state.get("_job_looks", 0)) + 1
    st.session_state["_job_looks"] = looks
    words = "waiting for another job of this server" if progress.state == "waiting" else doing
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.progress(
            progress.done / max(1, progress.total), f"{words}: {progress.done:,} of {count(progress.total, 'step')}"
        )
        st.button("cancel", key="cancel_job", icon=":material/stop:", on_click=job.cancel)
    if redrawn and looks % redrawn == 0 and progress.done:
        st.rerun()
