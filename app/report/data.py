"""The data of a report, assembled once from a Run. The three renderers read these data and nothing else, and compute nothing."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from ratioscope.ingest.analysis.copy_facts import judged_first
from ratioscope.ingest.analysis.grades import floors_of, signal_grades, verdict_of
from ratioscope.ingest.analysis.recorded_events import recorded_events
from ratioscope.ingest.analysis.resolution import coarse_words, too_coarse, without_coarse
from ratioscope.ingest.rows.text_columns import changed
from ratioscope.ingest.run import Run
from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.distribution import Level
from ratioscope.metrics.grading.episodes import Spell, spells
from ratioscope.metrics.grading.finding import LABELS, Finding
from ratioscope.metrics.grading.severity import decided, with_readings
from ratioscope.metrics.grading.signals import Signal
from ratioscope.metrics.metric import Metric

from ..presentation.noise_floor import NoiseFloor
from ..referee.floor_of_run import against_floor
from ..referee.side_off import SideOff
from .baseline import Baseline, baseline_of
from .diagnosis import Diagnosed, diagnosed
from .gap_slices import SliceOfGap, slices_of_gap
from .gaps import gaps_of_readings, metrics_of, recorded_gap
from .privacy import scrubbed_text
from .quality import Quality, quality
from .reproduction import Reproduction, reproduction
from .scorecard import Score, scores
from .side import side
from .without_texts import outgoing
from .worst import WorstSequence, worst_sequences

SCHEMA = "ratioscope-report/1"
STAGES = (
    "metrics",
    "grades",
    "comparison",
    "diagnosis",
    "distributions",
    "slices",
    "worst sequences",
    "data quality",
    "reproduction",
)
LEVELS: tuple[Level, ...] = ("token", "sequence")


@dataclass(frozen=True)
class ReportData:
    """The data of one report."""

    name: str
    gap: str
    """Gap of the sections on distributions, places and sequences: the asked one, else the verdict's or the first on record."""
    gaps: tuple[str, ...]
    """Gaps on record."""
    reading_gaps: tuple[str, ...]
    """Gaps of readings that have charts and scores: `gap` if it is one, and both sides of `recorded` to the referee."""
    recorded: str
    """The recorded gap that the charts of reading_gaps show beside their own."""
    digits: dict[str, str]
    """Gap -> what the digits of the file are too few for, in words; empty where all digits are on record."""
    verdict: Finding
    diagnosis: Diagnosed
    baseline: Baseline | None
    """The comparison with a known-good run; None without one."""
    floor: NoiseFloor | None
    """The noise floor that the run is compared with; None without one."""
    side: SideOff | None
    """Which side is off, by the run's referee; None if no referee read the run."""
    graded: dict[str, int]
    """Severity -> number of steps."""
    steps: pl.DataFrame
    """The metric frame by step, without values that the digits of the file are too few for."""
    grades: pl.DataFrame
    """One row per graded step."""
    signals: tuple[Signal, ...]
    """Signals that grade the run, with the thresholds in force."""
    spells: tuple[Spell, ...]
    """Runs of consecutive steps of one severity."""
    events: pl.DataFrame
    """The events of the run, as Run.events."""
    scores: tuple[Score, ...]
    distributions: dict[tuple[Level, str], pl.DataFrame]
    """(level, gap) -> counts per bucket and step."""
    places: tuple[SliceOfGap, ...]
    """The gap by position, probability, lag, replica and turn."""
    worst: tuple[WorstSequence, ...]
    """The sequences with the largest gap, the worst first."""
    text: bool
    """True if the report contains token and prompt texts."""
    quality: Quality
    reproduction: Reproduction
    glossary: tuple[Metric, ...]
    """The metrics that the report explains."""

    @property
    def shown_gaps(self) -> tuple[str, ...]:
        """The gaps of the timeline: those on record, and the gap of the report."""
        return tuple(dict.fromkeys((*self.gaps, *(gap for gap in self.reading_gaps if gap == self.gap))))


def report_data(
    run: Run,
    *,
    text: bool = True,
    gap: str | None = None,
    good: Run | None = None,
    floor: NoiseFloor | None = None,
    options: tuple[str, ...] = (),
    stage: Callable[[str], None] = lambda name: None,
) -> ReportData:
    """Reads the run's statistics, and the token rows of few steps: those diagnosed, and those that hold its worst sequences.

    gap: of the sections on distributions, places and sequences, also one of readings; None: the verdict's, else the first.
    good: a known-good run to compare with; then the prompts of both are read whole, to pair them. floor: a noise floor.
    options: the arguments of the command line, for the reproduction section. stage: called with the name of each of STAGES.
    """
    run, good = outgoing(run, text=text), None if good is None else outgoing(good, text=text)
    stage("metrics")
    floors = floors_of(run)
    graded = signal_grades(run, floors)
    verdict = verdict_of(run, graded)
    gap = gap or verdict.gap or next(iter(judged_first(run)), "mismatch")
    beside_it, coarse = gaps_of_readings(run, gap), too_coarse(run)
    steps = without_coarse(metrics_of(run, ("step",), beside_it), coarse)
    score_rows = scores(run, steps, floors, graded, beside_it)
    stage("grades")
    grades = with_readings(decided(graded))
    stage("comparison")
    baseline = None if good is None else baseline_of(run, good)
    stage("diagnosis")
    beside = () if floor is None else (("baseline", against_floor(run, floor, verdict.gap or "")),)
    quality_rows = quality(run, steps)
    state = (("state", quality_rows.state),) if quality_rows.alarm else ()
    diagnosis = diagnosed(run, verdict, (*state, *beside, *(() if baseline is None else baseline.head)))
    stage("distributions")
    distributions: dict[tuple[Level, str], pl.DataFrame] = {
        (level, gap): frame for level, frame in run.distributions(LEVELS, gap).items()
    }
    stage("slices")
    place_rows = slices_of_gap(run, gap)
    stage("worst sequences")
    worst = worst_sequences(run, steps, gap, text=text)
    stage("data quality")
    stage("reproduction")
    return ReportData(
        name=scrubbed_text(run.name),
        gap=gap,
        gaps=tuple(run.gaps),
        reading_gaps=beside_it,
        recorded=recorded_gap(run, gap),
        digits={each: coarse_words(each, known) for each, known in coarse.items() if each in (*run.gaps, *beside_it)},
        verdict=diagnosis.verdict,
        diagnosis=diagnosis,
        baseline=baseline,
        floor=floor,
        side=side(run),
        graded=graded_counts(grades),
        steps=steps,
        grades=grades,
        signals=run.rules.rules.signals,
        spells=spells(graded, run.rules.rules),
        events=_events(run),
        scores=score_rows,
        distributions=distributions,
        places=place_rows,
        worst=worst,
        text=text,
        quality=quality_rows,
        reproduction=reproduction(run, options, text=text),
        glossary=METRICS,
    )


def graded_counts(grades: pl.DataFrame) -> dict[str, int]:
    """Severity -> number of steps."""
    words = grades["severity"].cast(pl.String).to_list() if len(grades) else []
    return {label: words.count(label) for label in LABELS}


def _events(run: Run) -> pl.DataFrame:
    """The events of the run with their kinds. Alerts are left out, because the report shows spells instead."""
    events = recorded_events(run)
    return changed(events, scrubbed_text, "event", "note")
