"""Alerts: stretches of steps on which a signal was out of its bounds, opened and closed with hysteresis.

A signal that wavers about its threshold would ring at every other step. So an alert opens only when the signal has been graded
watch or worse on `open_after` graded steps in a row, and closes only when what was tested has been well below the watch
threshold on `close_after` in a row. Steps on which a signal could not be graded count neither way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from ..metric import ALL_GAPS
from .finding import Severity
from .severity import GRADE, grades_of, reading, worst_of
from .signals import SIGNALS, Signal


@dataclass(frozen=True)
class Rules:
    """When an alert opens and closes. hysteresis: by which share of the watch threshold a signal must lie below it to be calm.

    The three numbers are conventions: two steps, because one may be chance; five, so that a pause is no end.
    """

    open_after: int = 2
    close_after: int = 5
    hysteresis: float = 0.2
    signals: tuple[Signal, ...] = SIGNALS

    def __post_init__(self) -> None:
        if self.open_after < 1 or self.close_after < 1 or not 0 <= self.hysteresis < 1:
            raise ValueError(f"wanted open_after >= 1, close_after >= 1 and 0 <= hysteresis < 1, found {self}")


RULES = Rules()


@dataclass(frozen=True)
class Alert:
    """One signal of one gap, out of its bounds from first_step to last_step.

    severity: the worst grade it held for `open_after` graded steps in a row. closed_at: the step at which it had been calm for
    long enough, None while it is open. steps: graded steps out of bounds; outside: first step, last step and grade of each
    stretch of them. peak, reading: at the worst step, see `worst_of`; first_reading: at first_step. also: other gaps that were
    out of bounds in the same steps, see `told_once`.
    """

    signal: Signal
    gap: str
    severity: Severity
    first_step: int
    last_step: int
    closed_at: int | None
    steps: int
    peak_step: int
    peak: float
    reading: str
    outside: tuple[tuple[int, int, Severity], ...]
    first_reading: str
    also: tuple[str, ...] = ()

    @property
    def gaps(self) -> str:
        """The gaps in words."""
        return ", ".join((self.gap, *self.also))

    @property
    def is_open(self) -> bool:
        return self.closed_at is None


@dataclass(frozen=True)
class _Stretch:
    """Rows of a series: first and last that were not calm, and the one at which it had been calm for long enough."""

    first: int
    last: int
    closed: int | None
    severity: Severity


def alerts(graded: pl.DataFrame, rules: Rules = RULES) -> tuple[Alert, ...]:
    """The alerts of a run, by first step, then in the order of the signals.

    graded: grade_signals of the run, whose `tested` is graded anew by the rules. What is appended to a series never changes
    an alert that is closed: a run's floor is of its first steps.
    """
    place = {signal.name: at for at, signal in enumerate(rules.signals)}
    series = graded.filter(pl.col("signal").is_in(list(place))).sort("step", maintain_order=True)
    found: list[Alert] = []
    for (name, gap), rows in series.group_by("signal", "gap", maintain_order=True):
        found += _alerts_of(rows, rules.signals[place[str(name)]], str(gap), rules)
    return tuple(sorted(found, key=lambda a: (a.first_step, place[a.signal.name], ALL_GAPS.index(a.gap))))


def told_once(found: Sequence[Alert]) -> tuple[Alert, ...]:
    """The alerts, those of one signal that agree in steps and severity as one: of the first gap, with the others beside it.

    Where old and current are nearly one policy, mismatch and total ring together, and say the same twice.
    """
    alike: dict[tuple[str, int, int, int | None, Severity], list[Alert]] = {}
    for a in found:
        alike.setdefault((a.signal.name, a.first_step, a.last_step, a.closed_at, a.severity), []).append(a)
    return tuple(replace(first, also=tuple(other.gap for other in others)) for first, *others in alike.values())


def alert_frame(found: Sequence[Alert]) -> pl.DataFrame:
    """One row per alert, in order; last_step and closed_at as in Alert."""
    rows = [
        (a.severity.label, a.signal.name, a.gaps, a.first_step, a.last_step, a.closed_at, a.steps, a.peak_step, a.peak, a.reading)
        for a in found
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _alerts_of(rows: pl.DataFrame, signal: Signal, gap: str, rules: Rules) -> Iterator[Alert]:
    tested = rows["tested"].to_numpy()
    grades = grades_of(signal, tested)
    if not grades.any():
        return
    steps = rows["step"]
    for stretch in _stretches(grades, tested < signal.watch * (1 - rules.hysteresis), rules):
        within = slice(stretch.first, stretch.last + 1)
        peak = stretch.first + worst_of(signal, rows[within])
        yield Alert(
            signal,
            gap,
            stretch.severity,
            steps[stretch.first],
            steps[stretch.last],
            None if stretch.closed is None else steps[stretch.closed],
            int((grades[within] > 0).sum()),
            steps[peak],
            rows["value"][peak],
            reading(signal, rows.row(peak, named=True)),
            _runs(grades[within], steps[within].to_numpy()),
            reading(signal, rows.row(stretch.first, named=True)),
        )


def _runs(grades: npt.NDArray[np.int64], steps: npt.NDArray[np.int64]) -> tuple[tuple[int, int, Severity], ...]:
    """First and last step of each run of equal grades that are not healthy, broken where steps lie further apart than usual."""
    apart = np.diff(steps)
    breaks = np.flatnonzero((np.diff(grades) != 0) | (apart > np.median(apart) if len(apart) else False)) + 1
    runs = np.split(np.arange(len(grades)), breaks)
    return tuple(
        (int(steps[run[0]]), int(steps[run[-1]]), Severity(int(grades[run[0]]))) for run in runs if grades[run[0]]
    )


def _stretches(grades: npt.NDArray[np.int64], calm: npt.NDArray[np.bool_], rules: Rules) -> Iterator[_Stretch]:
    """The stretches of one series, one after the other. calm and a grade above healthy exclude each other."""
    outside = held = quiet = 0
    first, last, severity = -1, -1, Severity.HEALTHY
    for row, (grade, is_calm) in enumerate(zip(grades.tolist(), calm.tolist(), strict=True)):
        outside = outside + 1 if grade >= Severity.WATCH else 0
        held = held + 1 if grade >= Severity.ACT else 0
        if first < 0:
            if outside < rules.open_after:
                continue
            first, severity = row - rules.open_after + 1, Severity.WATCH
        quiet = quiet + 1 if is_calm else 0
        last = last if is_calm else row
        severity = Severity.ACT if held >= rules.open_after else severity
        if quiet >= rules.close_after:
            yield _Stretch(first, last, row, severity)
            first, quiet = -1, 0
    if first >= 0:
        yield _Stretch(first, last, None, severity)


_SCHEMA = pl.Schema(
    {
        "severity": GRADE, "signal": pl.String(), "gap": pl.String(), "first_step": pl.Int64(), "last_step": pl.Int64(),
        "closed_at": pl.Int64(), "steps": pl.Int64(), "peak_step": pl.Int64(), "peak": pl.Float64(), "reading": pl.String(),
    }
)  # fmt: skip
