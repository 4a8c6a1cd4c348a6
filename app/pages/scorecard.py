"""The scorecard: each metric over the whole run, its error, its count, its worst step and its values by step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl

from ratioscope.ingest.analysis.grades import floors_of, whole_run_grades
from ratioscope.ingest.analysis.resolution import too_coarse, without_coarse
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.over_steps import worst_step
from ratioscope.metrics.definitions.registry import BY_NAME, METRICS
from ratioscope.metrics.grading.floor import Floors
from ratioscope.metrics.grading.limits import Limit, furthest_reading, limits_of, reading_of
from ratioscope.metrics.grading.signals import Signal
from ratioscope.metrics.metric import Metric

from ..blocks import Block, Column, Drawer, Heading, Paragraph, Table
from ..presentation.digits import count, digits
from ..presentation.gap_words import difference_words
from ..presentation.metric_places import names_at
from ..presentation.theme import MARKS
from ..presentation.value_text import value_words
from .gaps import few_digits, gaps_of_readings, metrics_of, steps_of_all
from .scope import Scope
from .view import View


@dataclass(frozen=True)
class Score:
    """One metric of one gap over the whole run. None means "not available", for the reason in `absent`."""

    gap: str
    name: str
    unit: str
    """The metric's unit, such as nats/token."""
    value: float | None
    """Over all steps together."""
    error: float | None
    """Standard error of the value."""
    count: int
    """Number of tokens or sequences that the value rests on."""
    counted: str
    """Unit of `count`, in words."""
    worst: float | None
    """Value at worst_step, where the metric lies furthest on its bad side."""
    worst_error: float | None
    """Standard error of `worst`."""
    worst_step: int | None
    """The step of `worst`."""
    reading: str
    """Grade of the value with its uncertainty, if a signal grades it; else the published reading of the furthest limit
    reached, empty if there is none. "... or worse" if the value is a bound."""
    worst_reading: str
    """The same for `worst`."""
    limits: tuple[str, ...]
    """Limits at which the reading changes, in words."""
    estimator: str
    """The way the value is estimated, in the words of the metric."""
    weighting: str
    """The tokens or sequences that the mean is taken over, in the words of the metric."""
    absent: str | None
    """Reason why the value is None."""
    headline: bool
    """True if the metric has a chart of its own."""
    series: tuple[float | None, ...]
    """Values by step."""


def scores(
    run: Run, steps: pl.DataFrame, floors: Floors, graded: pl.DataFrame, of_readings: Sequence[str] = ()
) -> tuple[Score, ...]:
    """A Score for every metric of every gap on record and of these gaps of readings, in the registry's order, gap by gap.

    steps: the metric frame by step. graded: `signal_grades` of the run; no signal grades a gap of readings.
    """
    coarse = too_coarse(run)
    measured = metrics_of(run, (), of_readings)
    whole, steps = without_coarse(measured, coarse), without_coarse(steps, coarse)
    lost = [name for name in measured.columns if measured[name].null_count() < whole[name].null_count()]
    table = _ScoreSources(
        whole.row(0, named=True) if len(whole) else {},
        steps,
        run.unavailable
        | {name: coarse[name.partition("/")[0]].because for name in lost},  # by the digits of the file alone
        {(row["signal"], row["gap"]): row["severity"] for row in whole_run_grades(run, floors).iter_rows(named=True)},
        graded.select("signal", "gap", "step", "severity").partition_by("signal", "gap", as_dict=True),
        run.rules.rules.signals,
    )
    return tuple(
        _score(metric, gap, table) for gap in (*run.gaps, *of_readings) for metric in METRICS if metric.is_of(gap)
    )


@dataclass(frozen=True)
class _ScoreSources:
    """The sources of scores: values of the whole run and by step, reasons for absent ones, and the grades of both."""

    whole: Mapping[str, float | None]
    steps: pl.DataFrame
    reasons: Mapping[str, str]
    grades: Mapping[tuple[str, str], str]
    step_grades: Mapping[tuple[object, ...], pl.DataFrame]
    """(signal, gap) -> its grades by step. A long run has hundreds of thousands, of which a few are shown."""
    signals: Sequence[Signal]

    def grade_at(self, signal: str, gap: str, step: int | None) -> str:
        """The grade of a signal of a gap at a step; empty if it has none."""
        own = self.step_grades.get((signal, gap))
        grades = [] if own is None or step is None else own.filter(step=step)["severity"].to_list()
        return str(grades[0]) if grades else ""


def _score(metric: Metric, gap: str, table: _ScoreSources) -> Score:
    name = f"{gap}/{metric.name}"
    value = table.whole.get(name)
    limits = limits_of(metric, gap, table.signals)
    worst, at = worst_step(metric, table.steps, gap)
    worst_error = _error_at(at, table.steps, name)
    reason = table.reasons.get(name) or metric.absent
    counted = "sequences" if metric.level == "sequence" else "tokens"
    return Score(
        gap,
        metric.name,
        metric.unit,
        value,
        table.whole.get(f"{name}_se"),
        int(table.whole.get(f"{gap}/{counted}") or 0),
        counted,
        worst,
        worst_error,
        at,
        _or_worse(
            table.grades.get((metric.signal, gap)) or reading_of(value, limits),
            metric,
            limits,
            table.whole.get(f"{name}_se"),
        ),
        _or_worse(table.grade_at(metric.signal, gap, at) or reading_of(worst, limits), metric, limits, worst_error),
        tuple(words_of(limit) for limit in limits),
        metric.estimator,
        metric.weighting,
        absent=None if value is not None else reason if reason.startswith("because") else f"because {reason}",
        headline=metric.name in names_at("chart", gap),
        series=tuple(table.steps[name].to_list()) if name in table.steps.columns else (),
    )


