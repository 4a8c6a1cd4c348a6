"""Spells and episodes of a run: since when something was wrong, how bad it was, and whether it is over.

Every page and report takes its answers from here. A spell is a group of consecutive steps of one severity. The worst episode
is the alert with the worst value of the deciding signal. The deciding signal is the one that decided most steps at the worst
grade. Values are compared within one signal of one gap only, because signals have different scales.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import polars as pl

from ratioscope.arrays import Integers

from .alerts import RULES, Rules, alerts
from .finding import LABELS, Severity
from .severity import decided, ranks, reading, signal_named, worst_of


@dataclass(frozen=True)
class _Series:
    """The rows of one signal of one gap, by step."""

    rows: pl.DataFrame
    steps: Integers
    severities: Integers
    """The number of each row's severity."""
    ranks: Integers
    """The place of each row in the order from the best to the worst."""


_SeriesOfGaps = Mapping[tuple[str, str], _Series]
"""(signal, gap) -> its rows."""


@dataclass(frozen=True)
class Spell:
    """Consecutive graded steps of one severity."""

    severity: str
    first: int
    """The first step."""
    last: int
    """The last step."""
    steps: int
    """The number of graded steps."""
    signal: str
    """The signal that decided most of the steps."""
    gap: str
    peak: int
    """The step with the signal's worst value."""
    reading: str
    """That value in words."""


@dataclass(frozen=True)
class Episode:
    """The period around the worst value of a signal."""

    severity: Severity
    signal: str
    gap: str
    first: int
    """The first step out of bounds."""
    last: int
    """The last step out of bounds."""
    peak: int
    """The step with the worst value."""
    reading: str
    """That value in words."""
    over: bool
    """True if the signal was calm for long enough afterwards."""


def spells(graded: pl.DataFrame, rules: Rules = RULES) -> tuple[Spell, ...]:
    """The spells, ordered by step; as many as there are steps if the severity changes at every step.

    graded: grade_signals. rules: those by which it was graded.
    """
    parts = graded.sort("step", maintain_order=True).partition_by("signal", "gap", as_dict=True)
    series = {
        (str(signal), str(gap)): _Series(
            rows,
            rows["step"].to_numpy(),
            rows["severity"].to_physical().cast(pl.Int64).to_numpy(),
            ranks(rules.signal(str(signal)), rows),
        )
        for (signal, gap), rows in parts.items()
    }
    rows = decided(graded).select("step", "severity", "signal", "gap").iter_rows(named=True)
    return tuple(_spell(word, list(part), series) for word, part in groupby(rows, key=lambda row: str(row["severity"])))


def worst_episode(graded: pl.DataFrame, steps: pl.DataFrame, rules: Rules = RULES) -> Episode | None:
    """The worst episode of some steps; None if none of them is graded worse than healthy.

    graded: grade_signals of the whole run, for an episode may begin before these steps. steps: their rows of `decided`. rules:
    those by which the run was graded.
    """
    worst = steps.filter(pl.col("severity").to_physical() == steps["severity"].to_physical().max())
    if worst.is_empty() or worst["severity"][0] == Severity.HEALTHY.label:
        return None
    severity = Severity(int(worst["severity"].to_physical()[0]))
    signal, gap = _deciding(worst.select("signal", "gap").rows())
    own = graded.filter(signal=signal, gap=gap).sort("step")
    peak = _worst(own.filter(pl.col("step") >= steps["step"].min()), severity.label, rules)
    at = peak["step"]
    for alert in alerts(own, rules):
        if alert.first_step <= at <= alert.last_step:
            first, last, over = alert.first_step, alert.last_step, not alert.is_open
            return Episode(severity, signal, gap, first, last, alert.peak_step, alert.reading, over)
    over = len(own.filter(pl.col("step") > at)) >= rules.close_after
    return Episode(severity, signal, gap, at, at, at, _in_words(peak), over)


def worst_step(graded: pl.DataFrame, rules: Rules = RULES) -> int | None:
    """The step with the worst value; None if no step is graded worse than healthy."""
    episode = worst_episode(graded, decided(graded), rules)
    return None if episode is None else episode.peak


def _spell(word: str, rows: list[dict[str, Any]], series: _SeriesOfGaps) -> Spell:
    signal, gap = _deciding([(row["signal"], row["gap"]) for row in rows])
    own, first, last = series[signal, gap], rows[0]["step"], rows[-1]["step"]
    begin, end = np.searchsorted(own.steps, [first, last + 1])
    there = begin + np.flatnonzero(own.severities[begin:end] == LABELS.index(word))
    peak = own.rows.row(int(there[np.argmax(own.ranks[there])]), named=True)
    return Spell(word, first, last, len(rows), signal, gap, peak["step"], _in_words(peak))


def _deciding(of_steps: list[tuple[str, str]]) -> tuple[str, str]:
    """The (signal, gap) that decided most steps, the first of equals. of_steps: the deciding (signal, gap) of each step."""
    return max(dict.fromkeys(of_steps), key=of_steps.count)


def _worst(own: pl.DataFrame, severity: str, rules: Rules) -> dict[str, Any]:
    """The row with the worst value among those of this severity. own: the rows of one signal of one gap."""
    at = own.filter(pl.col("severity") == severity)
    return at.row(worst_of(rules.signal(at["signal"][0]), at), named=True)


def _in_words(row: Mapping[str, Any]) -> str:
    return reading(signal_named(row["signal"]), row)
