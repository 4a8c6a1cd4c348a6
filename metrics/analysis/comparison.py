"""Compares two sides: differences of estimates with errors, corrections for many comparisons, and pairs by prompt.

A side is a range of steps of a run, or several runs of one setting. The two sides are taken as independent; if they share
steps they are not, and the caller must say so. If an error is unknown, the difference has no error and no z.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from ratioscope.arrays import Floats

NAN = math.nan


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error."""

    value: float = NAN
    """NaN if unknown."""
    error: float = NAN
    """The standard error; NaN if unknown."""
    runs: int = 0
    """The number of runs that the value is a mean of; 0 if the value is unknown."""

    @property
    def known(self) -> bool:
        return not math.isnan(self.value)


def over_runs(estimates: Sequence[Estimate]) -> Estimate:
    """The mean over runs, with the standard error between runs, sd / sqrt(runs). A single run keeps its own error.

    Runs with different seeds differ by more than the errors within runs, so from two runs on those are not used.
    """
    runs = [one for one in estimates if one.known]
    if len(runs) <= 1:
        return Estimate(runs[0].value, runs[0].error, 1) if runs else Estimate()
    values = np.array([one.value for one in runs])
    with np.errstate(invalid="ignore"):
        mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
    return Estimate(mean, error if math.isfinite(error) else NAN, len(runs))


@dataclass(frozen=True)
class Compared:
    """One metric on both sides; differences are b - a."""

    metric: str
    a: Estimate
    b: Estimate
    paired_error: float = field(default=NAN, kw_only=True)
    """The standard error of the mean difference between the same steps; NaN for independent sides."""
    blocks: int = field(default=0, kw_only=True)
    """The number of blocks of steps that the errors come from; 0 if they come from sequences or runs."""

    @property
    def difference(self) -> float:
        with np.errstate(invalid="ignore"):
            return float(np.subtract(self.b.value, self.a.value))

    @property
    def error(self) -> float:
        """The standard error of the difference: of the pairs, else that of independent sides."""
        return math.hypot(self.a.error, self.b.error) if math.isnan(self.paired_error) else self.paired_error

    @property
    def z(self) -> float:
        """The difference divided by its standard error; NaN if an error is unknown or both are 0."""
        error = self.error
        return self.difference / error if error > 0 and math.isfinite(self.difference) else NAN

    @property
    def ratio(self) -> float:
        """b / a; NaN unless both are positive and finite."""
        sizes = self.a.value > 0 and self.b.value > 0 and math.isfinite(self.a.value) and math.isfinite(self.b.value)
        return self.b.value / self.a.value if sizes else NAN

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the error (Welch 1947): few if it comes from few runs, infinite if it comes from sequences."""
        if self.blocks:
            return self.blocks - 1
        parts = [(one.error**2, one.runs - 1) for one in (self.a, self.b) if one.runs > 1]
        below = sum(square**2 / free for square, free in parts)
        return self.error**4 / below if below > 0 else math.inf

    @property
    def p(self) -> float:
        """The two-sided p-value of the difference: Student's t of z; NaN if there is no z."""
        return NAN if math.isnan(self.z) else student_tail(abs(self.z), self.freedom)


