"""The scorecard: each metric over the whole run, its error, its count, its worst step and its values by step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ratioscope.ingest.analysis.grades import whole_run_grades
from ratioscope.ingest.analysis.resolution import TooCoarse, too_coarse, without_coarse
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.over_steps import worst_step
from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.grading.floor import Floors
from ratioscope.metrics.grading.limits import Limit, furthest_reading, limits_of, reading_of
from ratioscope.metrics.grading.signals import Signal
from ratioscope.metrics.metric import Metric

from ..presentation.digits import digits
from ..presentation.metric_places import names_at
from .gaps import metrics_of


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
    table = _ScoreSources(
        whole.row(0, named=True) if len(whole) else {},
        steps,
        run.unavailable | _too_small(measured, whole, coarse),
        {(row["signal"], row["gap"]): row["severity"] for row in whole_run_grades(run, floors).iter_rows(named=True)},
        {(str(signal), str(gap)): rows for (signal, gap), rows in _parts(graded).items()},
        run.rules.rules.signals,
    )
    return tuple(_score(metric, gap, table) for gap in (*run.gaps, *of_readings) for metric in _of_gap(gap))


def _too_small(measured: pl.DataFrame, whole: pl.DataFrame, coarse: Mapping[str, TooCoarse]) -> dict[str, str]:
    """Column -> why it has no value, for those that only the digits of the file leave out."""
    lost = [name for name in measured.columns if measured[name].null_count() < whole[name].null_count()]
    return {name: coarse[name.partition("/")[0]].because for name in lost}


def _parts(graded: pl.DataFrame) -> dict[tuple[object, ...], pl.DataFrame]:
    return graded.select("signal", "gap", "step", "severity").partition_by("signal", "gap", as_dict=True)


@dataclass(frozen=True)
class _ScoreSources:
    """The sources of scores: values of the whole run and by step, reasons for absent ones, and the grades of both."""

    whole: Mapping[str, float | None]
    steps: pl.DataFrame
    reasons: Mapping[str, str]
    grades: Mapping[tuple[str, str], str]
    step_grades: Mapping[tuple[str, str], pl.DataFrame]
    """(signal, gap) -> its grades by step. A long run has hundreds of thousands, of which a few are shown."""
    signals: Sequence[Signal]

    def grade_at(self, signal: str, gap: str, step: int | None) -> str:
        """The grade of a signal of a gap at a step; empty if it has none."""
        own = self.step_grades.get((signal, gap))
        grades = [] if own is None or step is None else own.filter(step=step)["severity"].to_list()
        return str(grades[0]) if grades else ""


def _of_gap(gap: str) -> Iterator[Metric]:
    return (metric for metric in METRICS if metric.is_of(gap))


def _score(metric: Metric, gap: str, table: _ScoreSources) -> Score:
    name = f"{gap}/{metric.name}"
    value = table.whole.get(name)
    limits = limits_of(metric, gap, table.signals)
    worst, at = worst_step(metric, table.steps, gap)
    worst_error = _error_at(at, table.steps, name)
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
        _or_worse(
            table.grade_at(metric.signal, gap, at) or reading_of(worst, limits),
            metric,
            limits,
            worst_error,
        ),
        tuple(words_of(limit) for limit in limits),
        metric.estimator,
        metric.weighting,
        absent=None if value is not None else _reason(table.reasons, name, metric),
        headline=metric.name in names_at("chart", gap),
        series=tuple(table.steps[name].to_list()) if name in table.steps.columns else (),
    )


def _reason(reasons: Mapping[str, str], name: str, metric: Metric) -> str:
    reason = reasons.get(name) or metric.absent
    return reason if reason.startswith("because") else f"because {reason}"


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
