"""The job that carries the lab's corrections out on token rows: what it has done, started and cancelled here."""

from collections.abc import Sequence

import streamlit as st

from ratioscope.ingest.jobs.correction_job import CorrectionJob
from ratioscope.ingest.jobs.correction_results import CorrectionResults

from ....presentation.digits import count
from ....presentation.escape import streamlit_label as label
from ...model.jobs import jobs
from ...model.scope import Scope
from ...panels.job_progress import job_at_work
from .course import Source

REDRAWN = 4
"""Looks at a job at work after which the page shows what it has found since."""


def lab_job(scope: Scope, source: Source, ledgers: Sequence[CorrectionResults], chosen: int) -> None:
    """The line on what has been carried out, with the button that starts or stops it. chosen: how many steps are looked at."""
    steps = source.with_rows
    job = jobs().corrections(scope.view.path)
    if not steps:
        _say_no_rows(chosen)
        return
    missing = set[int]().union(*(ledger.missing(source.digests, steps) for ledger in ledgers))
    if job is not None and job.progress.at_work and set(job.work.ledgers) & set(ledgers):
        job_at_work(scope.view.path, "carrying out", redrawn=REDRAWN)
        st.caption("Below is what has been carried out so far. What is done is kept, also when you cancel or leave.")
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        if missing:
            st.button(
                f"carry out on {count(len(missing), 'step')}",
                key="carry_out",
                icon=":material/play_arrow:",
                on_click=_start,
                args=(scope, source, tuple(ledgers)),
            )
        st.caption(_words(len(steps) - len(missing), len(steps), chosen, job), width="stretch")


def _start(scope: Scope, source: Source, ledgers: tuple[CorrectionResults, ...]) -> None:
    jobs().carry_out(scope.view.path, scope.view.run, ledgers, source.with_rows)


def _words(done: int, possible: int, chosen: int, job: CorrectionJob | None) -> str:
    of = f"{count(possible, 'step')} with token rows" + (f", of {chosen:,} chosen" if chosen != possible else "")
    said = f"carried out on all {of}" if done == possible else f"carried out on {done:,} of {of}"
    if job is not None and job.progress.state == "failed":
        said += f" · the last attempt failed: {label(job.progress.reason, 200)}"
    if job is not None and job.progress.state == "cancelled" and done < possible:
        said += " · cancelled; what was done is kept"
    return f"{said}. Reads token rows one step at a time, in the background; only steps that are missing."


def _say_no_rows(chosen: int) -> None:
    st.caption(
        ":material/info: Joint rules, presets and sequence levels over tokens are not available, because none of the chosen "
        f"{count(chosen, 'step')} has token rows. Record them with a budget above 0 (`step_bytes`, "
        "`run_bytes` of the collector); single thresholds are read from statistics."
    )
