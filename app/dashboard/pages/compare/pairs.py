"""Comparison by pairs of partners, such as samples of one prompt. The reader starts it; it reads token rows."""

from functools import partial

import polars as pl
import streamlit as st

from ratioscope.ingest.analysis.prompt_tables import KEYS, METRICS, PromptKey, of_metric
from ratioscope.ingest.jobs.pair_job import PairJob, RunSteps
from ratioscope.metrics.analysis.comparison import Paired, paired

from ....presentation.comparison_words import paired_sentence
from ....presentation.digits import count
from ....presentation.escape import streamlit_label as label
from ....presentation.metric_places import in_words
from ...model.jobs import jobs
from ...panels.charts import numbers_behind
from ...panels.choices import dropdown
from ...panels.job_progress import job_at_work
from ...panels.layout import control_row
from .sides import ComparedRun


def pair_by_pair(a: ComparedRun, b: ComparedRun, gap: str) -> None:
    """Compares partners of both sides, if prompts match, by a job on token rows that the reader starts."""
    st.subheader("Pair by pair", anchor=False)
    with control_row("pairs"):
        key = dropdown("partners have", list(KEYS), "pair_by", width=200)
        metric = dropdown("measured by", METRICS, "pair_metric", width=300, shown=in_words)
        name = _name(a, b, key, gap)
        job = jobs().pairs(name)
        _offer(job, name, a, b, key, gap)
    st.caption(
        f"Sequences of both runs are paired, which removes the variation between prompts. Partners have {KEYS[key]}."
    )
    if job is None:
        return
    if job.progress.at_work:
        job_at_work(name, "reading")
    elif job.progress.state == "done":
        _show(job, metric, key)
    else:
        why = f"failed: {label(job.progress.reason, 200)}" if job.progress.reason else "was cancelled"
        st.caption(f":material/info: The last reading {why}.")


def _name(a: ComparedRun, b: ComparedRun, key: PromptKey, gap: str) -> str:
    """The name of the job for these sides. A growing run is read up to its newest step at the start of the job."""
    sides = [(side.letter, side.typed, tuple(shown.path for shown in side.views)) for side in (a, b)]
    return repr(("pairs", key, gap, sides))


def _offer(job: PairJob | None, name: str, a: ComparedRun, b: ComparedRun, key: PromptKey, gap: str) -> None:
    """The button that starts the job, unless it is running or has nothing new to read."""
    recorded = [tuple(side.recorded(shown)) for side in (a, b) for shown in side.views]
    if job is not None and (job.progress.at_work or (job.progress.state == "done" and job.work.steps == recorded)):
        return
    again = "again " if job is not None and job.progress.state == "done" else ""
    st.button(
        f"read {again}{count(sum(map(len, recorded)), 'step')} of token rows",
        key="pair",
        icon=":material/join_inner:",
        on_click=_start,
        args=(name, a, b, key, gap),
    )


def _start(name: str, a: ComparedRun, b: ComparedRun, key: PromptKey, gap: str) -> None:
    parts = [RunSteps(side.letter, shown.run, side.range_of(shown)) for side in (a, b) for shown in side.views]
    jobs().read_pairs(name, parts, key, gap)


def _show(job: PairJob, metric: str, key: PromptKey) -> None:
    one, other = job.work.table("A"), job.work.table("B")
    pairs = paired(of_metric(one, metric), of_metric(other, metric))
    st.markdown(f"**{label(paired_sentence(pairs, metric, key))}**")
    _why_none(pairs, key)
    numbers_behind(partial(_joined, one, other, metric), "pair_numbers", "numbers of the pairs")


def _why_none(pairs: Paired, key: PromptKey) -> None:
    if not pairs.pairs:
        how = {"prompt_text": "log prompt_texts", "group_id": "log group_ids", "sequence_id": "log sequence_ids"}[key]
        st.caption(f"To pair by {key}, {how} with Collector.log in both runs, and keep the token rows.")


def _joined(one: pl.DataFrame, other: pl.DataFrame, metric: str) -> pl.DataFrame:
    a, b = of_metric(one, metric).rename({"value": "A"}), of_metric(other, metric).rename({"value": "B"})
    return a.join(b, on="key").with_columns((pl.col("B") - pl.col("A")).alias("B − A"))
