"""Shapes of tails as columns of a statistics table, in the place of the tails: a number for each row."""

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ..definitions.tail import COUNTS, SHAPES, tail_shapes
from .arrow_columns import ArrowColumn, list_lengths, pc

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
            table = table.append_column(shape.column, _shapes(table[tail.name], table[COUNTS[tail].name]))
    return table


def _shapes(tails: ArrowColumn, counts: ArrowColumn) -> ArrowColumn:
    flat = pc.list_flatten(tails).to_numpy(zero_copy_only=False)
    ends = np.cumsum([0, *list_lengths(tails)]).tolist()
    shapes = tail_shapes([flat[start:end] for start, end in pairwise(ends)], np.asarray(counts))
    return pa.array(shapes, mask=np.isnan(shapes))
