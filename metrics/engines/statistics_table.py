"""The table of statistics, made once of the cells of all slices and gaps: an Arrow array costs the same for a row as for many."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Integers

from ..definitions.registry import STATISTICS
from ..definitions.tail import COUNTS, SHAPES, tail_shapes
from ..reduction import Cells
from .arrow_columns import ArrowColumn, Groups, list_lengths, pc
from .level_statistics import Order
from .slices import SliceCodes
from .spread import spread_fields


@cache
def schema() -> pa.Schema:
    """The schema of a statistics table."""
    keys: list[tuple[str, pa.DataType]] = [
        ("attempt", pa.int32()),
        ("step", pa.int64()),
        ("gap", pa.string()),
        ("slice", pa.string()),
        ("key", pa.string()),
    ]
    scalars: list[tuple[str, pa.DataType]] = [(statistic.name, pa.float64()) for statistic in STATISTICS]
    return pa.schema([*keys, *scalars, *spread_fields()])


@dataclass(frozen=True)
class SliceCells:
    """The cells of one slice of a gap: some rows of the table."""

    gap: str
    slice: SliceCodes
    cells: Cells
    """Coded by group * number of keys + code."""
    order: Order
    """The statistic of each row of the cells' matrix; the others are null."""
    groups: Groups
    spread: Mapping[str, ArrowColumn]
    """The list columns; a column that is not there is null."""

    def __len__(self) -> int:
        return len(self.cells.codes)

    @property
    def group(self) -> Integers:
        """The group of each cell."""
        return self.cells.codes // len(self.slice.keys)


def statistics_table(parts: Sequence[SliceCells]) -> pa.Table:
    """The cells of all slices, one row each, in this order."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return schema().empty_table()
    columns = {**_keys(parts), **dict(_scalars(parts)), **dict(_lists(parts))}
    return pa.table([columns[name] for name in schema().names], schema=schema())


def _keys(parts: Sequence[SliceCells]) -> dict[str, ArrowColumn]:
    return {
        "attempt": pa.array(np.concatenate([part.groups.attempts[part.group] for part in parts]), pa.int32()),
        "step": pa.array(np.concatenate([part.groups.steps[part.group] for part in parts]), pa.int64()),
        "gap": pa.array([part.gap for part in parts for _ in range(len(part))], pa.string()),
        "slice": pa.array([part.slice.name for part in parts for _ in range(len(part))], pa.string()),
        "key": pa.concat_arrays([_key(part) for part in parts]),
    }


def _key(part: SliceCells) -> ArrowColumn:
    return pa.array(part.slice.keys, pa.string()).take(pa.array(part.cells.codes % len(part.slice.keys), pa.int64()))


def _scalars(parts: Sequence[SliceCells]) -> Iterator[tuple[str, ArrowColumn]]:
    """(name, values) of every statistic; null in the rows of slices that do not have it."""
    counts = [len(part) for part in parts]
    rows, (place, places) = sum(counts), _places(tuple(part.order for part in parts))
    values, is_null = np.zeros((len(place), rows)), np.ones((len(place), len(parts)), np.bool_)
    for number, (part, own, end) in enumerate(zip(parts, places, np.cumsum(counts).tolist(), strict=True)):
        values[own, end - counts[number] : end] = part.cells.matrix
        is_null[own, number] = False
    together = pa.array(values.reshape(-1), mask=np.repeat(is_null, counts, axis=1).reshape(-1))
    nothing = pa.nulls(rows, pa.float64())
    for name in (statistic.name for statistic in STATISTICS):
        yield name, together.slice(place[name] * rows, rows) if name in place else nothing


@cache
def _places(orders: tuple[Order, ...]) -> tuple[Mapping[str, int], list[Integers]]:
    """(a place for each statistic that any of these have, the places of each order)."""
    place = {name: number for number, name in enumerate(dict.fromkeys(name for each in orders for name in each.names))}
    return place, [np.array([place[name] for name in each.names]) for each in orders]


def _lists(parts: Sequence[SliceCells]) -> Iterator[tuple[str, ArrowColumn]]:
    counts = [len(part) for part in parts]
    most = max(counts)
    for name, kind in spread_fields():
        absent: ArrowColumn = pa.array([None] * most, kind)
        own: list[ArrowColumn] = [part.spread.get(name) for part in parts]
        yield name, pa.concat_arrays([absent[:n] if o is None else o for o, n in zip(own, counts, strict=True)])


SHAPE_FIELDS = tuple(pa.field(shape.column, pa.float64()) for shape in SHAPES.values())
"""The columns; null where a shape is not available."""


def in_place(columns: Sequence[str]) -> tuple[str, ...]:
    """These columns, with the shape of each tail in its place."""
    shape_of = {tail.name: shape.column for tail, shape in SHAPES.items()}
    return tuple(shape_of.get(name, name) for name in columns)


def sources(columns: Sequence[str], present: Collection[str]) -> list[str]:
    """The columns to read for these of a table that has those: the tail and its count for a shape that it lacks."""
    lacking = {shape.column: tail for tail, shape in SHAPES.items() if {shape.column} & {*columns} - {*present}}
    needed = (name for tail in lacking.values() for name in (tail.name, COUNTS[tail].name))
    return list(dict.fromkeys([*(name for name in columns if name not in lacking), *needed]))


def with_shapes(table: pa.Table, columns: Collection[str] | None = None) -> pa.Table:
    """The table with these shapes of its tails, if it lacks them. columns: None for all shapes."""
    for tail, shape in SHAPES.items():
        if shape.column not in table.column_names and (columns is None or shape.column in columns):
            tails, counts = table[tail.name], table[COUNTS[tail].name]
            flat = pc.list_flatten(tails).to_numpy(zero_copy_only=False)
            ends = np.cumsum([0, *list_lengths(tails)]).tolist()
            shapes = tail_shapes([flat[start:end] for start, end in pairwise(ends)], np.asarray(counts))
            table = table.append_column(shape.column, pa.array(shapes, mask=np.isnan(shapes)))
    return table
