"""Tests that two statistics tables of the same rows agree, wherever and in whatever order they were computed.

A token's log-ratio has equal bits on every machine: it is one subtraction of two float32, which IEEE 754 rounds in one way.
Counts of log-ratios and their maximum are equal too. Everything else passes through exp, log or a sum. Its last bits depend on
the processor, the library and the order, so two tables agree within a tolerance. A sequence whose log-weight lies on the edge
of a bucket may be counted on either side: the total count is equal, and the weight at the edge moves with the sequence.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from ratioscope.arrays import Booleans, Floats, Integers, Matrix

from ..definitions.registry import LATER, STATISTICS
from ..definitions.tail import TAILS
from ..distribution import BUCKETS, EDGES, LEVELS, Level, histogram_columns
from ..merging import KEYS
from ..metric import Statistic

RELATIVE = 1e-9
"""Relative difference of float64 sums in another order, also of sums that are given by logarithms. A convention."""
CANCELLED = 1e-12
"""Rounding error per token of a sum whose terms cancel, for tokens of some nats each, with a hundredfold margin."""
SINGLE = 1e-6
"""Relative tolerance of tails: they are stored as float32, whose last bit may differ."""
WHOLE_BELOW = 2.0**43
"""A larger sum that is no count is a whole number by chance: float64 leaves it fewer than nine binary digits after the point."""
TOLERANCE = f"counts equal, other values within {RELATIVE:g} of theirs"


def disagreement(recorded: pl.DataFrame, computed: pl.DataFrame) -> str:
    """The first difference of two merged tables that rounding does not explain, in words; "" if there is none."""
    keys = list(KEYS)
    if not recorded.select(keys).equals(computed.select(keys)):
        only = recorded.select(keys).join(computed.select(keys), on=keys, how="anti", nulls_equal=True)
        return f"{len(recorded)} cells on record, {len(computed)} from the rows; {len(only)} only on record"
    return next((odd for look in (_of_statistics, _of_lists) for odd in look(recorded, computed)), "")


def _of_statistics(recorded: pl.DataFrame, computed: pl.DataFrame) -> Iterator[str]:
    present = {*recorded.columns} & {*computed.columns}
    unknown = {name for name in LATER & present if recorded[name].null_count() == len(recorded)}
    order = [s for s in STATISTICS if s.name in present - unknown]
    found, wanted = _matrix(recorded, order), _matrix(computed, order)
    with np.errstate(invalid="ignore"):  # the distance of two infinities
        # The largest difference from each value that rounding alone can cause.
        sizes, rows = (
            np.abs(np.where(np.isfinite(wanted), wanted, 0.0)),
            {statistic.name: row for statistic, row in zip(order, wanted, strict=True)},
        )
        terms = [rows["finite_tokens_x_finite_tokens" if s.level == "cluster" else "tokens"] for s in order]
        is_log = np.array([[statistic.combine == "logsumexp"] for statistic in order])
        of_sums = RELATIVE * sizes + CANCELLED * np.maximum(1.0, np.nan_to_num(terms))
        same = np.abs(found - wanted) <= np.where(is_log, RELATIVE * np.maximum(1.0, sizes), of_sums)
    same &= ~(_is_whole(found) & _is_whole(wanted))
    same |= (found == wanted) | np.isnan(found) & np.isnan(wanted)
    for column, row in np.argwhere(~same)[:1]:
        value, right = f"{found[column, row]:.9g}", f"{wanted[column, row]:.9g}"
        yield _told(recorded.row(int(row), named=True), order[column].name, value, right)


def _matrix(table: pl.DataFrame, order: Sequence[Statistic]) -> Matrix:
    """The values of these statistics, shape (statistics, cells); NaN for null."""
    names = [statistic.name for statistic in order]
    return table.select(pl.col(names).cast(pl.Float64).fill_null(float("nan"))).to_numpy().T


def _is_whole(values: Matrix) -> Booleans:
    """True for each value that is a whole number, as counts are. Two other sums are never whole, close and unequal at once."""
    whole: Booleans = (np.abs(values) < WHOLE_BELOW) & (values == np.rint(values))
    return whole


def _of_lists(recorded: pl.DataFrame, computed: pl.DataFrame) -> Iterator[str]:
    names = [name for names in (*map(histogram_columns, LEVELS), *((t.name,) for t in TAILS)) for name in names]
    if not {*names} <= {*recorded.columns} & {*computed.columns}:
        return
    cells = [table.select(*KEYS, *names).filter(_holds(names)) for table in (recorded, computed)]
    if len(cells[0]) != len(cells[1]):
        yield f"{len(cells[0])} cells with distributions on record, {len(cells[1])} from the rows"
    for one, other in zip(*(table.iter_rows(named=True) for table in cells), strict=False):
        for level in LEVELS:
            yield from _of_histograms(one, other, level)
        for tail in TAILS:
            yield from _of_tails(one, other, tail.name)


def _holds(names: list[str]) -> pl.Expr:
    return pl.any_horizontal(pl.col(names).is_not_null())


def _of_histograms(recorded: Mapping[str, Any], computed: Mapping[str, Any], level: Level) -> Iterator[str]:
    _, counts, *sums = histogram_columns(level)
    found, wanted = _by_bucket(recorded, level), _by_bucket(computed, level)
    if found is None or wanted is None:
        yield _told(recorded, counts, "no histogram", "one")
        return
    moved = np.cumsum(
        found[0] - wanted[0]
    )  # counts that cross each edge downwards; the last is the difference of the totals
    if moved[-1]:
        yield _told(recorded, counts, f"{found[0].sum():.0f} in all", f"{wanted[0].sum():.0f}")
        return
    for power, name in enumerate(sums, 1):
        odd = _unexplained(found[power], wanted[power], moved[:-1], power)
        if len(odd):
            at = int(odd[0])
            values = (f"{part[0, at]:.0f} of log-sum {part[power, at]:.9g}" for part in (found, wanted))
            yield _told(recorded, f"{name}, bucket {at}", *values)


def _by_bucket(cell: Mapping[str, Any], level: Level) -> Matrix | None:
    """Counts, log-sums of weights and of squared weights, shape (3, BUCKETS); None if the lists are not a histogram."""
    buckets, *values = (cell[name] or [] for name in histogram_columns(level))
    if {len(part) for part in values} != {len(buckets)} or any(None in part for part in (buckets, *values)):
        return None
    if len(set(buckets)) < len(buckets) or not all(0 <= bucket < BUCKETS for bucket in buckets):
        return None
    every = np.repeat([[0.0], [-np.inf], [-np.inf]], BUCKETS, axis=1)
    every[:, buckets] = np.asarray(values, np.float64).reshape(3, -1)
    return every


def _unexplained(found: Floats, wanted: Floats, moved: Floats, power: int) -> Integers:
    """Buckets whose summed weights differ by more than the sequences explain that were counted across their edges."""
    largest = np.maximum(found, wanted)
    unit = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        from_above = np.append(_times(moved, np.exp(power * EDGES - unit[:-1])), 0.0)
        to_below = np.append(0.0, _times(moved, np.exp(power * EDGES - unit[1:])))
        here, there = np.exp(found - unit), np.exp(wanted - unit)
        near = np.abs(here - there - from_above + to_below) <= RELATIVE * (here + there)
    return np.flatnonzero(~(near | (found == wanted) & (from_above == to_below)))


def _times(counts: Floats, weights: Floats) -> Floats:
    """counts * weights, with 0 * inf = 0."""
    return np.where(counts == 0, 0.0, counts * weights)


def _of_tails(recorded: Mapping[str, Any], computed: Mapping[str, Any], name: str) -> Iterator[str]:
    left, right = (np.sort(np.asarray(row[name] or (), np.float64)) for row in (recorded, computed))
    if len(left) != len(right):
        yield _told(recorded, name, f"{len(left)} values", str(len(right)))
    elif not (same := np.isclose(left, right, rtol=SINGLE, atol=RELATIVE, equal_nan=True)).all():
        at = int(np.flatnonzero(~same)[0])
        yield _told(recorded, f"{name} ({at + 1} of {len(left)}, ascending)", f"{left[at]:.9g}", f"{right[at]:.9g}")


def _told(cell: Mapping[str, Any], name: str, found: str, wanted: str) -> str:
    return f"{cell['gap']}/{name} of {cell['slice']} {cell['key']} is {found}, its rows give {wanted}"
