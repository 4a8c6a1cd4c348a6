"""The loops over tokens in machine code that numba compiles. Importing this file imports numba; it starts no thread."""

from collections.abc import Callable
from typing import Any

import llvmlite.ir  # pyright: ignore[reportMissingImports]
import numba  # pyright: ignore[reportMissingImports]
import numba.extending  # pyright: ignore[reportMissingImports]
import numpy as np

from ..distribution import BUCKETS, REST

ir: Any = llvmlite.ir
types: Any = numba.types
njit: Any = numba.njit
intrinsic: Callable[[Any], Any] = numba.extending.intrinsic
"""`Any`: numba has no types, and what its decorators return is called by compiled code alone."""

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts; the first has so few digits that its products with whole numbers are exact."""
_WHOLE = 6755399441055744.0
"""1.5 * 2^52: a small number added to it is rounded to a whole number, which is then in the lowest bits."""
_CHUNK = 1024


def kernel_of(columns: int) -> Callable[[Any], Any]:
    """The decorator of a kernel with so many columns: machine code, kept on disk beside its file.

    It is compiled at once and for one kind of arrays, those that may be read-only, as Arrow's are. Sums may be added up in eight
    parts; NaN stays NaN.
    """
    column = types.Array(types.float32, 1, "C", readonly=True)
    signature = types.void(types.int64[::1], types.float64[:, ::1], *[column] * columns)
    flags = {"reassoc", "nsz", "contract"}
    made: Callable[[Any], Any] = njit(signature, cache=True, nogil=True, error_model="numpy", fastmath=flags)
    return made


def _exact(function: Any) -> Any:
    """A function in machine code whose operations keep their order."""
    return njit(function, cache=True, nogil=True, error_model="numpy", fastmath={"contract"})


@intrinsic
def largest(_context: Any, _one: Any, _other: Any) -> Any:
    """The larger of two numbers that are not NaN. LLVM carries out several at once, as it would not for Python's max."""

    def code(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        double = ir.DoubleType()
        call = builder.module.declare_intrinsic("llvm.maxnum", [double], ir.FunctionType(double, [double, double]))
        return builder.call(call, arguments, fastmath=("nnan", "nsz"))

    return types.float64(types.float64, types.float64), code


@intrinsic
def smallest(_context: Any, _one: Any, _other: Any) -> Any:
    """The smaller of two numbers; of a number and NaN, the number."""

    def code(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        double = ir.DoubleType()
        call = builder.module.declare_intrinsic("llvm.minnum", [double], ir.FunctionType(double, [double, double]))
        return builder.call(call, arguments)

    return types.float64(types.float64, types.float64), code


@intrinsic
def bits_of(_context: Any, _number: Any) -> Any:
    """The bits of a float64 as an integer."""
    return types.int64(types.float64), lambda _c, builder, _s, given: builder.bitcast(given[0], ir.IntType(64))


@intrinsic
def number_of(_context: Any, _bits: Any) -> Any:
    """The float64 with these bits."""
    return types.float64(types.int64), lambda _c, builder, _s, given: builder.bitcast(given[0], ir.DoubleType())


@_exact
def exponential(x: float) -> float:
    """exp(x) within two units of the last place; 0 below -708, where float64 loses digits. A Taylor series around k ln 2."""
    inside = min(max(x, -708.0), 709.0)
    shifted = inside * _LOG2_E + _WHOLE
    k = shifted - _WHOLE
    rest = (inside - k * _LN2_HIGH) - k * _LN2_LOW
    series = 1.0 / 6227020800.0
    series = series * rest + 1.0 / 479001600.0
    series = series * rest + 1.0 / 39916800.0
    series = series * rest + 1.0 / 3628800.0
    series = series * rest + 1.0 / 362880.0
    series = series * rest + 1.0 / 40320.0
    series = series * rest + 1.0 / 5040.0
    series = series * rest + 1.0 / 720.0
    series = series * rest + 1.0 / 120.0
    series = series * rest + 1.0 / 24.0
    series = series * rest + 1.0 / 6.0
    series = series * rest + 0.5
    series = series * rest + 1.0
    series = series * rest + 1.0
    power = number_of((bits_of(shifted) + 1023) << 52)  # pyright: ignore[reportCallIssue]  # numba passes the context
    result = series * power if x >= -708.0 else 0.0
    result = result if x <= 709.0 else np.inf
    return result if x == x else np.nan  # noqa: PLR0124


@_exact
def grouped(cells: Any, count: int) -> Any:
    """Indices that sort these whole numbers from 0 to count - 1; equal ones keep their order."""
    place = np.zeros(count + 1, np.int64)
    for cell in cells:
        place[cell + 1] += 1
    for cell in range(count):
        place[cell + 1] += place[cell]
    order = np.empty(len(cells), np.int64)
    for i in range(len(cells)):
        order[place[cells[i]]] = i
        place[cells[i]] += 1
    return order


@_exact
def bucket_sums(group: Any, log_weight: Any, groups: int, lowest: Any, upper: Any, nearby: int) -> Any:
    """Counts, sums of weights and sums of squared weights of each (group, bucket), shape (groups * BUCKETS, 3)."""
    sums = np.zeros((groups * BUCKETS, 3))
    weights = np.empty(_CHUNK)
    buckets = np.empty(_CHUNK, np.int64)
    for first in range(0, len(log_weight), _CHUNK):
        part = log_weight[first : first + _CHUNK]
        for i in range(len(part)):
            weights[i] = exponential(part[i])
        for i in range(len(part)):
            bucket = lowest[(bits_of(part[i]) >> REST) & 0xFFFF]  # pyright: ignore[reportCallIssue]
            for _ in range(nearby):
                bucket += part[i] >= upper[bucket]
            buckets[i] = bucket
        for i in range(len(part)):
            cell = group[first + i] * BUCKETS + buckets[i]
            sums[cell, 0] += 1.0
            sums[cell, 1] += weights[i]
            sums[cell, 2] += weights[i] * weights[i]
    return sums
