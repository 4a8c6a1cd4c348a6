"""Severity per step: every signal of SIGNALS is graded for every gap, and the worst grade decides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from polars.datatypes import DataType, DataTypeClass

from ratioscope.arrays import Floats, Integers

from ..digits import digits, signed
from ..metric import SAMPLED
from .finding import LABELS, Severity
from .floor import Floors, floors
from .signals import SIGNALS, Signal

__all__ = [
    "SIGNALS",
    "Severity",
    "decided",
    "grade",
    "grade_signals",
    "grades_of",
    "ranks",
    "reading",
    "signal_named",
    "with_readings",
    "worst_of",
]

MANY = 1000.0
"""A value of more than so many times the floor is shown as "over 1000 times": the floor is nearly 0."""
GRADE = pl.Enum(LABELS)
PolarsType = DataType | DataTypeClass

Grades = Integers


def grade(frame: pl.DataFrame, floors_of_gaps: Floors | None = None) -> pl.DataFrame:
    """One row per step: its severity, and the signal, gap, value, floor and reading that decided it.

    frame: a metric_frame by step. Among equal grades the earlier signal of SIGNALS decides, then the earlier gap; a healthy
    step shows its KL. Steps without any grade are left out.
    """
    return with_readings(decided(grade_signals(frame, floors_of_gaps)))


def decided(graded: pl.DataFrame) -> pl.DataFrame:
    """The row of each step that decides its severity, in order of steps. graded: rows of grade_signals.

    A healthy row counts if its gap is one between sampler and trainer, and enough of the step is known. A step without such a
    row is left out, unless it has a fault.
    """
    rank = pl.col("severity").to_physical()
    counts = (rank > 0) | (pl.col("gap").is_in(SAMPLED) & pl.col("known"))
    shown = (pl.col("signal") != "kl_k3").cast(pl.Int8)
    return (
        graded.filter(counts)
        .with_columns(_rank=rank, _order=pl.when(rank == 0).then(shown).otherwise(0))
        .sort("step", "_rank", "_order", descending=[False, True, False], maintain_order=True)
        .group_by("step", maintain_order=True)
        .first()
        .drop("_rank", "_order")
    )


def with_readings(graded: pl.DataFrame) -> pl.DataFrame:
    """Rows of grade_signals with a column `reading`: the value in words."""
    readings = [reading(signal_named(row["signal"]), row) for row in graded.iter_rows(named=True)]
    return graded.with_columns(reading=pl.Series(readings, dtype=pl.String))


def grade_signals(
    frame: pl.DataFrame, floors_of_gaps: Floors | None = None, signals: Sequence[Signal] = SIGNALS
) -> pl.DataFrame:
    """One row per step, signal and gap that could be graded: severity, value, tested, threshold, floor, at_least.

    floors_of_gaps: the floors of the run; None: computed from the frame, which must then hold the run's first steps. tested:
    the value less its uncertainty, on the scale of the thresholds. threshold: the one that was reached, else that of watch.
    at_least: whether the value is a lower bound. known: whether enough of the step is known, so that a good value makes it
    healthy; here always true. signals: those to grade, with the thresholds in force. Rows are in the order in
    which signals and gaps decide, see `grade`.
    """
    of_gap = floors(frame) if floors_of_gaps is None else floors_of_gaps
    ordered = frame.sort("step")
    parts = [
        _graded(ordered, signal, gap, of_gap.get(gap, np.nan))
        for signal in signals
        for gap in signal.gaps
        if f"{gap}/tokens" in ordered.columns
    ]
    return pl.concat(parts) if parts else pl.DataFrame(schema=_SCHEMA)


def reading(signal: Signal, row: Mapping[str, Any]) -> str:
    """The value of a row of grade_signals in words, such as "mismatch: KL K3 is 0.2 nats/token".

    It is made for rows that are shown only: a run has many more rows than those.
    """
    value, floor = row["value"], np.nan if row["floor"] is None else row["floor"]
    times = f"over {MANY:.0f}" if value > MANY * floor else f"{value / floor if floor else 1:.1f}"
    most, ess = "at most " if row["at_least"] else "", digits(1 / (1 + max(value, 0.0)))  # of signals on 1/ess - 1
    words = {
        "size": digits(value),
        "signed": signed(value),
        "of": digits(floor),
        "times": times,
        "most": most,
        "ess": ess,
    }
    return f"{row['gap']}: " + signal.shown.format(value=value, floor=floor, **words)


def worst_of(signal: Signal, rows: pl.DataFrame) -> int:
    """The index of the worst of these rows of one signal and gap: the largest value at the highest grade, the first of equals.

    A signal that grades only lasting values is graded by single steps here.
    """
    return int(np.argmax(ranks(signal, rows)))


def ranks(signal: Signal, rows: pl.DataFrame) -> Grades:
    """The place of each of these rows in the order of `worst_of`, from 0; the worst one comes last."""
    tested = rows["tested"].to_numpy()
    grades = grades_of(replace(signal, lasting=False), tested)
    sizes = np.nan_to_num(signal.size(rows["value"].to_numpy()), nan=-np.inf, posinf=np.inf)
    places = np.empty(len(rows), np.int64)
    places[np.lexsort((-np.arange(len(rows)), sizes, grades))] = np.arange(len(rows))
    return places


def signal_named(name: str) -> Signal:
    """The signal of SIGNALS with this name."""
    return _SIGNAL[name]


_SCHEMA: dict[str, PolarsType] = {
    "step": pl.Int64, "signal": pl.String, "gap": pl.String, "severity": GRADE, "value": pl.Float64, "tested": pl.Float64,
    "threshold": pl.Float64, "floor": pl.Float64, "at_least": pl.Boolean, "known": pl.Boolean,
}  # fmt: skip
_SIGNAL = {signal.name: signal for signal in SIGNALS}


def _graded(frame: pl.DataFrame, signal: Signal, gap: str, floor: float) -> pl.DataFrame:
    """The rows of grade_signals for one signal of one gap."""
    with np.errstate(all="ignore"):
        measured = signal.measure(_columns(frame, gap), np.full(len(frame), floor))
    known = np.flatnonzero(~np.isnan(measured.tested))
    grades = grades_of(signal, measured.tested[known])
    reached = np.where(grades == Severity.ACT, np.nan if signal.act is None else signal.act, signal.watch)
    floors_shown = np.full(len(frame), np.nan) if measured.floor is None else measured.floor
    bounds = np.zeros(len(frame), np.bool_) if measured.bound is None else measured.bound
    return (
        pl.DataFrame(
            {
                "step": frame["step"].gather(known).cast(pl.Int64),
                "severity": pl.Series(np.array(LABELS)[grades], dtype=pl.String).cast(GRADE),
                "value": measured.value[known],
                "tested": measured.tested[known],
                "threshold": reached,
                "floor": pl.Series(floors_shown[known], nan_to_null=True),
                "at_least": bounds[known],
            }
        )
        .with_columns(pl.lit(signal.name).alias("signal"), pl.lit(gap).alias("gap"), pl.lit(True).alias("known"))
        .select(list(_SCHEMA))
    )


def grades_of(signal: Signal, tested: Floats) -> Grades:
    """The grade of each step, 0 to 2. For a lasting signal: the highest grade that a neighbouring step reaches too."""
    grades = (tested >= signal.watch).astype(np.int64)
    if signal.act is not None:
        grades += tested >= signal.act
    if not signal.lasting:
        return grades
    padded = np.concatenate(([0], grades, [0]))
    return np.minimum(grades, np.maximum(padded[:-2], padded[2:]))


def _columns(frame: pl.DataFrame, gap: str) -> Callable[[str], Floats]:
    def column(metric: str) -> Floats:
        name = f"{gap}/{metric}"
        if name not in frame.columns:
            return np.full(len(frame), np.nan)
        return frame[name].cast(pl.Float64).to_numpy()

    return column