def holm(chances: Sequence[float]) -> list[float]:
    """p-values adjusted for the number of comparisons (Holm 1979), whether the metrics are independent or not.

    If no metric differs, the chance that any adjusted p-value lies below 0.05 is at most 5%. NaN stays NaN and does not count.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted((at for at, chance in enumerate(chances) if not math.isnan(chance)), key=lambda at: chances[at])
    adjusted, highest = [NAN] * len(chances), 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, chances[at] * (len(order) - rank)))
        adjusted[at] = highest
    return adjusted


def student_tail(t: float, freedom: float) -> float:
    """P(|T| >= t) for Student's t with so many degrees of freedom; the normal distribution's if they are infinite."""
    if math.isinf(freedom):
        return math.erfc(t / math.sqrt(2))
    if math.isinf(t):
        return 0.0
    # 1 - x is computed directly: a subtraction would lose all its digits for small t.
    x, rest = freedom / (freedom + t * t), t * t / (freedom + t * t)
    # The regularised incomplete beta function I_x(a, b), rest = 1 - x, by its continued fraction (DLMF 8.17.22).
    a = freedom / 2
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + 0.5) - math.lgamma(a) - math.lgamma(0.5) + a * math.log(x) + 0.5 * math.log(rest))
    if x > (a + 1) / (a + 0.5 + 2):
        return 1.0 - front * _fraction(rest, 0.5, a) / 0.5
    return front * _fraction(x, a, 0.5) / a


def _fraction(x: float, a: float, b: float) -> float:
    """Lentz's method; it converges within some sqrt(max(a, b)) terms where x <= (a + 1) / (a + b + 2)."""
    tiny = 1e-300
    d = 1.0 / (1.0 - (a + b) * x / (a + 1.0) or tiny)
    c, product = 1.0, d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = product
        for term in (even, odd):
            d = 1.0 / (1.0 + term * d or tiny)
            c = 1.0 + term / c or tiny
            product *= d * c
        if abs(product - before) <= 1e-15 * abs(product):
            break
    return product


@dataclass(frozen=True)
class Paired:
    """Two sides compared over the keys that both have, such as prompts."""

    pairs: int
    """The number of keys that both sides have."""
    only_a: int
    """The number of keys that only a has."""
    only_b: int
    """The number of keys that only b has."""
    a: float
    """Mean of a over the pairs."""
    b: float
    """Mean of b over the pairs."""
    difference: float
    """Mean of b - a over the pairs."""
    error: float
    """Standard error of the difference, sd / sqrt(pairs)."""

    @property
    def z(self) -> float:
        return self.difference / self.error if self.error > 0 else NAN


def paired(a: pl.DataFrame, b: pl.DataFrame) -> Paired:
    """The two sides compared pair by pair. a, b: columns key (unique) and value; rows without a finite value are left out.

    Keys are the independent units. Each key counts once, whatever its number of samples.
    """
    one, other = (side.filter(pl.col("value").is_finite()) for side in (a, b))
    both = one.join(other, on="key", suffix="_b").select(a=pl.col("value"), b=pl.col("value_b"))
    pairs = len(both)
    only_a, only_b = len(one) - pairs, len(other) - pairs
    if not pairs:
        return Paired(0, only_a, only_b, NAN, NAN, NAN, NAN)
    x, y = both["a"].to_numpy(), both["b"].to_numpy()
    differences = y - x
    error = float(differences.std(ddof=1) / math.sqrt(pairs)) if pairs > 1 else NAN
    return Paired(pairs, only_a, only_b, float(x.mean()), float(y.mean()), float(differences.mean()), error)


APART = 3.0
"""Standard errors from which on two steps are apart. Convention: two adjacent steps by chance are rarer than 1 in 100,000."""


def first_apart(a: Floats, a_error: Floats, b: Floats, b_error: Floats) -> int | None:
    """The place of the first of two adjacent steps on which b differs from a beyond chance, to the same side; None if none.

    All shapes (steps,). Positive values are compared on a log scale, because sizes of gaps spread over decades.
    """
    with np.errstate(all="ignore"):
        positive = (a > 0) & (b > 0)
        plain = (b - a) / np.hypot(a_error, b_error)
        relative = np.log(b / a) / np.hypot(a_error / a, b_error / b)
    z = np.nan_to_num(np.where(positive, relative, plain), nan=0.0)
    side = np.where(np.abs(z) >= APART, np.sign(z), 0.0)
    flips = np.flatnonzero((side[:-1] != 0) & (side[:-1] == side[1:]))
    return int(flips[0]) if len(flips) else None
