"""Carries out a program with numpy, on whole blocks of tokens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ..exponential import exp
from ..reduction import Integers, Matrix, log_sums
from .program import Program, Step

Column = npt.NDArray[np.floating[Any]]
Columns = Mapping[str, Column]
"""Name of an input column -> a number per token."""
_Values = npt.NDArray[Any]

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


def cell_sums(program: Program, columns: Columns, starts: Integers, places: Integers | None = None) -> Matrix:
    """The statistics of cells, shape (statistics, cells).

    starts: the first token of each cell, ascending; the next one follows its last. places: where each of these tokens is in the
    columns; None: they are in their order.
    """
    length = len(columns[program.columns[0]]) if places is None else len(places)
    ends = np.append(starts[1:], length)
    result = np.zeros((len(program.combines), len(starts)))
    first = 0
    while first < len(starts):
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + _CHUNK, side="right")))
        here = slice(starts[first], ends[last - 1])
        given = [columns[name][here] if places is None else columns[name][places[here]] for name in program.columns]
        _carry_out(program, given, starts[first:last] - here.start, result[:, first:last])
        first = last
    return result[list(program.rows)]


def _carry_out(program: Program, columns: Sequence[Column], starts: Integers, result: Matrix) -> None:
    length = len(columns[0])
    if not length:
        return
    calls = _calls(program)
    slots: list[Any] = [starts, np.diff(np.append(starts, length))]
    slots += [column.astype(np.float64) for column in columns]
    slots += [np.empty(length, each) if isinstance(each, type) else each for each in calls.further]
    for function, places, row in calls.steps:
        made = function(*[slots[place] for place in places])
        if row is not None:
            result[row] = made


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


def _chosen(chosen: _Values, one: _Values | float, other: _Values | float, out: _Values) -> None:
    """`one` where chosen, else `other`. It works on bits, because a processor guesses each choice, in vain half of the times."""
    either = _bits(other)
    words = np.bitwise_xor(_bits(one), either, out=out.view(np.int64))
    words &= _all_bits(chosen)
    words ^= either


def _chosen_or_zero(chosen: _Values, one: _Values | float, _zero: float, out: _Values) -> None:
    """`one` where chosen, else 0."""
    np.bitwise_and(_bits(one), _all_bits(chosen), out=out.view(np.int64))


def _bits(values: _Values | float) -> _Values:
    return np.asarray(values, np.float64).view(np.int64)


def _all_bits(truths: _Values) -> _Values:
    """Every bit of a word set for true, none for false."""
    return np.negative(truths.view(np.int8)).astype(np.int64)


def _true_of_each(truths: _Values, starts: Integers) -> _Values:
    """Number of true values of each cell; numpy adds bytes in half the time that it takes for them as float64."""
    return np.add.reduceat(truths.view(np.int8), starts, dtype=np.int32)


_REDUCTIONS: dict[str, Callable[..., _Values]] = {
    "sum": np.add.reduceat,
    "max": lambda values, starts: (
        np.maximum.reduceat(values, starts) + 0.0
    ),  # which of 0.0 and -0.0 depends on the processor
    "logsumexp": lambda exponentials, logs, starts: log_sums(logs, exponentials, starts),
}
