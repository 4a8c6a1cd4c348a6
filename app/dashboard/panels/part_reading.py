"""The token rows that a filter needs: read at once where they are few, else in the background, with progress."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from ratioscope.ingest.jobs.part_job import PartResults, PartWork, part_digests
from ratioscope.ingest.rows.part import Part, part_text

from ...pages.scope import Scope
from ...pages.step_choice import are_few
from ...pages.view import View
from ...presentation.digits import count
from ...presentation.escape import streamlit_label as label
from ...presentation.slice_names import part_words
from ..model.jobs import jobs
from .job_progress import job_at_work

REDRAWN = 4
"""Number of progress updates after which the page shows the steps read so far."""


def with_part(scope: Scope) -> Scope:
    """The scope, with the number of steps that were read for its filter. The page shows the progress of a longer reading."""
    part = scope.only
    if part is None or (part.written is not None and not scope.from_rows):
        return scope
    return replace(scope, read=tuple(_read(scope, view, part) for view in (scope.view, *scope.others)))


def _read(scope: Scope, view: View, part: Part) -> int:
    """The number of steps of a run that were read."""
    results = jobs().part(view.path, part, scope.gap)
    digests = view.of(part_digests, scope.gap)
    chosen = [step for step in scope.steps.recorded(view.steps) if step in digests]
    _say_without_rows(len(scope.steps.recorded(view.steps)) - len(chosen))
    missing = results.missing(digests, chosen)
    if missing and are_few(view, missing):
        with st.spinner("reading token rows"):
            _read_now(view, results, missing)
        missing = results.missing(digests, chosen)
    elif missing:
        _in_background(view, results, missing)
    if results.sampled(digests):
        st.caption(":material/info: The filter is estimated from the token rows that the budget kept.")
    return len(chosen) - len(missing)


def _read_now(view: View, results: PartResults, steps: Sequence[int]) -> None:
    work = PartWork(view.run, results, steps)
    for step in work.pieces:
        work.do(step)
    work.save()


def _in_background(view: View, results: PartResults, missing: Sequence[int]) -> None:
    """The progress of the job that reads these steps, or the button that starts it again after it was cancelled."""
    name = f"part {view.path} {results.gap} {part_text(results.part)}"
    job = jobs().of(name)
    if job is not None and job.progress.state in ("cancelled", "failed"):
        reason = f", because {label(job.progress.reason, 200)}" if job.progress.reason else ""
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(f"{count(len(missing), 'step')} not read for the filter{reason}", width="content")
            st.button("read them", key=f"read_{name}", on_click=_start, args=(name, view, results, tuple(missing)))
        return
    if job is None or not job.progress.at_work:
        _start(name, view, results, missing)
    job_at_work(name, f"reading token rows of {label(part_words(results.part), 100)}", redrawn=REDRAWN)


def _start(name: str, view: View, results: PartResults, missing: Sequence[int]) -> None:
    jobs().read_part(name, view.run, results, missing)


def _say_without_rows(steps: int) -> None:
    if steps:
        said, them = f"{count(steps, 'step')} {'has' if steps == 1 else 'have'}", "it" if steps == 1 else "them"
        st.caption(f":material/info: {said} no token rows, which this filter needs, so charts leave {them} out.")
