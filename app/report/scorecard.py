"""The scorecard: what every metric is over the whole run, how sure, over how many, where it was worst and how it went."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.ingest.analysis.grades import signal_grades, whole_run_grades
from ratioscope.metrics.analysis.worst_step import worst_step
from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.grading.floor import Floors
from ratioscope.metrics.grading.limits import Limit, furthest_reading, limits_of, reading_of
from ratioscope.metrics.metric import Metric

from ..presentation.digits import digits
from ..presentation.metric_places import names_at

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


@dataclass(frozen=True)
class Score:
    """One metric of one gap over the whole run. value, error, worst: None is "not available", because `absent` says why.

    worst: the value at worst_step, where the metric lies furthest on its bad side. limits: where its reading changes, in
    words. reading, worst_reading: the grade of value and worst, with their uncertainty, where a signal grades them; else the
    published reading of the furthest limit reached, empty where none is; "... or worse" where the value is a bound. headline:
    has a chart of its own.
    """

    gap: str
    name: str
    unit: str
    value: float | None
    error: float | None
    count: int
    counted: str
    worst: float | None
    worst_error: float | None
    worst_step: int | None
    reading: str
    worst_reading: str
    limits: tuple[str, ...]
    estimator: str
    weighting: str
    absent: str | None
    headline: bool
    series: tuple[float | None, ...]


def scores(run: "Run", steps: pl.DataFrame, floors: Floors) -> tuple[Score, ...]:
    """A Score for every metric of every gap on record, in the registry's order, gap by gap. steps: the metric frame by step."""
    whole = run.metrics(by=())
    table = _Table(
        whole.row(0, named=True) if len(whole) else {},
        steps,
        run.unavailable,
        {(row["signal"], row["gap"]): row["severity"] for row in whole_run_grades(run, floors).iter_rows(named=True)},
        {
            (row["signal"], row["gap"], row["step"]): row["severity"]
            for row in signal_grades(run, floors).iter_rows(named=True)
        },
    )
    return tuple(_score(metric, gap, table) for gap in run.gaps for metric in _of_gap(gap))


@dataclass(frozen=True)
class _Table:
    """What scores are read from: values of the whole run and by step, why some are absent, and the grades of both."""

    whole: Mapping[str, float | None]
    steps: pl.DataFrame
    reasons: Mapping[str, str]
    grades: Mapping[tuple[str, str], str]
    step_grades: Mapping[tuple[str, str, int], str]


def _of_gap(gap: str) -> Iterator[Metric]:
    return (metric for metric in METRICS if gap in metric.gaps)


def _score(metric: Metric, gap: str, table: _Table) -> Score:
    name = f"{gap}/{metric.name}"
    value = table.whole.get(name)
    limits = limits_of(metric, gap)
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
            table.step_grades.get((metric.signal, gap, -1 if at is None else at)) or reading_of(worst, limits),
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
    """The reading of a value that may be a bound: what it bounds may lie beyond the next limit, too."""
    further = reading not in ("", furthest_reading(limits))
    return f"{reading} or worse" if metric.is_bound(error) and further else reading


def _error_at(step: int | None, steps: pl.DataFrame, name: str) -> float | None:
    """The standard error of the metric at a step."""
    if step is None or f"{name}_se" not in steps.columns:
        return None
    found = steps.filter(step=step)[f"{name}_se"][0]
    return None if found is None else float(found)


def words_of(limit: Limit) -> str:
    """The limit in words: its reading and from where on it holds."""
    return f"{limit.reading} {'≥' if limit.worse == 'above' else '≤'} {digits(limit.at)}"
