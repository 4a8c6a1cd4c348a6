"""The scorecard: what every metric is over the whole run, how sure, over how many, where it was worst and how it went."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.metrics.metric import Metric
from ratioscope.metrics.registry import METRICS

from ..digits import digits
from ..headline import CHARTS, limits_of
from ..limit import Limit

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


AROUND_ONE = frozenset({"ppl_ratio", "mean_weight_token", "mean_weight_sequence"})
"""Metrics that are 1, not 0, where the policies agree."""


@dataclass(frozen=True)
class Score:
    """One metric of one gap over the whole run. value, error, worst: None is "not available", because `absent` says why.

    worst: the value at worst_step, the step where the metric lies furthest on its bad side. limits: where its reading
    changes, in words; reading: that of the furthest one reached, empty where none is. headline: has a chart of its own.
    """

    gap: str
    name: str
    unit: str
    value: float | None
    error: float | None
    count: int
    counted: str
    worst: float | None
    worst_step: int | None
    reading: str
    limits: tuple[str, ...]
    estimator: str
    weighting: str
    absent: str | None
    headline: bool
    series: tuple[float | None, ...]

    @property
    def full_name(self) -> str:
        return f"{self.gap}/{self.name}"


def scores(run: "Run", steps: pl.DataFrame) -> tuple[Score, ...]:
    """A Score for every metric of every gap on record, in the registry's order, gap by gap. steps: the metric frame by step."""
    whole = run.metrics(by=())
    row = whole.row(0, named=True) if len(whole) else {}
    reasons = run.unavailable
    return tuple(_score(metric, gap, row, steps, reasons) for gap in run.gaps for metric in _of_gap(gap))


def _of_gap(gap: str) -> Iterator[Metric]:
    return (metric for metric in METRICS if gap in metric.gaps)


def _score(
    metric: Metric, gap: str, row: Mapping[str, float | None], steps: pl.DataFrame, reasons: Mapping[str, str]
) -> Score:
    name = f"{gap}/{metric.name}"
    value = row.get(name)
    series = tuple(steps[name].to_list()) if name in steps.columns else ()
    limits = limits_of(metric, gap)
    worst, worst_step = _worst(metric, steps, name, falls=_falls(metric, limits))
    counted = "sequences" if metric.level == "sequence" else "tokens"
    return Score(
        gap,
        metric.name,
        metric.unit,
        value,
        row.get(f"{name}_se"),
        int(row.get(f"{gap}/{counted}") or 0),
        counted,
        worst,
        worst_step,
        reading_of(value, limits),
        tuple(words_of(limit) for limit in limits),
        metric.estimator,
        metric.weighting,
        absent=None if value is not None else _reason(reasons, name, metric),
        headline=metric.name in CHARTS[gap],
        series=series,
    )


def _reason(reasons: Mapping[str, str], name: str, metric: Metric) -> str:
    reason = reasons.get(name) or metric.absent
    return reason if reason.startswith("because") else f"because {reason}"


def reading_of(value: float | None, limits: Sequence[Limit]) -> str:
    """The reading of the furthest limit that the value has reached; empty where it has reached none."""
    reached = [limit for limit in limits if value is not None and limit.reached(value)]
    return max(reached, key=lambda limit: limit.at if limit.worse == "above" else -limit.at).reading if reached else ""


def words_of(limit: Limit) -> str:
    """The limit in words: its reading and from where on it holds."""
    return f"{limit.reading} {'≥' if limit.worse == 'above' else '≤'} {digits(limit.at)}"


def _worst(metric: Metric, steps: pl.DataFrame, name: str, *, falls: bool) -> tuple[float | None, int | None]:
    if name not in steps.columns or metric.estimator == "count":
        return None, None
    known = steps.select("step", value=pl.col(name)).drop_nulls().drop_nans()
    if known.is_empty():
        return None, None
    size = -pl.col("value") if falls else (pl.col("value") - (metric.name in AROUND_ONE)).abs()
    row = known.sort(size, "step", descending=[True, False]).row(0, named=True)
    return row["value"], row["step"]


def _falls(metric: Metric, limits: Sequence[Limit]) -> bool:
    """Whether smaller values of the metric are the worse ones."""
    return any(limit.worse == "below" for limit in limits) or metric.name.endswith("_correlation")
