"""Carries out a program with numpy, on whole blocks of tokens."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Array, Floats, Integers, Matrix, Reals

from ..exponential import exp
from ..metric import NEUTRAL, Combine
from ..pieces import repeated, totals
from ..reduction import LARGE, SMALL, Cells, ascending, first_of_each, log_sums
from .program import Program, Step

Columns = Mapping[str, Reals]
"""Name of an input column -> a number per token."""


@dataclass(frozen=True)
class Scattered:
    """Cells whose tokens lie anywhere."""

    codes: npt.NDArray[np.integer[Any]]
    """A number of each token."""
    first: Integers
    """A number of each cell of adjacent tokens. With the code of a token it gives the scattered cell of the token."""
    cells: int
    """The number of scattered cells."""

    def of_tokens(self, lengths: Integers, cells: slice = slice(None), tokens: slice = slice(None)) -> Integers:
        """The scattered cell of each of these tokens. cells: the cells of adjacent tokens that have them, of these lengths."""
        return np.asarray(repeated(self.first[cells], lengths) + self.codes[tokens], np.int64)


_NUMBERS: dict[str, Callable[..., Any]] = {
    "multiply": np.multiply, "add": np.add, "subtract": np.subtract, "divide": np.divide, "maximum": np.maximum,
    "abs": np.abs, "exp": exp,
}  # fmt: skip
_TRUTHS: dict[str, Callable[..., Any]] = {
    "greater": np.greater, "less": np.less, "equal": np.equal, "and": np.logical_and, "or": np.logical_or,
    "isfinite": np.isfinite,
}  # fmt: skip
_STARTS, _COUNTS, _COLUMNS = 0, 1, 2
"""Slots: the first token of each cell, the number of tokens of each cell, the first column."""


_CHUNK = 1 << 15
"""Tokens at once, about: fewer cost more calls, more leave the processor's second cache."""


def cell_sums(program: Program, columns: Columns, starts: Integers) -> Matrix:
    """The statistics of cells of adjacent tokens, shape (statistics, cells).

    starts: the first token of each cell, ascending; the next one follows its last.
    """
    return all_sums(program, columns, starts, ())[0]


def all_sums(
    program: Program, columns: Columns, starts: Integers, scattered: Sequence[Scattered]
) -> tuple[Matrix, list[Cells]]:
    """The statistics of cells of adjacent tokens, and those of cells whose tokens lie anywhere, added one after the other."""
    length = len(columns[program.columns[0]])
    ends = np.append(starts[1:], length)
    lengths, result = ends - starts, np.zeros((len(program.combines), len(starts)))
    tables = [_table(program.combines, each.cells) for each in scattered]
    tokens = [np.zeros(each.cells, np.int64) for each in scattered]
    first = 0
    while first < len(starts):
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + _CHUNK, side="right")))
        here = slice(starts[first], ends[last - 1])
        given = [columns[name][here] for name in program.columns]
        cells = [each.of_tokens(lengths[first:last], slice(first, last), here) for each in scattered]
        for own, count in zip(cells, tokens, strict=True):
            np.add(count, totals(own, None, len(count)), out=count)
        places = list(zip(cells, tables, strict=True))
        _carry_out(program, given, starts[first:last] - here.start, result[:, first:last], places)
        first = last
    rows, others = list(program.rows), list[Cells]()
    for each, count, table in zip(scattered, tokens, tables, strict=True):
        occupied = np.flatnonzero(count)
        found = table[np.ix_(np.array(rows), occupied)] + 0.0  # of 0.0 and -0.0 the larger one depends on the processor
        others.append(with_logarithms(program, columns, each, lengths, Cells(occupied, found)))
    return result[rows], others


def _table(combines: Sequence[Combine], cells: int) -> Matrix:
    """A row for each reduction, which begins with nothing."""
    nothing = [NEUTRAL[combine] if combine == "max" else 0.0 for combine in combines]
    table = np.empty((len(nothing), cells))
    table[:] = np.array(nothing)[:, None]
    return table


def with_logarithms(program: Program, columns: Columns, scattered: Scattered, lengths: Integers, found: Cells) -> Cells:
    """The logarithms of sums of exponentials. lengths: of adjacent cells. found: cells that have a token, with plain sums."""
    logs = [place for place, row in enumerate(program.rows) if program.combines[row] == "logsumexp"]
    sums = found.matrix[logs]
    found.matrix[logs] = np.log(sums)
    if not (sums.min(initial=1.0) > SMALL and sums.max(initial=1.0) < LARGE):
        # A sum of exponentials overflowed or vanished, which sums of adjacent tokens avoid.
        beyond = np.flatnonzero(~((sums > SMALL) & (sums < LARGE)).all(axis=0))
        cells = scattered.of_tokens(lengths)
        chosen = np.flatnonzero(np.isin(cells, found.codes[beyond]))
        chosen = chosen[ascending(cells[chosen])]
        given = {name: column[chosen] for name, column in columns.items()}
        found.matrix[np.ix_(np.array(logs), beyond)] = cell_sums(program, given, first_of_each(cells[chosen]))[logs]
    return found


