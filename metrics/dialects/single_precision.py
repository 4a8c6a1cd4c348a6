"""float32 arithmetic in numpy with torch's results, for dialects whose trainer computes in float32.

Values of single tokens are rounded to float32 at each step, as in the trainer: the last bit can decide on which side of a
threshold a value lies, and large values overflow to infinity. Sums are computed in float64 and rounded once, because the
trainer's order of summation is not defined. NaN and infinity are legal values, so callers switch numpy's floating warnings
off (`np.errstate(all="ignore")`).
"""

import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Array, Singles


def single(values: npt.ArrayLike) -> Singles:
    """The values rounded to float32."""
    return np.asarray(values, dtype=np.float32)


def recorded(values: Array, mask: Array) -> Singles:
    """Per-token values in float32. A trainer has a finite number at every masked position; one not on record is 0 here."""
    return single(np.where(mask | np.isfinite(values), values, 0))


def exp(values: Singles) -> Singles:
    """exp, rounded once from float64. It equals torch's float32 exp for 99% of values; numpy's float32 exp, for 60%."""
    return single(np.exp(values.astype(np.float64)))


def log(values: Singles) -> Singles:
    """log, rounded once from float64."""
    return single(np.log(values.astype(np.float64)))


def total(values: Array) -> float:
    """The sum over all values, rounded to float32; 0 for none."""
    return float(single(values.sum(dtype=np.float64)))


def row_totals(values: Array) -> Singles:
    """Sums over positions, shape (rows, 1)."""
    return single(values.sum(axis=1, keepdims=True, dtype=np.float64))


def mean(values: Array) -> float:
    """The mean over all values, rounded to float32; NaN for none."""
    return float(single(values.mean(dtype=np.float64))) if values.size else float("nan")


def row_means(values: Array, mask: Array) -> Singles:
    """Means over each row's tokens of mask 1, shape (rows, 1); 0 for a row without any. NaN at a masked token counts."""
    return single(row_totals(values * mask) / np.maximum(row_totals(mask), np.float32(1)))


def k3(log_ratio: Singles) -> Singles:
    """The estimator exp(x) - x - 1 of a divergence, >= 0 up to rounding."""
    return exp(log_ratio) - log_ratio - np.float32(1)


def dual_clip(loss: Array, advantages: Array, bound: float) -> Singles:
    """The clipped loss, at most -bound * advantage where the advantage is negative. Ye 2020, eq. 5."""
    return single(np.where(advantages < 0, np.minimum(loss, -advantages * single(bound)), loss))
