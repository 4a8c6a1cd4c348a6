"""Carries out a program with numpy, on whole blocks of tokens."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..reduction import Integers, Matrix, log_sums
from .program import Program

Column = npt.NDArray[np.floating[Any]]
Columns = Mapping[str, Column]
"""Name of an input column -> a number per token."""
_Register = npt.NDArray[Any]

_NUMBERS: dict[str, Callable[..., Any]] = {
    "multiply": np.multiply, "add": np.add, "subtract": np.subtract, "divide": np.divide, "maximum": np.maximum,
    "abs": np.abs, "exp": np.exp,
}  # fmt: skip
_TRUTHS: dict[str, Callable[..., Any]] = {
    "greater": np.greater, "less": np.less, "equal": np.equal, "and": np.logical_and, "or": np.logical_or,
    "isfinite": np.isfinite,
}  # fmt: skip


def cell_sums(program: Program, columns: Columns, starts: Integers) -> Matrix:
    """The statistics of cells of adjacent tokens, shape (statistics, cells). starts: the first token of each, ascending."""
    length = len(columns[program.columns[0]])
    result = np.zeros((len(program.combines), len(starts)))
    if not length:
        return result[list(program.rows)]
    counts = np.diff(np.append(starts, length))
    registers: list[Any] = [columns[name].astype(np.float64) for name in program.columns]
    registers += [None] * (program.registers - len(registers))
    buffers: dict[tuple[int, type], _Register] = {}
    for step in program.steps:
        read = [registers[place] if isinstance(place, int) else place for place in step.arguments]
        if step.operation == "count":
            np.multiply(counts, read[0], out=result[step.result])
        elif step.operation in _REDUCTIONS:
            result[step.result] = _REDUCTIONS[step.operation](*read, starts)
        else:
            kind = np.bool_ if step.operation in _TRUTHS else np.float64
            if (step.result, kind) not in buffers:
                buffers[step.result, kind] = np.empty(length, kind)
            registers[step.result] = _elementwise(step.operation, read, buffers[step.result, kind])
    return result[list(program.rows)]


def _elementwise(operation: str, read: list[Any], out: _Register) -> _Register:
    if operation in _TRUTHS:
        _TRUTHS[operation](*read, out=out)
    elif operation in _NUMBERS:
        _NUMBERS[operation](*read, out=out, dtype=np.float64)
    else:
        chosen, one, other = read
        out[:] = other
        np.copyto(out, one, where=chosen)
    return out


def _sum(values: _Register, starts: Integers) -> _Register:
    return np.add.reduceat(values, starts, dtype=np.float64)


def _max(values: _Register, starts: Integers) -> _Register:
    return np.maximum.reduceat(values, starts)


_REDUCTIONS: dict[str, Callable[..., _Register]] = {
    "sum": _sum,
    "max": _max,
    "logsumexp": lambda exponentials, logs, starts: log_sums(logs, exponentials, starts),
}
