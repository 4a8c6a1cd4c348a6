"""Alerts: periods in which a signal was out of its bounds, opened and closed with hysteresis.

Without hysteresis a signal that moves around its threshold would raise an alert at every other step. An alert opens when the
signal was graded watch or worse on `open_after` graded steps in a row. It closes when the tested value was calm, that is well
below the watch threshold, on `close_after` graded steps in a row. Steps without a grade are skipped.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import polars as pl

from ratioscope.arrays import Booleans, Integers

from ..metric import ALL_GAPS
from ..step_holes import holes
from .finding import Severity
from .severity import GRADE, grades_of, reading, worst_of
from .signals import SIGNALS, Signal


@dataclass(frozen=True)
class Rules:
    """When an alert opens and closes. The three numbers are conventions."""

    open_after: int = 2
    """Number of graded steps in a row out of bounds that open an alert: two, because one may be chance."""
    close_after: int = 5
    """Calm graded steps in a row that close it: five, so that a short pause does not split an alert."""
    hysteresis: float = 0.2
    """A signal is calm if it lies below the watch threshold by at least this share of the threshold."""
    signals: tuple[Signal, ...] = SIGNALS

    def __post_init__(self) -> None:
        if self.open_after < 1 or self.close_after < 1 or not 0 <= self.hysteresis < 1:
            raise ValueError(f"wanted open_after >= 1, close_after >= 1 and 0 <= hysteresis < 1, found {self}")

    def signal(self, name: str) -> Signal:
        """The signal of this name, with the thresholds of these rules."""
        return next(signal for signal in self.signals if signal.name == name)


RULES = Rules()
Spells = tuple[tuple[int, int, Severity], ...]
"""(first step, last step, grade) of each spell of equal grades above healthy, by step."""


@dataclass(frozen=True)
class Alert:
    """A period in which one signal of one gap was out of its bounds."""

    signal: Signal
    gap: str
    severity: Severity
    """The worst grade that the signal kept for `open_after` graded steps in a row."""
    first_step: int
    """The first step out of bounds."""
    last_step: int
    """The last step that was not calm."""
    closed_at: int | None
    """The calm step that closed the alert; None while it is open."""
    steps: int
    """The number of graded steps out of bounds."""
    peak_step: int
    """The worst step, see `severity.worst_of`."""
    peak: float
    """The signal's value at the worst step."""
    reading: str
    """The signal's value at the worst step, in words."""
    outside: Spells
    """The spells of equal grades out of bounds."""
    first_reading: str
    """The signal's value at first_step, in words."""
    also: tuple[str, ...] = ()
    """Other gaps with the same alert, see `merged_gaps`."""

    @property
    def gaps(self) -> str:
        """The gaps in words."""
        return ", ".join((self.gap, *self.also))

    @property
    def is_open(self) -> bool:
        return self.closed_at is None


@dataclass(frozen=True)
class _AlertRows:
    """The rows of a series between which an alert was open."""

    first: int
    """The first row out of bounds."""
    last: int
    """The last row that was not calm."""
    closed: int | None
    """The calm row that closed the alert; None while it is open."""
    severity: Severity


def alerts(graded: pl.DataFrame, rules: Rules = RULES) -> tuple[Alert, ...]:
    """The alerts of a run, ordered by first step, then by the order of the signals.

    graded: grade_signals of the run; its column `tested` is graded again by the rules. Later steps never change a closed
    alert, because the floor of a run depends on its first steps alone.
    """
    place = {signal.name: at for at, signal in enumerate(rules.signals)}
    series = graded.filter(pl.col("signal").is_in(list(place))).sort("step", maintain_order=True)
    alerts_of_run: list[Alert] = []
    for (name, gap), rows in series.group_by("signal", "gap", maintain_order=True):
        alerts_of_run += _alerts_of(rows, rules.signals[place[str(name)]], str(gap), rules)
    return tuple(sorted(alerts_of_run, key=lambda a: (a.first_step, place[a.signal.name], ALL_GAPS.index(a.gap))))


def merged_gaps(alerts: Sequence[Alert]) -> tuple[Alert, ...]:
    """The alerts, with those of one signal that overlap in their steps merged: one happening, seen in several gaps.

    A merged alert has the steps of all and the worst severity, the peak of the gap that is worst (the first of equals), and the
    other gaps in `also`. Its number of steps out of bounds is that of the gap with most. Two alerts of one gap are never merged.
    """
    happenings: list[list[Alert]] = []
    newest: dict[str, list[Alert]] = {}
    for alert in sorted(alerts, key=lambda each: each.first_step):
        together = newest.get(alert.signal.name)
        if together is None or not _overlap(together, alert):
            newest[alert.signal.name] = together = []
            happenings.append(together)
        together.append(alert)
    return tuple(_merged(together) for together in happenings)


