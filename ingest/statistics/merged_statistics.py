"""Statistics of a run merged over all its steps, block by block: a growing run merges its newest steps only."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import polars as pl

from ratioscope.layout import SEGMENT_STEPS
from ratioscope.metrics.definitions.tail import TAILS
from ratioscope.metrics.engines.slices import WRITTEN
from ratioscope.metrics.merging import KEYS, merge

from ..commits.visible_files import VisibleFiles
from ..files.progress import OnProgress
from .growing_table import BlockTable, Ingredients, StepBlock
from .kept_tables import KeptTable, KeptTables
from .run_statistics import SCALARS, RunStatistics

BLOCK = 4 * SEGMENT_STEPS
"""Steps merged at a time."""
TAIL_NAMES = tuple(tail.name for tail in TAILS)
_KEYS_WITHOUT_STEP = tuple(key for key in KEYS if key != "step")


@dataclass
class MergedStatistics:
    """Merges statistics of written slices over all steps, and keeps what each block of steps gave."""

    written: RunStatistics
    """Statistics of written slices, by step."""
    kept: KeptTables
    """Copies of the tables, for the next start."""
    _tables: dict[str, BlockTable] = field(default_factory=dict)
    """(slice and columns, as a text) -> its statistics by block."""
    _read: tuple[VisibleFiles, set[int], pl.DataFrame] | None = None
    """(visible files, steps, statistics of the slice `all`) that were just read, until they have been merged."""

    def offer(self, visible: VisibleFiles, steps: set[int], statistics: pl.DataFrame) -> None:
        """Lends statistics of the slice `all` that were just read for metrics by step, so that they are not read again."""
        self._read = visible, steps, statistics

    def over_steps(
        self, visible: VisibleFiles, slice_name: str, columns: Sequence[str], progress: OnProgress | None = None
    ) -> pl.DataFrame:
        """Statistics of a slice merged over all steps, by blocks of steps. progress: called before each that has to be merged.

        All written slices are merged together with the one that is asked for: a reader who looks at one looks at others next.
        """
        ingredients = self.written.ingredients(visible)
        names = partial(self.written.lasting_names, visible)
        blocks = _blocks(ingredients)
        slices = WRITTEN if slice_name in WRITTEN[1:] and tuple(columns) == SCALARS else (slice_name,)
        tables = {name: self._table(name, columns) for name in slices}
        cached = {name: table.rows(blocks, len(blocks) * BLOCK, names) for name, table in tables.items()}
        rows: dict[str, dict[StepBlock, pl.DataFrame]] = {name: {} for name in slices}
        for place, block in enumerate(blocks):
            missing = [name for name in slices if block not in cached[name]]
            if missing and progress is not None:
                progress(place * BLOCK, len(ingredients))
            fresh = self._merged_block(visible, missing, columns, set(block[0]))
            for name in slices:
                rows[name][block] = fresh[name] if name in fresh else cached[name][block]
        self._read = None
        for name, table in tables.items():
            table.replace(rows[name], len(ingredients), names)
        parts = list(rows[slice_name].values()) or [self.written.of(visible, (slice_name,), columns, set())]
        keys = [key for key in _KEYS_WITHOUT_STEP if key in parts[0].columns]
        return merge(pl.concat(parts, how="diagonal_relaxed"), keys)

    def _merged_block(
        self, visible: VisibleFiles, slices: Sequence[str], columns: Sequence[str], steps: set[int]
    ) -> dict[str, pl.DataFrame]:
        """slice -> its statistics merged over these steps. Merging all slices at once takes hardly longer than one of them."""
        if not slices:
            return {}
        merged = merge(self._of_block(visible, slices, columns, steps), _KEYS_WITHOUT_STEP)
        return {name: merged.filter(pl.col("slice") == name) for name in slices}

    def _of_block(
        self, visible: VisibleFiles, slices: Sequence[str], columns: Sequence[str], steps: set[int]
    ) -> pl.DataFrame:
        """Statistics of some slices. Those that metrics by step have just read are not read again."""
        if self._read is not None and tuple(columns) == SCALARS and "all" in slices:
            files, own, statistics = self._read
            if files is visible and steps <= own:
                others = [name for name in slices if name != "all"]
                rows = self._with_tails(visible, statistics.filter(pl.col("step").is_in(list(steps))), steps)
                parts = [self.written.of(visible, others, columns, steps)] if others else []
                return pl.concat([rows, *parts], how="diagonal")
        return self.written.of(visible, slices, columns, steps)

    def _with_tails(self, visible: VisibleFiles, rows: pl.DataFrame, steps: set[int]) -> pl.DataFrame:
        """The rows of these steps with tails, which metrics by step may do without."""
        if {*TAIL_NAMES} <= {*rows.columns}:
            return rows
        tails = self.written.of(visible, ("all",), TAIL_NAMES, steps)
        return rows.join(tails, on=KEYS, how="left", nulls_equal=True, maintain_order="left")

    def _table(self, slice_name: str, columns: Sequence[str]) -> BlockTable:
        what = f"merged {slice_name} {' '.join(columns)}"
        if what not in self._tables:
            self._tables[what] = BlockTable(KeptTable(self.kept, what, BLOCK))
        return self._tables[what]


def _blocks(ingredients: Ingredients) -> list[StepBlock]:
    """All steps in blocks of BLOCK steps, the rest in blocks of a segment's; each with what its rows are made of.

    A step that a growing run commits belongs to a small block: only the open segment of each rank is read for it.
    """
    ordered = sorted(ingredients)
    whole = len(ordered) // BLOCK * BLOCK
    starts = [*range(0, whole, BLOCK), *range(whole, len(ordered), SEGMENT_STEPS), len(ordered)]
    parts = [tuple(ordered[start:end]) for start, end in pairwise(starts)]
    return [(steps, tuple(dict.fromkeys(ingredients[step] for step in steps))) for steps in parts]
