"""The summary of a run in a list of runs. It holds plain values, so that a thousand of them cost little."""

from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import polars as pl

from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.analysis.judged_verdict import judged_verdict
from ratioscope.ingest.run import Run
from ratioscope.metrics.grading.finding import Finding

from ..figures.drawing.thinning import thinned
from ..presentation.answer import title_of
from ..presentation.metric_places import names_at
from ..presentation.value_text import value_words

POINTS = 60
"""Number of points of the small chart of a run."""
NO_GAP = "not available, because no step has the log-probs of two policies"


@dataclass(frozen=True)
class Summary:
    """One run."""

    error: str = ""
    """The reason why the run cannot be read; all else is then empty."""
    name: str = ""
    trainer: str = ""
    """The trainer's name in run.json; empty if it has none."""
    steps: int = 0
    tokens: int = 0
    has_rows: bool = False
    """True if a step has token rows."""
    gaps: tuple[str, ...] = ()
    attempts: int = 0
    bytes: int = 0
    """Size on disk of the part that is on record and shown."""
    severity: str = ""
    title: str = ""
    since: int | None = None
    """First step of the verdict."""
    gap: str = ""
    """Gap of `size`, `kl_k3` and `course`."""
    size: str = NO_GAP
    """The metric of the runs' list over the whole run, in words, or why it is not available."""
    kl_k3: float | None = None
    """The newest finite value, nats/token; None if there is none."""
    error_of_kl_k3: float | None = None
    """Its standard error; None if it is not known."""
    course: tuple[float, ...] = ()
    """kl_k3 over the steps, as means of buckets."""
    started: datetime | None = None
    """When the first writer opened its log; None if no log has it."""


def summary_of(run: Run, verdict: Finding | None = None) -> Summary:
    """The summary of an opened run. It reads statistics, and token rows only if statistics are incomplete.

    verdict: that of the run, if it is known already.
    """
    writers = run.writers
    known = Summary(
        name=run.name,
        trainer=str(run.info.get("trainer") or ""),
        steps=len(run.steps),
        has_rows=run.size.rows > 0,
        attempts=writers["attempt"].n_unique(),
        bytes=run.size.bytes,
        started=_earliest(writers, "opened"),
    )
    gaps = judged_first(run) if run.steps else ()
    if not gaps:
        return known
    gap, frame = gaps[0], run.metrics().sort("step")
    if verdict is None:
        verdict = verdict_of(run) if run.is_remote else judged_verdict(run)  # each row of a store is a request
    name = next((name for name in names_at("runs", gap) if f"{gap}/{name}" in frame.columns), "")
    column, tokens = f"{gap}/{name}", f"{gap}/tokens"
    values = frame[column].fill_null(np.nan).to_numpy() if name else np.zeros(0)
    means = thinned(np.arange(len(values), dtype=float), values, points=POINTS).mean
    finite = np.flatnonzero(np.isfinite(values))
    at = int(finite[-1]) if len(finite) else None
    whole = run.metrics(by=(), names=(name,)) if at is not None else None
    return replace(
        known,
        gaps=run.gaps,
        severity=verdict.word,
        title=f"{title_of(verdict, None)}{', over' if verdict.until_step is not None else ''}",
        since=verdict.since_step,
        tokens=int(frame[tokens].sum()) if tokens in frame.columns else 0,
        gap=gap,
        size=NO_GAP if whole is None else value_words(name, whole[column][0], whole[f"{column}_se"][0]),
        kl_k3=None if at is None else float(values[at]),
        error_of_kl_k3=None if at is None else frame[f"{column}_se"][at],
        course=tuple(means[np.isfinite(means)].tolist()),
    )


def _earliest(writers: pl.DataFrame, column: str) -> datetime | None:
    earliest = writers[column].min()
    return earliest if isinstance(earliest, datetime) else None
