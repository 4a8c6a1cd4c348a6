"""The course of a run: since when, how bad, and whether it is over. Every page and report tells these from here.

A run is told by spells, each of consecutive steps of one severity, and by its worst episode: the alert that holds the worst
reading of the signal that speaks for the run. A worst reading is looked for among the values of one signal of one gap, for
signals have scales of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import polars as pl

from .alerts import RULES, alerts
from .finding import Severity
from .severity import decided, reading, signal_named, worst_of

Series = Mapping[tuple[str, str], pl.DataFrame]
"""(signal, gap) -> its rows by step."""


@dataclass(frozen=True)
class Spell:
    """Consecutive graded steps of one severity. signal, gap: which decided most of them; peak, reading: where it was worst."""

    severity: str
    first: int
    last: int
    steps: int
    signal: str
    gap: str
    peak: int
    reading: str


@dataclass(frozen=True)
class Episode:
    """From its first step out of bounds to its last. peak: the step of the worst reading. over: calm for long enough since."""

    severity: Severity
    signal: str
    gap: str
    first: int
    last: int
    peak: int
    reading: str
    over: bool


def spells(graded: pl.DataFrame) -> tuple[Spell, ...]:
    """The spells in order of steps. A run that swings at every step gives as many spells as steps. graded: grade_signals."""
    series = _series(graded)
    rows = decided(graded).select("step", "severity", "signal", "gap").iter_rows(named=True)
    return tuple(_spell(word, list(part), series) for word, part in groupby(rows, key=lambda row: str(row["severity"])))


def worst_episode(graded: pl.DataFrame) -> Episode | None:
    """The episode that speaks for the run; None where every step is healthy, or none is graded.

    Of several signals at the worst grade the one that decided most steps speaks.
    """
    return _episode(graded, decided(graded))


def episode_now(graded: pl.DataFrame) -> Episode | None:
    """The episode that speaks for the newest steps, as many as close an alert; None where they are healthy."""
    return _episode(graded, decided(graded).tail(RULES.close_after))


def _episode(graded: pl.DataFrame, steps: pl.DataFrame) -> Episode | None:
    """The episode that speaks for these of the steps, by `decided`."""
    worst = steps.filter(pl.col("severity").to_physical() == steps["severity"].to_physical().max())
    if worst.is_empty() or worst["severity"][0] == Severity.HEALTHY.label:
        return None
    severity = Severity(int(worst["severity"].to_physical()[0]))
    signal, gap = _speaking(worst.select("signal", "gap").rows())
    own = graded.filter(signal=signal, gap=gap).sort("step")
    peak = _worst(own.filter(pl.col("step") >= steps["step"].min()), severity.label)
    at, told = peak["step"], _told(peak)
    for alert in alerts(own):
        if alert.first_step <= at <= alert.last_step:
            first, last, over = alert.first_step, alert.last_step, not alert.is_open
            return Episode(severity, signal, gap, first, last, alert.peak_step, alert.reading, over)
    over = len(own.filter(pl.col("step") > at)) >= RULES.close_after
    return Episode(severity, signal, gap, at, at, at, told, over)


def worst_step(graded: pl.DataFrame) -> int | None:
    """The step of the worst reading; None where every step is healthy."""
    found = worst_episode(graded)
    return None if found is None else found.peak


def _spell(word: str, rows: list[dict[str, Any]], series: Series) -> Spell:
    signal, gap = _speaking([(row["signal"], row["gap"]) for row in rows])
    own, first, last = series[signal, gap], rows[0]["step"], rows[-1]["step"]
    begin, end = np.searchsorted(own["step"].to_numpy(), [first, last + 1])
    peak = _worst(own[int(begin) : int(end)], word)
    return Spell(word, first, last, len(rows), signal, gap, peak["step"], _told(peak))


def _series(graded: pl.DataFrame) -> Series:
    parts = graded.sort("step", maintain_order=True).partition_by("signal", "gap", as_dict=True)
    return {(str(signal), str(gap)): rows for (signal, gap), rows in parts.items()}


def _speaking(deciding: list[tuple[str, str]]) -> tuple[str, str]:
    """The signal and gap that decided most steps, the first of equals."""
    return max(dict.fromkeys(deciding), key=deciding.count)


def _worst(own: pl.DataFrame, severity: str) -> dict[str, Any]:
    """The row of the worst reading of one signal of one gap, among those of this severity."""
    at = own.filter(pl.col("severity") == severity)
    return at.row(worst_of(signal_named(at["signal"][0]), at), named=True)


def _told(row: Mapping[str, Any]) -> str:
    return reading(signal_named(row["signal"]), row)
