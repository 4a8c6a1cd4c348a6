"""Reads the prompt tables of the runs on both sides of a comparison in the background: see step_job.py, run_comparison.py."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from ..analysis.run_comparison import PromptKey, PromptTable, merged_tables
from ..files.cache import Cache
from ..run import Run
from .step_job import StepJob


@dataclass(frozen=True)
class RunSteps:
    """The steps of one run that one side of the comparison reads."""

    side: str
    """A or B."""
    run: Run
    steps: range


class PairWork:
    """Reads the prompt tables of all parts. pieces: (index of the part, a step of it)."""

    def __init__(self, parts: Sequence[RunSteps], key: PromptKey, gap: str, cache: Cache) -> None:
        self._sides = [part.side for part in parts]
        self._tables = [PromptTable(part.run, part.steps, key, gap, cache) for part in parts]
        self.steps = [tuple(table.steps) for table in self._tables]
        self.pieces: Sequence[tuple[int, int]] = [
            (at, step) for at, table in enumerate(self._tables) for step in sorted(table.unread)
        ]

    def do(self, piece: tuple[int, int]) -> None:
        self._tables[piece[0]].read(piece[1])

    def save(self) -> None:
        for table in self._tables:
            table.save()

    def table(self, side: str) -> pl.DataFrame:
        """The prompt table of all runs of a side together, as far as it was read."""
        return merged_tables([table.total for own, table in zip(self._sides, self._tables, strict=True) if own == side])


PairJob = StepJob[PairWork]
