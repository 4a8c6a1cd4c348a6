"""A table that grows by steps: only the rows of steps whose ingredients changed are made again."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ratioscope.record import GAPS

Ingredients = Mapping[int, Hashable]
"""step -> what its rows are made of; equal values make equal rows."""


@dataclass(frozen=True)
class ByStep:
    """A table with a column `step`, and what it was made of."""

    ingredients: Ingredients
    frame: pl.DataFrame


def grown(
    before: ByStep | None, now: Ingredients, fresh: Callable[[set[int]], pl.DataFrame], order: Sequence[str]
) -> ByStep:
    """The table for `now`, sorted by `order`. fresh: steps -> their rows."""
    if before is None or not before.ingredients:
        return ByStep(now, fresh(set(now)))
    changed = {step for step, made_of in now.items() if not _same(before.ingredients.get(step), made_of)}
    stale = changed | (set(before.ingredients) - set(now))
    if not stale:
        return before
    kept = before.frame.filter(~pl.col("step").is_in(list(stale)))
    frame = pl.concat([part for part in (kept, fresh(changed)) if len(part)] or [kept], how="diagonal_relaxed")
    return ByStep(now, frame.select(_in_order(frame.columns)).sort(order, nulls_last=True))


def _same(before: Hashable, now: Hashable) -> bool:
    return before is now or before == now


def _in_order(columns: Sequence[str]) -> list[str]:
    """Columns of one gap together, gaps as they are declared: a gap may turn up late in a run."""
    measured = [name for gap in GAPS for name in columns if name.startswith(f"{gap}/")]
    return [name for name in columns if name not in set(measured)] + measured