def _carry_out(
    program: Program,
    columns: Sequence[Reals],
    starts: Integers,
    result: Matrix,
    scattered: Sequence[tuple[Integers, Matrix]],
) -> None:
    length = len(columns[0])
    if not length:
        return
    calls = _calls(program)
    slots: list[Any] = [starts, np.diff(np.append(starts, length))]
    slots += [column.astype(np.float64) for column in columns]
    slots += [np.empty(length, each) if isinstance(each, type) else each for each in calls.further]
    for function, places, row in calls.steps:
        made = function(*[slots[place] for place in places])
        if row is None:
            continue
        result[row] = made
        for cells, table in scattered:
            _add(program.combines[row], table[row], cells, slots[places[0]])


@dataclass(frozen=True)
class _Calls:
    """The steps of a program as calls of functions on slots, which are looked up once and not for every block."""

    further: tuple[type | float, ...]
    """The slots behind the columns: a register for values of this type, or a number."""
    steps: tuple[tuple[Callable[..., Any], tuple[int, ...], int | None], ...]
    """(function, slots of its arguments, the row of the sums that it returns; None: the last argument receives its result)."""


@cache
def _calls(program: Program) -> _Calls:
    further, steps, numbers = list[type | float](), list[Any](), dict[float, int]()
    registers = {place: _COLUMNS + place for place in range(len(program.columns))}
    buffers, truths = dict[tuple[int, type], int](), set[int]()

    def added(one: type | float) -> int:
        further.append(one)
        return _COLUMNS + len(program.columns) + len(further) - 1

    for step in program.steps:
        for number in step.arguments:
            if isinstance(number, float) and number not in numbers:
                numbers[number] = added(number)
        read = tuple(registers[each] if isinstance(each, int) else numbers[each] for each in step.arguments)
        function = _function(step, [place in truths for place in read])
        if step.operation in _REDUCTIONS:
            steps.append((function, (*read, _STARTS), step.result))
        elif step.operation == "count":
            steps.append((function, (*read, _COUNTS), step.result))
        else:
            key = (step.result, bool if step.operation in _TRUTHS else float)
            registers[step.result] = buffers[key] = buffers.get(key) or added(key[1])
            if key[1] is bool:
                truths.add(buffers[key])
            steps.append((function, (*read, buffers[key]), None))
    return _Calls(tuple(further), tuple(steps))


def _function(step: Step, are_truths: Sequence[bool]) -> Callable[..., Any]:
    """The function that carries out a step. are_truths: for each argument whether it holds truth values."""
    kind = step.operation
    if kind in _NUMBERS:  # numpy adds truth values by `or`
        return partial(_NUMBERS[kind], dtype=np.float64) if any(are_truths) else _NUMBERS[kind]
    if kind == "sum" and are_truths[0]:
        return _true_of_each
    if kind == "where":
        return _chosen_or_zero if step.arguments[2:] == (0.0,) and isinstance(step.arguments[2], float) else _chosen
    others: dict[str, Callable[..., Any]] = {**_TRUTHS, **_REDUCTIONS, "count": np.multiply}
    return others[kind]


def _chosen(chosen: Array, one: Array | float, other: Array | float, out: Array) -> None:
    """`one` where chosen, else `other`. It works on bits, because a processor guesses each choice, in vain half of the times."""
    either = _bits(other)
    words = np.bitwise_xor(_bits(one), either, out=out.view(np.int64))
    words &= _all_bits(chosen)
    words ^= either


def _chosen_or_zero(chosen: Array, one: Array | float, _zero: float, out: Array) -> None:
    """`one` where chosen, else 0."""
    np.bitwise_and(_bits(one), _all_bits(chosen), out=out.view(np.int64))


def _bits(values: Array | float) -> Array:
    return np.asarray(values, np.float64).view(np.int64)


def _all_bits(truths: Array) -> Array:
    """Every bit of a word set for true, none for false."""
    return np.negative(truths.view(np.int8)).astype(np.int64)


def _true_of_each(truths: Array, starts: Integers) -> Array:
    """Number of true values of each cell; numpy adds bytes in half the time that it takes for them as float64."""
    return np.add.reduceat(truths.view(np.int8), starts, dtype=np.int32)


_REDUCTIONS: dict[str, Callable[..., Array]] = {
    "sum": np.add.reduceat,
    "max": lambda values, starts: (
        np.maximum.reduceat(values, starts) + 0.0
    ),  # which of 0.0 and -0.0 depends on the processor
    "logsumexp": lambda exponentials, logs, starts: log_sums(logs, exponentials, starts),
}


def _add(combine: Combine, sums: Matrix, cells: Integers, values: Array | float) -> None:
    """Adds numbers to their cells, one after the other. Numpy holds Python's lock meanwhile, so it is not given many at once."""
    if isinstance(values, np.ndarray) and values.dtype == np.bool_:  # few are true
        cells, values = cells[values], 1.0
    each = np.ascontiguousarray(values, np.float64) if isinstance(values, np.ndarray) else np.full(len(cells), values)
    function = np.maximum if combine == "max" else np.add
    for first in range(0, len(cells), _CHUNK):
        here = slice(first, first + _CHUNK)
        function.at(sums, cells[here], each[here])


@dataclass(frozen=True, eq=False)
class MatrixColumns(Mapping[str, Floats]):
    """Name -> row. Machine code finds all rows by the address of the matrix, which is a call for all and not one for each."""

    names: tuple[str, ...]
    """The name of each row."""
    matrix: Matrix
    """Shape (names, numbers)."""

    def __getitem__(self, name: str) -> Floats:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _rows(self) -> dict[str, Floats]:
        return dict(zip(self.names, self.matrix, strict=True))
