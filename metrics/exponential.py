"""exp(x) by products, sums and a table: the same bits from numpy on every processor, and from machine code.

x = k ln(2) / SHARES + r, so that exp(x) = 2^(k / SHARES) exp(r), where abs(r) is at most R. The error is at most 1.1 units in the
last place. `metrics/engines/lanes.py` has the same operations in the same order.
"""

import math
from decimal import Context, Decimal
from functools import cache

import numpy as np

from ratioscope.arrays import Floats, Integers

LOG_SHARES = 11
SHARES = 1 << LOG_SHARES
LOWEST, HIGHEST = -708.0, 709.0
"""Below is 0, above is inf: a float64 has no more digits there, or no such exponent."""
_STEP = Decimal(2).ln() / SHARES
PER_UNIT = float(1 / _STEP)
STEP = math.ldexp(round(math.ldexp(float(_STEP), 43)), -43)
"""ln(2) / SHARES but for its last digits: k times this number is exact."""
STEP_REST = float(_STEP - Decimal(STEP))
ROUNDER = 1.5 * 2.0**52
"""A number plus this one has k, rounded to a whole number, in its last bits."""
R = float(_STEP) / 2
SQUARE, CUBE = 0.5 + 0.828 * R * R / 24, 1 / 6
"""exp(r) - 1 is r + SQUARE r^2 + CUBE r^3. The second part of SQUARE stands for r^4 / 24 and makes the largest error smallest."""
_CHUNK = 1 << 13
"""Numbers at once, so that their twenty passes stay in the processor's cache."""


@cache
def shares() -> Integers:
    """The bits of 2^(i / SHARES), less those that i has in `k << (52 - LOG_SHARES)`."""
    context = Context(prec=40)
    root, power, found = context.power(Decimal(2), Decimal(1) / SHARES), Decimal(1), list[float]()
    for _ in range(SHARES):
        found.append(float(power))
        power = context.multiply(power, root)
    return np.array(found).view(np.int64) - (np.arange(SHARES) << (52 - LOG_SHARES))


def exp(x: Floats, out: Floats | None = None) -> Floats:
    """exp of each number, in `out` if it is given, which has other memory; NaN for NaN."""
    result = np.empty_like(x) if out is None else out
    for first in range(0, len(x), _CHUNK):
        _exp(x[first : first + _CHUNK], result[first : first + _CHUNK])
    return result


def _exp(x: Floats, out: Floats) -> None:
    is_plain = x.min() >= LOWEST and x.max() <= HIGHEST
    given = x if is_plain else np.clip(x, LOWEST, HIGHEST)
    whole = given * PER_UNIT
    whole += ROUNDER
    bits, rest = whole.view(np.int64), whole - ROUNDER
    np.multiply(rest, STEP, out=out)
    np.subtract(given, out, out=out)
    rest *= STEP_REST
    np.subtract(out, rest, out=rest)
    share = bits & (SHARES - 1)
    shares().take(share, mode="clip", out=share)  # numpy copies less than where it checks each index
    bits <<= 52 - LOG_SHARES
    share += bits
    power = share.view(np.float64)
    np.multiply(rest, CUBE, out=out)
    out += SQUARE
    out *= rest
    out *= rest
    out += rest
    out *= power
    out += power
    if not is_plain:
        out[x < LOWEST], out[x > HIGHEST] = 0.0, np.inf
