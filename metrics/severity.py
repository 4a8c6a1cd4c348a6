"""Severity per step: every signal of the table graded for every gap; the worst wins and says which it was."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.datatypes import DataType, DataTypeClass

from .finding import LABELS, Confidence, Finding, Severity
from .floor import Floors, floors
from .metric import Values
from .signals import SIGNALS, Signal

__all__ = ["SIGNALS", "Severity", "grade", "grade_signals", "grades_of", "reading", "verdict"]

MANY = 1000.0
"""Times the floor from which on the number says no more: the floor is next to nothing."""
GRADE = pl.Enum(LABELS)
PolarsType = DataType | DataTypeClass

Grades = npt.NDArray[np.int64]


def grade(frame: pl.DataFrame, floors_of_gaps: Floors | None = None) -> pl.DataFrame:
    """One row per step: severity and the signal, gap, value, floor and reading that decided it.

    frame: a metric_frame by step. Among equals the earlier signal of SIGNALS decides, then the earlier gap; a healthy
    step shows its KL. Steps on which nothing could be graded are left out.
    """
    graded = grade_signals(frame, floors_of_gaps)
    decided = pl.col("severity").to_physical()
    shown = (pl.col("signal") != "kl_k3").cast(pl.Int8)
    order = pl.when(decided == 0).then(shown).otherwise(0)
    deciding = (
        graded.with_columns(_order=order, _decided=decided)
        .sort("step", "_decided", "_order", descending=[False, True, False], maintain_order=True)
        .group_by("step", maintain_order=True)
        .first()
    )
    readings = pl.Series(
        [reading(_SIGNAL[row["signal"]], row) for row in deciding.iter_rows(named=True)], dtype=pl.String
    )
    return deciding.select(pl.exclude("at_least", "_order", "_decided")).with_columns(reading=readings)


def grade_signals(frame: pl.DataFrame, floors_of_gaps: Floors | None = None) -> pl.DataFrame:
    """One row per step, signal and gap that could be graded: severity, value, tested, threshold, floor, at_least.

    floors_of_gaps: those of the run, where the frame is of a part of it, or tells nothing of lags; else those of the frame.
    tested: the value less its uncertainty, in the signal's own terms; threshold: the one it reached, else the watch one;
    at_least: whether the value is a lower bound. Rows come in the order in which signals and gaps decide, see `grade`.
    """
    known = floors(frame) if floors_of_gaps is None else floors_of_gaps
    ordered = frame.sort("step")
    parts = [
        _graded(ordered, signal, gap, known.get(gap, np.nan))
        for signal in SIGNALS
        for gap in signal.gaps
        if f"{gap}/tokens" in ordered.columns
    ]
    return pl.concat(parts) if parts else pl.DataFrame(schema=_SCHEMA)


def reading(signal: Signal, row: Mapping[str, Any]) -> str:
    """What the signal says of a row of grade_signals. Made for the rows that are told: there are many more than those."""
    value, floor = row["value"], np.nan if row["floor"] is None else row["floor"]
    times = f"over {MANY:.0f}" if value > MANY * floor else f"{value / floor if floor else 1:.1f}"
    least = "at least " if row["at_least"] else ""
    return f"{row['gap']}: " + signal.shown.format(value=value, floor=floor, times=times, least=least)


def verdict(grades: pl.DataFrame) -> Finding:
    """What is wrong with the run, since when, how sure, and what to try: the worst grade of `grade`'s rows.

    Of several signals at the worst grade the one that decided most steps speaks; `since_step` is the first step at that
    grade, whichever signal said so. Confidence is of how often: high from three steps on, medium for two, low for one.
    """
    if not len(grades):
        return Finding(
            Severity.HEALTHY, "nothing could be graded", "", "", None, "low", "No step has both sides of a gap.",
            "There is no evidence of anything.", "Record the logprobs of two policies.",
        )  # fmt: skip
    worst = Severity(int(grades["severity"].to_physical().max()))  # type: ignore[arg-type]
    at_worst = grades.filter(pl.col("severity") == worst.label)
    if worst == Severity.HEALTHY:
        return _healthy(grades)
    counted = at_worst.group_by("signal", "gap", maintain_order=True).agg(pl.len())
    row = counted.sort("len", descending=True, maintain_order=True).row(0, named=True)
    signal = _SIGNAL[row["signal"]]
    own = at_worst.filter(signal=row["signal"], gap=row["gap"])
    peak = own.sort("tested", descending=True).row(0, named=True)
    first = int(at_worst.filter(gap=row["gap"])["step"].min())  # type: ignore[arg-type]
    evidence = (
        f"{peak['reading']} at step {peak['step']}; {len(at_worst)} of {len(grades)} steps are graded {worst.label}"
        f"{'' if len(own) == len(at_worst) else f', {len(own)} of them by this signal'}"
    )
    return Finding(
        worst, signal.title, signal.name, row["gap"], first, _confidence(len(at_worst)),
        f"{evidence}{_approach(grades, row['gap'], first)}.", signal.meaning, signal.remedy,
    )  # fmt: skip


def _approach(grades: pl.DataFrame, gap: str, since: int) -> str:
    """Since when the gap was out of bounds before it was graded worst: the steps right before `since` that were not healthy."""
    before = grades.filter((pl.col("step") < since) & (pl.col("gap") == gap)).sort("step", descending=True)
    steps = []
    for step, severity in zip(before["step"], before["severity"], strict=True):
        if severity == Severity.HEALTHY.label:
            break
        steps.append(step)
    return f", and it was out of bounds from step {steps[-1]} on" if steps else ""


def _healthy(grades: pl.DataFrame) -> Finding:
    peak = grades.sort("value", descending=True, nulls_last=True).row(0, named=True)
    among = f"the highest of {len(grades)} steps" if len(grades) > 1 else "the only step"
    return Finding(
        Severity.HEALTHY, "no signal is out of its bounds", peak["signal"], peak["gap"], None, _confidence(len(grades)),
        f"{peak['reading']} at step {peak['step']}, {among}.",
        "The engines differ by no more than their precision explains.", "Nothing.",
    )  # fmt: skip


def _confidence(steps: int) -> Confidence:
    return "high" if steps >= 3 else "medium" if steps == 2 else "low"


_SCHEMA: dict[str, PolarsType] = {
    "step": pl.Int64, "signal": pl.String, "gap": pl.String, "severity": GRADE, "value": pl.Float64, "tested": pl.Float64,
    "threshold": pl.Float64, "floor": pl.Float64, "at_least": pl.Boolean,
}  # fmt: skip
_SIGNAL = {signal.name: signal for signal in SIGNALS}


def _graded(frame: pl.DataFrame, signal: Signal, gap: str, floor: float) -> pl.DataFrame:
    """The rows of one signal of one gap."""
    with np.errstate(all="ignore"):
        measured = signal.measure(_columns(frame, gap), np.full(len(frame), floor))
    kept = np.flatnonzero(~np.isnan(measured.tested))
    grades = grades_of(signal, measured.tested[kept])
    reached = np.where(grades == Severity.ACT, np.nan if signal.act is None else signal.act, signal.watch)
    floors_shown = np.full(len(frame), np.nan) if measured.floor is None else measured.floor
    bounds = np.zeros(len(frame), np.bool_) if measured.bound is None else measured.bound
    return (
        pl.DataFrame(
            {
                "step": frame["step"].gather(kept).cast(pl.Int64),
                "severity": pl.Series(np.array(LABELS)[grades], dtype=pl.String).cast(GRADE),
                "value": measured.value[kept],
                "tested": measured.tested[kept],
                "threshold": reached,
                "floor": pl.Series(floors_shown[kept], nan_to_null=True),
                "at_least": bounds[kept],
            }
        )
        .with_columns(pl.lit(signal.name).alias("signal"), pl.lit(gap).alias("gap"))
        .select(list(_SCHEMA))
    )


def grades_of(signal: Signal, tested: Values) -> Grades:
    """The grade of each step; of a lasting signal, the highest that a neighbouring step reaches too."""
    grades = (tested >= signal.watch).astype(np.int64)
    if signal.act is not None:
        grades += tested >= signal.act
    if not signal.lasting:
        return grades
    padded = np.concatenate(([0], grades, [0]))
    return np.minimum(grades, np.maximum(padded[:-2], padded[2:]))


def _columns(frame: pl.DataFrame, gap: str) -> Callable[[str], Values]:
    def column(metric: str) -> Values:
        name = f"{gap}/{metric}"
        if name not in frame.columns:
            return np.full(len(frame), np.nan)
        return frame[name].cast(pl.Float64).to_numpy()

    return column
