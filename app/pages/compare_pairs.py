"""Comparison by pairs of partners, such as samples of one prompt. The reader starts it; it reads token rows."""

from collections.abc import Iterator
from functools import partial

import polars as pl

from ratioscope.ingest.analysis.run_comparison import KEYS, METRICS, PromptKey, of_metric
from ratioscope.ingest.jobs.pair_job import PairJob, RunSteps
from ratioscope.metrics.analysis.comparison import paired

from ..blocks import Action, Block, Heading, Numbers, Paragraph, Waiting
from ..presentation.comparison_words import paired_sentence
from ..presentation.digits import count
from ..presentation.metric_places import in_words
from .compare_sides import ComparedRun
from .face import Choice
from .scope import Scope

LOGS: dict[PromptKey, str] = {
    "prompt_text": "log prompt_texts",
    "group_id": "log group_ids",
    "sequence_id": "log sequence_ids",
}


def pair_by_pair(a: ComparedRun, b: ComparedRun, scope: Scope) -> Iterator[Block]:
    """Compares partners of both sides, if prompts match, by a job on token rows that the reader starts."""
    face, jobs, gap = scope.face, scope.view.source.jobs, scope.gap
    yield Heading("Pair by pair")
    keys: list[PromptKey] = [*KEYS]
    with face.row("pairs"):
        key: PromptKey = face.ask(Choice("pair_by", "partners have", keys, keys[0], width=200))
        metric = face.ask(Choice("pair_metric", "measured by", METRICS, METRICS[0], in_words, width=300))
        sides = [(side.letter, side.typed, tuple(shown.path for shown in side.views)) for side in (a, b)]
        name = repr(("pairs", key, gap, sides))  # a growing run is read up to its newest step at the start of the job
        job = jobs.pairs(name)
        recorded = [tuple(side.recorded(shown)) for side in (a, b) for shown in side.views]
        is_done = job is not None and job.progress.state == "done"
        if job is None or not (job.progress.at_work or (is_done and job.work.steps == recorded)):
            words = f"read {'again ' if is_done else ''}{count(sum(map(len, recorded)), 'step')} of token rows"
            parts = [
                RunSteps(side.letter, shown.run, side.steps.of(shown.steps)) for side in (a, b) for shown in side.views
            ]
            yield Action("pair", words, partial(jobs.read_pairs, name, parts, key, gap))
    about = "Sequences of both runs are paired, which removes the variation between prompts."
    yield Paragraph(f"{about} Partners have {KEYS[key]}.", "muted")
    if job is None:
        return
    if job.progress.at_work:
        yield Waiting("pairs_wait", "reading", lambda: False, job=name)
    elif is_done:
        yield from _result(job, metric, key)
    else:
        why = f"failed: {job.progress.reason}" if job.progress.reason else "was cancelled"
        yield Paragraph(f"The last reading {why}.", "absent")


def _result(job: PairJob, metric: str, key: PromptKey) -> Iterator[Block]:
    one, other = (of_metric(job.work.table(letter), metric) for letter in "AB")
    pairs = paired(one, other)
    yield Paragraph(paired_sentence(pairs, metric, key), "lead")
    if not pairs.pairs:
        keep = f"To pair by {key}, {LOGS[key]} with Collector.log in both runs, and keep the token rows."
        yield Paragraph(keep, "muted")
    yield Numbers("pair_numbers", partial(_joined, one, other), "numbers of the pairs")


def _joined(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    a, b = one.rename({"value": "A"}), other.rename({"value": "B"})
    return a.join(b, on="key").with_columns((pl.col("B") - pl.col("A")).alias("B − A"))