def _or_worse(reading: str, metric: Metric, limits: Sequence[Limit], error: float | None) -> str:
    """The reading, with "or worse" if the value is a bound: the true value may lie beyond the next limit."""
    further = reading not in ("", furthest_reading(limits))
    return f"{reading} or worse" if metric.is_bound(error) and further else reading


def _error_at(step: int | None, steps: pl.DataFrame, name: str) -> float | None:
    """The standard error of the metric at a step."""
    if step is None or f"{name}_se" not in steps.columns:
        return None
    error = steps.filter(step=step)[f"{name}_se"][0]
    return None if error is None else float(error)


def words_of(limit: Limit) -> str:
    """The limit in words: its reading and the value from which it holds."""
    return f"{limit.reading} {'≥' if limit.worse == 'above' else '≤'} {digits(limit.at)}"


def value_of(score: Score) -> str:
    """The value ± its standard error, or the reason why it is absent."""
    if score.value is None:
        return f"not available, {score.absent}"
    return value_words(score.name, score.value, score.error)


def unit_of(name: str) -> str:
    """The unit in brackets; empty for pure numbers."""
    unit = BY_NAME[name].unit
    return "" if unit == "1" else f" [{unit}]"


def titled(name: str) -> str:
    """The title of a metric in words, with its unit in brackets."""
    return f"{BY_NAME[name].title}{unit_of(name)}"


def headlines(scores: Sequence[Score]) -> list[Score]:
    """The scores with a chart of their own, in the order of the charts."""
    first_scores = (score for score in scores if score.headline)
    return sorted(first_scores, key=lambda score: names_at("chart", score.gap).index(score.name))


def size_of(score: Score) -> str:
    return count(score.count, score.counted.removesuffix("s"))


def worst_of(score: Score) -> str:
    """The value at the worst step ± its standard error, the step, and its reading."""
    if score.worst is None:
        return ""
    return f"{_worst(score)}{f', {score.worst_reading}' if score.worst_reading else ''}"


def _worst(score: Score) -> str:
    return (
        ""
        if score.worst is None
        else f"{value_words(score.name, score.worst, score.worst_error)} at {score.worst_step}"
    )


def score_words(score: Score | None) -> str:
    """The value of the whole run and the worst step in words, for those who do not see the chart."""
    if score is None or score.absent:
        return ""
    worst = worst_of(score)
    return f": whole run {value_of(score)}{unit_of(score.name)}" + (f", worst {worst}" if worst else "")


def scores_of(scope: Scope, readings: tuple[str, ...]) -> tuple[Score, ...]:
    """The scores of every gap on record and of these gaps of readings."""
    return scope.view.of(_scores, scope.view, readings)


def _scores(run: Run, view: View, readings: tuple[str, ...]) -> tuple[Score, ...]:
    return scores(run, view.of(steps_of_all, readings), floors_of(run), view.graded(), readings)


def scorecard(scope: Scope) -> Iterator[Block]:
    """The scores of each gap; those of another gap than the scope's are folded."""
    readings = scope.view.of(gaps_of_readings, scope.gap)
    gaps = (*scope.view.run.gaps, *readings)
    if not gaps:
        yield Paragraph("not available, because no step has the log-probs of two policies.", "absent")
    for gap in gaps:
        if gap == scope.gap:
            yield Heading(f"{gap}: {difference_words(gap)}")
            yield from _of_one_gap(scope, gap, readings)
        else:
            words = f"{gap} ({difference_words(gap)})"
            yield Drawer(words, partial(_of_one_gap, scope, gap, readings), is_printed=True)


def _of_one_gap(scope: Scope, gap: str, readings: tuple[str, ...]) -> Iterator[Block]:
    own = [score for score in scores_of(scope, readings) if score.gap == gap]
    yield from _table_of(f"scorecard of {gap}", headlines(own))
    others = [score for score in own if not score.headline]
    yield Drawer(f"every other metric of {gap}", partial(_table_of, f"other metrics of {gap}", others))
    yield from few_digits(scope, gap)


def _table_of(title: str, shown: Sequence[Score]) -> Iterator[Block]:
    """A row for each score with a value, and a sentence for each reason why others have none."""
    rows = [
        (
            titled(score.name),
            score.name,
            value_of(score),
            _marked(score.reading),
            list(score.series) if len(score.series) > 1 else None,
            _worst(score),
            _marked(score.worst_reading),
            ", ".join(score.limits),
            size_of(score),
        )
        for score in shown
        if not score.absent
    ]
    texts = ("metric", "name", "whole run", "reading", "over steps", "worst step", "its reading", "limits", "N")
    schema = {name: pl.List(pl.Float64) if name == "over steps" else pl.String for name in texts}
    columns = {name: Column(is_number=True) for name in ("whole run", "worst step", "N")}
    tips = Column(tips={name: metric.meaning for name, metric in BY_NAME.items()})
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    yield Table(title, frame, "no value", columns={**columns, "name": tips})
    reasons: dict[str, list[str]] = {}
    for score in shown:
        if score.absent:
            reasons.setdefault(score.absent, []).append(f"{titled(score.name)} ({score.name})")
    for reason, names in reasons.items():
        yield Paragraph(f"not available, {reason.rstrip('.')}: {', '.join(names)}.", "absent")


def _marked(reading: str) -> str:
    """The reading with the mark of its severity, if it is one."""
    return f"{MARKS[reading]} {reading}" if reading in MARKS else reading
