"""Everything a report says, assembled once from a Run: the three renderers read this and nothing else, and compute nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.ingest.analysis.grades import floors_of, signal_grades, verdict_of
from ratioscope.ingest.analysis.recorded_events import recorded_events
from ratioscope.ingest.rows.text_columns import changed
from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.distribution import Level
from ratioscope.metrics.grading.episodes import Spell, spells
from ratioscope.metrics.grading.finding import LABELS, Finding
from ratioscope.metrics.grading.severity import decided, with_readings
from ratioscope.metrics.metric import Metric

from .places import Place, places
from .quality import Quality, quality
from .reproduction import Reproduction, reproduction
from .scorecard import Score, scores
from .scrubbed import scrubbed_text
from .worst import WorstSequence, worst_sequences

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

SCHEMA = "ratioscope-report/1"
STAGES = ("metrics", "grades", "distributions", "slices", "worst sequences", "data quality", "reproduction")
LEVELS: tuple[Level, ...] = ("token", "sequence")


@dataclass(frozen=True)
class ReportData:
    """steps: the metric frame by step; grades: a row per graded step; distributions: (level, gap) -> counts per bucket.

    gap: the gap that the sections on distributions, places and sequences speak of: the verdict's, else the first on record.
    text: whether token and prompt texts are in it.
    """

    name: str
    gap: str
    gaps: tuple[str, ...]
    verdict: Finding
    graded: dict[str, int]
    steps: pl.DataFrame
    grades: pl.DataFrame
    spells: tuple[Spell, ...]
    events: pl.DataFrame
    scores: tuple[Score, ...]
    distributions: dict[tuple[Level, str], pl.DataFrame]
    places: tuple[Place, ...]
    worst: tuple[WorstSequence, ...]
    text: bool
    quality: Quality
    reproduction: Reproduction
    glossary: tuple[Metric, ...]


def report_data(
    run: "Run", *, text: bool = True, options: tuple[str, ...] = (), stage: Callable[[str], None] = lambda name: None
) -> ReportData:
    """Reads the run's statistics, and the token rows of the few steps that hold its worst sequences.

    options: the arguments of the command line, for the reproduction section. stage: told the name of each of STAGES.
    """
    stage("metrics")
    steps = run.metrics(by=("step",))
    floors = floors_of(run)
    score_rows = scores(run, steps, floors)
    stage("grades")
    graded = signal_grades(run, floors)
    grades = with_readings(decided(graded))
    found = verdict_of(run, graded)
    gap = found.gap or next(iter(run.gaps), "mismatch")
    stage("distributions")
    distributions: dict[tuple[Level, str], pl.DataFrame] = {
        (level, gap): run.distribution(level, gap) for level in LEVELS
    }
    stage("slices")
    place_rows = places(run, gap)
    stage("worst sequences")
    worst = worst_sequences(run, steps, gap, text=text)
    stage("data quality")
    quality_rows = quality(run, steps)
    stage("reproduction")
    return ReportData(
        name=scrubbed_text(run.name),
        gap=gap,
        gaps=tuple(run.gaps),
        verdict=found,
        graded=_counts(grades),
        steps=steps,
        grades=grades,
        spells=spells(graded),
        events=_events(run),
        scores=score_rows,
        distributions=distributions,
        places=place_rows,
        worst=worst,
        text=text,
        quality=quality_rows,
        reproduction=reproduction(run, options),
        glossary=METRICS,
    )


def _counts(grades: pl.DataFrame) -> dict[str, int]:
    words = grades["severity"].cast(pl.String).to_list() if len(grades) else []
    return {label: words.count(label) for label in LABELS}


def _events(run: "Run") -> pl.DataFrame:
    """What happened, with its kind; alerts are not among them, for the report has its spells."""
    found = recorded_events(run)
    return changed(found, scrubbed_text, "event", "note")
