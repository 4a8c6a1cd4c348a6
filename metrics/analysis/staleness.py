"""The part of a gap that comes from old weights: the gap at lag 0, the excess over it, and the share that lag explains.

The lag of a token is the trainer's version minus the version of the weights that sampled it. At lag 0 both engines have the
same weights, so the gap there comes from numerics. With n_l tokens at lag l, v_l their mean gap and m the mean of all tokens,

    excess = m - v_0 = sum over l of n_l (v_l - v_0) / n        explained = excess / m = 1 - v_0 / m

This assumes that numerics contribute the same at every lag, as martingale does. If lags occur at different steps, other changes
between those steps count as lag.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.record import GAPS

from .slice_parts import size_metric

PARTS = ("mismatch", "drift")
WHOLE = "total"
EXACT = 1e-9
"""Largest residual, relative to 1 plus the largest of the three, that is taken as rounding. A convention."""


def decomposition(frame: pl.DataFrame) -> pl.DataFrame:
    """One row per step that has all three gaps, with the columns

        step
        total, mismatch, drift            mean log-ratios, nats/token
        total_se, mismatch_se, drift_se   their standard errors; null if unknown
        tokens                            tokens of total; null if unknown
        residual                          total - mismatch - drift
        holds                             false if the three were measured on different tokens

    frame: a metric frame by step. The tokens differ if the gaps come from different minibatches, or if tokens were set aside
    in some of the gaps only.
    """
    means = {gap: f"{gap}/mean_log_ratio" for gap in GAPS}
    names = {**means, **{f"{gap}_se": f"{name}_se" for gap, name in means.items()}, "tokens": f"{WHOLE}/tokens"}
    if any(name not in frame.columns for name in means.values()):
        schema = {"step": pl.Int64, **dict.fromkeys([*names, "residual"], pl.Float64), "holds": pl.Boolean}
        return pl.DataFrame(schema=schema)
    here = {name: pl.col(name) if name in frame.columns else pl.lit(None) for name in names.values()}
    own = frame.select("step", **{column: here[name].cast(pl.Float64) for column, name in names.items()})
    rows = own.filter(pl.all_horizontal(pl.col(gap).is_finite() for gap in GAPS)).sort("step")
    values = {gap: rows[gap].to_numpy() for gap in GAPS}
    residual = values[WHOLE] - sum(values[part] for part in PARTS)
    size = np.maximum.reduce([np.abs(each) for each in values.values()]) if len(rows) else residual
    return rows.with_columns(residual=pl.Series(residual), holds=pl.Series(np.abs(residual) <= EXACT * (1 + size)))


@dataclass(frozen=True)
class Lagged:
    """The tokens of one lag."""

    lag: int
    tokens: float
    value: float
    """Their mean gap, nats/token."""
    error: float = math.nan
    """Its standard error; NaN if unknown."""


@dataclass(frozen=True)
class Staleness:
    """The part of a gap that lag explains. Gaps are in nats/token, errors are standard errors; NaN means unknown."""

    tokens: float
    """Tokens with a known lag."""
    value: float
    """The mean gap of all tokens."""
    value_error: float
    """The error of `value`."""
    fresh: float
    """The mean gap at lag 0."""
    fresh_error: float
    """The error of `fresh`."""
    excess: float
    """value - fresh; negative if tokens with a lag have a smaller gap."""
    excess_error: float
    """The error of `excess`."""
    explained: float
    """excess / value, in [0, 1]; 0 if there is no excess."""
    explained_error: float
    """The error of `explained`."""

    @property
    def reason(self) -> str:
        """Why `explained` is unknown, to follow "not available, because"; empty if it is known."""
        if self.tokens == 0:
            return "no token with a known lag is on record"
        if math.isnan(self.fresh):
            return "no token was sampled at lag 0, so that numerics alone are not known"
        if math.isnan(self.explained):
            return "the gap is zero or infinite: there is nothing to share out"
        return ""


def lagged(frame: pl.DataFrame, gap: str) -> list[Lagged]:
    """The sizes of the gap by lag. frame: a metric frame by lag; no token of a gap that it lacks has a known lag."""
    size = size_metric(gap)
    columns = ["lag", *(f"{gap}/{name}" for name in ("tokens", size, f"{size}_se"))]
    if not {*columns} <= {*frame.columns}:
        return []
    known = frame.select(columns).drop_nulls(columns[:3])
    return [
        Lagged(int(lag), tokens, value, math.nan if error is None else error)
        for lag, tokens, value, error in known.rows()
    ]


def staleness(lags: Sequence[Lagged]) -> Staleness:
    """The gap at lag 0, the excess over it, and the share explained by lag. Lags without tokens or value are left out.

    Errors by the delta method. The values of different lags are taken as independent, the numbers of tokens as exact.
    """
    known = [each for each in lags if each.tokens > 0 and not math.isnan(each.value)]
    tokens, values, errors = (
        np.array([getattr(each, name) for each in known]) for name in ("tokens", "value", "error")
    )
    total = float(tokens.sum()) if known else 0.0
    if not total:
        return Staleness(0.0, *[math.nan] * 8)
    weights = tokens / total
    # value = fresh + excess: if all lags have the same value, rounding leaves no excess.
    at_zero = np.array([each.lag == 0 for each in known])
    if not at_zero.any():
        return Staleness(total, _dot(weights, values), _error(weights, errors), *[math.nan] * 6)
    fresh, fresh_error = float(values[at_zero][0]), float(errors[at_zero][0])
    excess = _dot(weights, values - fresh) if math.isfinite(fresh) else math.nan
    value = fresh + excess
    usable = 0 < value < math.inf
    explained = min(max(excess / value, 0.0), 1.0) if usable else math.nan
    slopes = weights - at_zero  # derivatives of the excess
    of_share = (weights * fresh / value - at_zero) / value if usable else np.full(len(weights), math.nan)
    return Staleness(
        total,
        value,
        _error(weights, errors),
        fresh,
        fresh_error,
        excess,
        _error(slopes, errors),
        explained,
        _error(of_share, errors),
    )


def lag_bucket(lag: int, several: bool) -> tuple[int, int]:
    """(first, last) lag of the bucket of a lag: all below 0, then 0, 1, 2, 3 to 4, 5 to 8, 9 to 16, ...

    several: whether there are so many lags that they need buckets; else each lag is its own.

    >>> lag_bucket(3, True), lag_bucket(9, True), lag_bucket(9, False)
    ((3, 4), (9, 16), (9, 9))
    """
    if not several:
        return lag, lag
    if lag < 0:
        return -(2**31), -1
    if lag <= 2:
        return lag, lag
    last = 1 << (lag - 1).bit_length()
    return last // 2 + 1, last


def _dot(weights: Floats, values: Floats) -> float:
    return float((weights * values).sum())


def _error(slopes: Floats, errors: Floats) -> float:
    counted = slopes != 0
    with np.errstate(over="ignore"):  # for a value near 0 the share is arbitrary: its error is infinite
        return math.hypot(*(slopes[counted] * errors[counted]))