def _overlap(together: Sequence[Alert], alert: Alert) -> bool:
    """True if the alert begins before the last of these ends, and none of these is of its gap."""
    last = max(each.last_step for each in together)
    return alert.first_step <= last and all(each.gap != alert.gap for each in together)


def _merged(together: Sequence[Alert]) -> Alert:
    """One alert of these, which are ordered by their first steps."""
    if len(together) == 1:
        return together[0]
    worst = max(together, key=lambda each: (each.severity, -ALL_GAPS.index(each.gap)))
    gaps = sorted((each.gap for each in together if each is not worst), key=ALL_GAPS.index)
    ends = [each.closed_at for each in together]
    return replace(
        worst,
        first_step=together[0].first_step,
        last_step=max(each.last_step for each in together),
        closed_at=None if None in ends else max(end for end in ends if end is not None),
        steps=max(each.steps for each in together),
        outside=_united([each.outside for each in together]),
        first_reading=together[0].first_reading,
        also=tuple(gaps),
    )


def _united(spells: Sequence[Spells]) -> Spells:
    """The spells of several gaps as one list: the worst grade at each step."""
    if len(set(spells)) == 1:
        return spells[0]
    cuts = sorted({cut for own in spells for first, last, _ in own for cut in (first, last + 1)})
    by_gap = [_grade_at_each(own, cuts) for own in spells]
    united: list[tuple[int, int, Severity]] = []
    for (first, after), grades in zip(pairwise(cuts), zip(*by_gap, strict=True), strict=False):
        grade = max((grade for grade in grades if grade is not None), default=None)
        if grade is None:
            continue
        if united and united[-1][1] == first - 1 and united[-1][2] == grade:
            first = united.pop()[0]
        united.append((first, after - 1, grade))
    return tuple(united)


def _grade_at_each(spells: Spells, steps: Iterable[int]) -> Iterator[Severity | None]:
    """The grade of the spell that each of these ascending steps lies in. spells: of one gap, ascending."""
    rest = iter(spells)
    spell = next(rest, None)
    for step in steps:
        while spell is not None and spell[1] < step:
            spell = next(rest, None)
        yield spell[2] if spell is not None and spell[0] <= step else None


def alert_frame(alerts: Sequence[Alert]) -> pl.DataFrame:
    """One row per alert, in the given order; columns as the fields of Alert."""
    rows = [
        (a.severity.label, a.signal.name, a.gaps, a.first_step, a.last_step, a.closed_at, a.steps, a.peak_step, a.peak, a.reading)
        for a in alerts
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _alerts_of(rows: pl.DataFrame, signal: Signal, gap: str, rules: Rules) -> Iterator[Alert]:
    tested = rows["tested"].to_numpy()
    grades = grades_of(signal, tested)
    if not grades.any():
        return
    steps = rows["step"]
    for opened in _alert_rows(grades, tested < signal.watch * (1 - rules.hysteresis), rules):
        within = slice(opened.first, opened.last + 1)
        peak = opened.first + worst_of(signal, rows[within])
        yield Alert(
            signal,
            gap,
            opened.severity,
            steps[opened.first],
            steps[opened.last],
            None if opened.closed is None else steps[opened.closed],
            int((grades[within] > 0).sum()),
            steps[peak],
            rows["value"][peak],
            reading(signal, rows.row(peak, named=True)),
            _spells_outside(grades[within], steps[within].to_numpy()),
            reading(signal, rows.row(opened.first, named=True)),
        )


def _spells_outside(grades: Integers, steps: Integers) -> Spells:
    """(first step, last step, grade) of each spell of equal grades above healthy.

    A spell also ends where steps are missing.
    """
    breaks = np.union1d(np.flatnonzero(np.diff(grades)), holes(steps)) + 1
    spells = np.split(np.arange(len(grades)), breaks)
    return tuple(
        (int(steps[rows[0]]), int(steps[rows[-1]]), Severity(int(grades[rows[0]])))
        for rows in spells
        if grades[rows[0]]
    )


def _alert_rows(grades: Integers, calm: Booleans, rules: Rules) -> Iterator[_AlertRows]:
    """The alerts of one series, as rows of it, in order. No row is both calm and graded above healthy."""
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
            yield _AlertRows(first, last, row, severity)
            first, quiet = -1, 0
    if first >= 0:
        yield _AlertRows(first, last, None, severity)


_SCHEMA = pl.Schema(
    {
        "severity": GRADE, "signal": pl.String(), "gap": pl.String(), "first_step": pl.Int64(), "last_step": pl.Int64(),
        "closed_at": pl.Int64(), "steps": pl.Int64(), "peak_step": pl.Int64(), "peak": pl.Float64(), "reading": pl.String(),
    }
)  # fmt: skip
