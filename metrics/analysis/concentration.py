"""The concentration of the gap in buckets of a slice: the fewest tokens that have half of it."""

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

HALF = 0.5
LEAST = 2.0
"""Times its share of the tokens that the share of the gap must be; below it the gap counts as spread."""
ERRORS = 2.0
"""Standard errors by which the buckets must exceed the other tokens."""


@dataclass(frozen=True)
class Concentration:
    """The buckets that have half of the gap in the fewest tokens."""

    keys: tuple[str, ...]
    """Keys of the buckets, in the order of the slice."""
    labels: tuple[str, ...]
    """The keys in words."""
    share_of_gap: float
    """In [0, 1]."""
    share_of_tokens: float
    """In [0, 1]."""
    is_range: bool
    """True if the buckets follow each other in the order of the slice."""

    @property
    def times(self) -> float:
        """The gap per token of these buckets / that of all tokens."""
        return self.share_of_gap / self.share_of_tokens


def concentration(parts: pl.DataFrame) -> Concentration | None:
    """From rows of `slice_parts` by the size metric; None if the gap is spread, or if its errors do not show more.

    Buckets are taken by their gap per token, the largest first, until they have half of the gap. A bucket without a known
    error is left out, because a few tokens with one outlier would win.
    """
    known = parts.filter(
        pl.col("key").is_not_null() & (pl.col("share_of_gap") > 0) & (pl.col("share_of_tokens") > 0)
    ).filter(pl.col("error").is_finite().fill_null(value=False))
    if len(known) < 2:
        return None
    order = (known["share_of_gap"] / known["share_of_tokens"]).arg_sort(descending=True)
    taken = known[order]
    needed = int(np.searchsorted(taken["share_of_gap"].cum_sum().to_numpy(), HALF)) + 1
    if needed >= len(parts):
        return None
    chosen = taken.head(needed)
    placed = parts.with_row_index("place").filter(pl.col("key").is_in(chosen["key"].implode()))
    result = Concentration(
        tuple(placed["key"]),
        tuple(placed["label"]),
        share_of_gap=float(chosen["share_of_gap"].sum()),
        share_of_tokens=float(chosen["share_of_tokens"].sum()),
        is_range=placed["place"][-1] - placed["place"][0] == len(placed) - 1,
    )
    return result if result.share_of_gap >= HALF and result.times >= LEAST and _beyond_noise(parts, chosen) else None


def _beyond_noise(parts: pl.DataFrame, chosen: pl.DataFrame) -> bool:
    """True if the mean of the chosen buckets exceeds that of the others by more than their errors."""
    others = parts.filter(~pl.col("key").is_in(chosen["key"].implode()))
    (mean, error), (other, other_error) = _mean(chosen), _mean(others)
    return mean - other > ERRORS * math.hypot(error, other_error)


def _mean(parts: pl.DataFrame) -> tuple[float, float]:
    """The mean over the tokens of the buckets, with its standard error; an unknown error counts as 0."""
    tokens = parts["tokens"].to_numpy()
    values, errors = (parts[name].fill_null(0.0).to_numpy() for name in ("value", "error"))
    total = float(tokens.sum())
    return float(values @ tokens / total), float(np.sqrt(((errors * tokens) ** 2).sum()) / total)
