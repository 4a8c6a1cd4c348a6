"""The runs of a folder: those that a page puts beside its own, and those that the page Runs lists.

The summary of a run in a list of runs. It holds plain values, so that a thousand of them cost little.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from ratioscope.errors import RatioscopeError
from ratioscope.ingest.analysis.acknowledgements import tags_of
from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.analysis.gap_history import gap_size
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.analysis.judged_verdict import judged_verdict
from ratioscope.ingest.analysis.resolution import too_coarse, without_coarse
from ratioscope.ingest.run import Run
from ratioscope.metrics.grading.finding import Finding
from ratioscope.metrics.metric import SAMPLED

from ..blocks import Block, Paragraph
from ..figures.drawing.thinning import thinned
from ..presentation.answer import cause_of, title_of
from ..presentation.escape import visible
from ..presentation.metric_places import names_at
from ..presentation.run_state import RunState
from ..presentation.value_text import value_words
from .answered import Answered
from .face import Face, Several
from .view import View

MOST_OTHERS = 7
"""Most runs beside the shown one; there are eight colours."""

POINTS = 60
"""Number of points of the small chart of a run."""
NO_GAP = "not available, because no step has the log-probs of the policy that sampled and of one that trains"
NO_NUMBER = "not available, because no step has a finite number of it"
OVER = ", over"
NEWEST, WHOLE = "newest", "whole run"
"""The two values of a metric in a summary, by the ends of their names."""


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
    values: Mapping[str, float] = field(default_factory=dict)
    """The metrics of the cards in `gap` as numbers, such as `ess_token newest` and `ess_token whole run`; the finite ones."""
    tags: tuple[str, ...] = ()
    """The tags that the run keeps."""

    def with_cause(self, known: Answered | None, newest: int | None) -> "Summary":
        """With the likeliest cause as its title, if a diagnosis that reaches the newest step has found one.

        A run out of bounds alone: a healthy one has no title in a list.
        """
        is_new = known is not None and known.last_step == newest and self.severity in ("act", "watch")
        cause = cause_of(known.result) if known is not None and is_new else ""
        return replace(self, title=cause + (OVER if self.title.endswith(OVER) else "")) if cause else self


@dataclass(frozen=True)
class ListedRun:
    """A run of the folder, as far as it is known."""

    name: str
    summary: Summary | None
    """None if it was not read yet."""
    state: RunState
    settings: Mapping[str, str] = field(default_factory=dict)
    """Its settings by dotted key, see `run_groups.settings_of`."""
    tags: tuple[str, ...] = ()
    """Its tags, with those that are kept beside the server."""
    keeps_tags_beside: bool = False
    """True if a tag was put on it, or taken off, that the run itself could not keep."""


@dataclass(frozen=True)
class Folder:
    """The runs that a reader can choose from."""

    runs: Mapping[str, str]
    """Name -> path, in order."""
    view: Callable[[str], View]
    """A path -> the run as a page shows it beside another. Raises RatioscopeError where it cannot be read."""
    listed: Callable[[Sequence[str]], tuple[list[ListedRun], int]] = lambda wanted: ([], 0)
    """(every run, the number that is not read yet). It reads some more first, in the order of these paths."""
    roots: Sequence[str] = ()
    """The served folders and runs, below which a run can be pinned; none in a file."""
    note: str = ""
    """A sentence on a part that was left out of the folder, and why."""
    tag: Callable[[Sequence[str], str, bool], str] | None = None
    """Puts a tag on the runs of these names, or takes it off. Returns where it is kept, in words. None in a file."""


NO_FOLDER = Folder({}, dict[str, View]().__getitem__)


def chosen_runs(face: Face, names: Iterable[str], key: str, title: str, **look: Any) -> list[str]:
    """The runs of these names that the reader chooses. look: other fields of the question."""
    shown = {visible(name): name for name in names}
    chosen = face.ask(Several(key, title, [*shown], absent="The run {} is not served here, or no longer.", **look))
    return [shown[name] for name in chosen]


def opened(folder: Folder, names: Iterable[str], left_out: list[Block]) -> dict[str, View]:
    """Name -> run, for the runs that can be read. left_out: gets a warning for each of the others."""
    found = {}
    for name in names:
        try:
            found[name] = folder.view(folder.runs[name])
        except (RatioscopeError, KeyError) as error:
            left_out.append(Paragraph(f"{name} is left out: {error}", "warning"))
    return found


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
        tags=tags_of(run),
        started=_earliest(writers, "opened"),
    )
    gaps = judged_first(run) if run.steps else ()
    if not gaps:
        return known
    gap, frame = gaps[0], run.metrics().sort("step")
    whole = run.metrics(by=())  # next to the frame by step, whose statistics it merges; all others are a part of it
    if verdict is None:
        verdict = verdict_of(run) if run.is_remote else judged_verdict(run)  # each row of a store is a request
    name = next((name for name in names_at("runs", gap) if f"{gap}/{name}" in frame.columns), "")
    column, tokens = f"{gap}/{name}", f"{gap}/tokens"
    values = frame[column].fill_null(np.nan).to_numpy() if name else np.zeros(0)
    means = thinned(np.arange(len(values), dtype=float), values, points=POINTS).mean
    size = gap_size(run, gap) if name else None
    return replace(
        known,
        gaps=run.gaps,
        severity=verdict.word,
        title=f"{title_of(verdict, None)}{OVER if verdict.until_step is not None else ''}",
        since=verdict.since_step,
        tokens=int(frame[tokens].sum()) if tokens in frame.columns else 0,
        gap=gap,
        size=(NO_NUMBER if gap in SAMPLED else NO_GAP)
        if size is None
        else value_words(name, size.whole.value, size.whole.error),
        kl_k3=None if size is None else size.now.value,
        error_of_kl_k3=None if size is None else size.now.error,
        course=tuple(means[np.isfinite(means)].tolist()),
        values=_values(run, gap, frame, whole),
    )


def _values(run: Run, gap: str, by_step: pl.DataFrame, whole: pl.DataFrame) -> dict[str, float]:
    coarse, found = too_coarse(run), {}
    for end, frame in ((NEWEST, by_step), (WHOLE, whole)):
        known = without_coarse(frame, coarse)
        for name in names_at("card", gap):
            column = known[f"{gap}/{name}"] if f"{gap}/{name}" in known.columns else pl.Series(dtype=pl.Float64)
            if len(finite := column.cast(pl.Float64).drop_nulls().filter(column.drop_nulls().is_finite())):
                found[f"{name} {end}"] = float(finite[-1])
    return found


def _earliest(writers: pl.DataFrame, column: str) -> datetime | None:
    earliest = writers[column].min()
    return earliest if isinstance(earliest, datetime) else None
