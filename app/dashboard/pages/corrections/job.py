"""The background job that computes the compared corrections from token rows: its start, progress and end."""

from collections.abc import Sequence

import streamlit as st

from ratioscope.ingest.analysis.no_rows import why_no_rows
from ratioscope.ingest.jobs.correction_job import CorrectionJob
from ratioscope.ingest.jobs.correction_results import CorrectionResults

from ....pages.scope import Scope
from ....presentation.digits import count
from ....presentation.escape import streamlit_label as label
from ...model.jobs import jobs
from ...panels.job_progress import job_at_work
from .outcomes import OutcomeSource

REDRAWN = 4
"""Number of progress updates after which the page shows the results so far."""


def comparison_job(scope: Scope, source: OutcomeSource, ledgers: Sequence[CorrectionResults], chosen: int) -> None:
    """The line on the computed steps, with the button that starts or stops the job. chosen: number of chosen steps."""
    steps = source.with_rows
    job = jobs().corrections(scope.view.path)
    if not steps:
        _say_no_rows(chosen, why_no_rows(scope.view.run))
        return
    missing = set[int]().union(*(ledger.missing(source.digests_of(ledger), steps) for ledger in ledgers))
    if job is not None and job.progress.at_work and set(job.work.results) & set(ledgers):
        job_at_work(scope.view.path, "computing from token rows", redrawn=REDRAWN)
        st.caption("The results below cover the steps computed so far. They are kept when you cancel or leave.")
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        if missing:
            st.button(
                f"compute {count(len(missing), 'step')} from token rows",
                key="carry_out",
                icon=":material/play_arrow:",
                on_click=_start,
                args=(scope, source, tuple(ledgers)),
            )
        st.caption(_words(len(steps) - len(missing), len(steps), chosen, job), width="stretch")


def _start(scope: Scope, source: OutcomeSource, ledgers: tuple[CorrectionResults, ...]) -> None:
    jobs().carry_out(scope.view.path, scope.view.run, ledgers, source.with_rows)


def _words(done: int, possible: int, chosen: int, job: CorrectionJob | None) -> str:
    of = f"{count(possible, 'step')} with token rows" + (f", of {chosen:,} chosen" if chosen != possible else "")
    said = (
        f"computed from the tokens of all {of}"
        if done == possible
        else f"computed from the tokens of {done:,} of {of}; the button computes the others in the background"
    )
    if job is not None and job.progress.state == "failed":
        said += f" · the last attempt failed: {label(job.progress.reason, 200)}"
    if job is not None and job.progress.state == "cancelled" and done < possible:
        said += " · cancelled; what was done is kept"
    return f"{said}."


def _say_no_rows(chosen: int, why: str) -> None:
    st.caption(
        ":material/info: Standard corrections, presets and sequence thresholds over tokens are not available, because none of "
        f"the chosen {count(chosen, 'step')} has token rows: {why}. Single thresholds are computed from statistics."
    )
