"""How much of a gap comes from old weights: what is left at lag 0, the excess over it, and the share that lag explains.

A token's lag is the trainer's version minus that of the weights that sampled it. At lag 0 both engines hold the same weights, so
that what is left there is numerics. With n_l tokens at lag l, v_l their mean gap and m the mean over all tokens,

    excess = m - v_0 = sum over l of n_l (v_l - v_0) / n        explained = excess / m = 1 - v_0 / m

This takes the numerics at lag 0 for those of all tokens, as martingale does; where lags occur at
different steps, whatever else changed between those steps is counted with the lag.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..metric import Values


@dataclass(frozen=True)
class Lagged:
    """The tokens of one lag: how many, their mean gap (nats/token), and its standard error (NaN: not known)."""

    lag: int
    tokens: float
    value: float
    error: float = math.nan


@dataclass(frozen=True)
class Staleness:
    """fresh: the mean gap at lag 0. value: that of all tokens. excess: value - fresh, negative where lagged tokens lie lower.

    explained: excess / value, 0 where there is no excess, in [0, 1]; errors are standard errors. NaN: cannot be told.
    """

    tokens: float
    value: float
    value_error: float
    fresh: float
    fresh_error: float
    excess: float
    excess_error: float
    explained: float
    explained_error: float

    @property
    def reason(self) -> str:
        """Why the share cannot be told, continuing "not available, because ..."; empty where it can."""
        if self.tokens == 0:
            return "no token with a known lag is on record"
        if math.isnan(self.fresh):
            return "no token was sampled at lag 0, so that numerics alone are not known"
        if math.isnan(self.explained):
            return "the gap is zero or infinite: there is nothing to share out"
        return ""


def staleness(lags: Sequence[Lagged]) -> Staleness:
    """The gap at lag 0, the excess over it and the share explained by lag. Lags of no tokens or of unknown value are left out.

    Errors by the delta method, the values of different lags taken for independent and the numbers of tokens for given.
    """
    known = [each for each in lags if each.tokens > 0 and not math.isnan(each.value)]
    tokens, values, errors = (
        np.array([getattr(each, name) for each in known]) for name in ("tokens", "value", "error")
    )
    total = float(tokens.sum()) if known else 0.0
    if not total:
        return Staleness(0.0, *[math.nan] * 8)
    weights = tokens / total
    # What is left at lag 0 plus what lies above it: where all lags have one value, no rounding is left as an excess.
    at_zero = np.array([each.lag == 0 for each in known])
    if not at_zero.any():
        return Staleness(total, _dot(weights, values), _error(weights, errors), *[math.nan] * 6)
    fresh, fresh_error = float(values[at_zero][0]), float(errors[at_zero][0])
    excess = _dot(weights, values - fresh) if math.isfinite(fresh) else math.nan
    value = fresh + excess
    usable = 0 < value < math.inf
    explained = min(max(excess / value, 0.0), 1.0) if usable else math.nan
    slopes = weights - at_zero  # of the excess in each value
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
    """First and last lag that are shown together: single ones up to 2, then up to 4, 8, 16, ...; below 0 all of them.

    several: whether there are so many lags that they must be put together at all.

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


def _dot(weights: Values, values: Values) -> float:
    return float((weights * values).sum())


def _error(slopes: Values, errors: Values) -> float:
    counted = slopes != 0
    with np.errstate(over="ignore"):  # of a value next to nothing the share may be any: its error is infinite
        return math.hypot(*(slopes[counted] * errors[counted]))
