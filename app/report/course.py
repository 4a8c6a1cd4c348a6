"""The course of a run in words: spells of steps with one severity."""

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import polars as pl


@dataclass(frozen=True)
class Spell:
    """Consecutive graded steps of one severity. signal, gap, reading: of its most severe step, the first of equals."""

    severity: str
    first: int
    last: int
    steps: int
    signal: str
    gap: str
    peak: int
    reading: str


def spells(grades: pl.DataFrame) -> tuple[Spell, ...]:
    """The spells in order of steps. A run that swings at every step gives as many spells as steps."""
    rows = grades.sort("step").iter_rows(named=True)
    return tuple(_spell(list(part)) for _, part in groupby(rows, key=lambda row: str(row["severity"])))


def _spell(rows: list[dict[str, Any]]) -> Spell:
    peak = max(rows, key=lambda row: row["tested"] / row["threshold"])  # signals have scales of their own
    first, last = rows[0]["step"], rows[-1]["step"]
    return Spell(
        str(peak["severity"]), first, last, len(rows), peak["signal"], peak["gap"], peak["step"], peak["reading"]
    )
