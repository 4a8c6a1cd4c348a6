"""Tables that grow with a run. Each knows what its rows are made of, and has a copy in the cache for the next start.

A table makes only the rows of those steps again whose ingredients have changed. `benchmarks/open_run.py` shows what the tables in
memory save ("metrics by step, again"); `benchmarks/dashboard.py` shows what the copies save ("a second start").
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from ratioscope.record import GAPS

from .kept_tables import MADE_OF, NO_ROWS, KeptTable, name_of

Ingredients = Mapping[int, Hashable]
"""step -> what its rows are made of: versions of segments and jobs. Equal ingredients give equal rows."""
IngredientNames = Callable[[], Mapping[Hashable, str]]
"""Ingredients -> their name, which is the same at a later start. Ingredients without a checked digest have no name."""
StepBlock = tuple[tuple[int, ...], tuple[Hashable, ...]]
"""Some consecutive steps, and what their rows are made of."""


@dataclass(frozen=True)
class ByStep:
    """A table with a column `step`."""

    ingredients: Ingredients
    frame: pl.DataFrame


def grown(
    before: ByStep | None, now: Ingredients, fresh: Callable[[set[int]], pl.DataFrame], order: Sequence[str]
) -> ByStep:
    """The table for the ingredients `now`, sorted by `order`. fresh: makes the rows of some steps."""
    if before is None or not before.ingredients:
        return ByStep(now, fresh(set(now)))
    if before.ingredients == now:
        return before
    changed = {step for step, made_of in now.items() if not _same(before.ingredients.get(step), made_of)}
    stale = changed | (set(before.ingredients) - set(now))
    if not stale:
        return before
    unchanged = before.frame.filter(~pl.col("step").is_in(list(stale)))
    parts = [part for part in (unchanged, fresh(changed)) if len(part)] or [unchanged]
    frame = pl.concat(parts, how="diagonal_relaxed")
    return ByStep(now, frame.select(in_order_of_gaps(frame.columns)).sort(order, nulls_last=True))


@dataclass
class StepTable:
    """A table with rows by step: a frame of metrics."""

    kept: KeptTable
    """Its copy in the cache."""
    order: Sequence[str]
    """Columns to sort by."""
    _table: ByStep | None = None
    """The newest rows; None before the first call."""

    def frame(
        self, now: Ingredients, fresh: Callable[[set[int]], pl.DataFrame], names: IngredientNames
    ) -> pl.DataFrame:
        """The rows for the ingredients `now`. fresh: makes the rows of some steps."""
        self._table = grown(self._table or self._from_copy(now, names), now, fresh, self.order)
        if self.kept.is_due(len(now)):
            self.kept.keep(_with_names(self._table.frame, _names_by_step(now, names)), len(now))
        return self._table.frame

    def _from_copy(self, now: Ingredients, names: IngredientNames) -> ByStep | None:
        """The rows of the copy that would be made today; None where there are none."""
        if not self.kept.is_worth_reading(len(now)):
            return None
        named = _names_by_step(now, names)
        rows = self.kept.load(named[MADE_OF])
        if rows is None or rows.is_empty() or NO_ROWS not in rows.columns:
            return None
        alike = named.with_columns(pl.col(MADE_OF).cast(rows.schema[MADE_OF]))  # texts are slow to compare
        same = rows.join(alike, on=["step", MADE_OF], how="semi", maintain_order="left")
        steps = same["step"].unique().to_list()
        self.kept.steps = len(steps)
        return ByStep({step: now[step] for step in steps}, same.filter(~pl.col(NO_ROWS)).drop(MADE_OF, NO_ROWS))


@dataclass
class BlockTable:
    """Statistics of one slice, merged over blocks of steps: a growing run merges its newest block only."""

    kept: KeptTable
    """Its copy in the cache."""
    _rows: dict[StepBlock, pl.DataFrame] = field(default_factory=dict)
    _is_loaded: bool = False
    """True once the copy was read, or is not needed any more."""

    def rows(self, blocks: Sequence[StepBlock], steps: int, names: IngredientNames) -> Mapping[StepBlock, pl.DataFrame]:
        """Rows of blocks, from memory or from the copy. steps: an upper bound of the steps in all blocks."""
        if not self._is_loaded and self.kept.is_worth_reading(steps):
            self._rows = self._from_copy(blocks, names)
        return self._rows

    def replace(self, rows: dict[StepBlock, pl.DataFrame], steps: int, names: IngredientNames) -> None:
        """Takes the rows of all blocks. steps: the number of steps in them."""
        self._rows, self._is_loaded = rows, True
        if not self.kept.is_due(steps):
            return
        named = [  # a block without rows is kept as a name beside nulls, so that it need not be made again
            rows[block].with_columns(pl.lit(name).alias(MADE_OF))
            if len(rows[block])
            else pl.DataFrame({MADE_OF: [name]})
            for name, block in _block_names(rows, names()).items()
        ]
        every = [next(iter(rows.values())).clear(), *named]
        self.kept.keep(pl.concat(every, how="diagonal_relaxed") if named else None, steps)

    def _from_copy(self, blocks: Sequence[StepBlock], names: IngredientNames) -> dict[StepBlock, pl.DataFrame]:
        by_name = _block_names(blocks, names())
        rows = self.kept.load(by_name)
        if rows is None or rows.is_empty():
            return {}
        self.kept.steps = rows[MADE_OF].n_unique() * max((len(steps) for steps, _ in blocks), default=0)
        known = rows.filter(pl.col("gap").is_not_null())
        parts = known.partition_by(MADE_OF, maintain_order=True, include_key=False, as_dict=True)
        empty = rows.drop(MADE_OF).clear()
        return {by_name[str(name)]: parts.get((name,), empty) for name in rows[MADE_OF].unique(maintain_order=True)}


def _names_by_step(now: Ingredients, names: IngredientNames) -> pl.DataFrame:
    """Columns step and MADE_OF, for steps whose ingredients have a name."""
    name_by_ingredients = names()
    named = {step: name_by_ingredients[made_of] for step, made_of in now.items() if made_of in name_by_ingredients}
    schema = {"step": pl.Int64, MADE_OF: pl.String}
    return pl.DataFrame({"step": list(named), MADE_OF: list(named.values())}, schema=schema)


def _with_names(frame: pl.DataFrame, named: pl.DataFrame) -> pl.DataFrame:
    """The rows of steps that have a name, with it. A step without rows has one of nulls, so that it need not be made again."""
    rows = frame.join(named, on="step", how="inner", maintain_order="left").with_columns(pl.lit(False).alias(NO_ROWS))
    without = named.join(frame, on="step", how="anti").with_columns(pl.lit(True).alias(NO_ROWS))
    return pl.concat([rows, without], how="diagonal_relaxed")


def _block_names(blocks: Iterable[StepBlock], names: Mapping[Hashable, str]) -> dict[str, StepBlock]:
    """Name -> block, for blocks of which all ingredients have a name."""
    return {
        name_of(steps, *(names[source] for source in made_of)): (steps, made_of)
        for steps, made_of in blocks
        if all(source in names for source in made_of)
    }


def _same(before: Hashable, now: Hashable) -> bool:
    return before is now or before == now


def in_order_of_gaps(columns: Sequence[str]) -> list[str]:
    """Columns of one gap together, in the order of GAPS: a gap may turn up late in a run."""
    by_gap = [name for gap in GAPS for name in columns if name.startswith(f"{gap}/")]
    return [name for name in columns if name not in set(by_gap)] + by_gap
