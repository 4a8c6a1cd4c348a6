"""Importance weights w = exp(log-ratio): chi-squared, effective sample size, mean weight, share outside a band.

Levels: token w = exp(x), sequence exp(S), geometric exp(m). Sums over sequences stay in log space. `1/ess - 1` is the
self-normalised chi-squared; the plain one, mean(w^2) - 1, can be negative by chance.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal

import numpy as np

from ratioscope.arrays import Floats

from ..metric import (
    SAMPLED,
    Band,
    Metric,
    Namespace,
    Operand,
    Quantity,
    Statistic,
    clustered_error,
    clusters_of,
    error_of_log_sums,
    log_mean,
    product,
    ratio,
)
from .tail import SEQUENCE_SHAPE, TOKEN_SHAPE, trusted
from .validity import SEQUENCES, TOKENS

SUM_WEIGHT = Statistic("sum_weight", lambda c, xp: c.weight)
SUM_SQUARE_WEIGHT = Statistic("sum_square_weight", lambda c, xp: c.weight * c.weight)
LOG_SUM_WEIGHT = Statistic("log_sum_weight", lambda c, xp: c.log_weight, combine="logsumexp")
LOG_SUM_SQUARE_WEIGHT = Statistic("log_sum_square_weight", lambda c, xp: 2 * c.log_weight, combine="logsumexp")

BAND_EDGES = {(0.9, 1.1): "", (0.8, 1.2): "ppo_clip", (0.5, 2.0): "share_outside"}
"""The bands of weights outside of which tokens are counted -> the signal that grades their share."""


def _powers(level: str, column: str) -> tuple[Statistic, ...]:
    """Log-sums over sequences of the first four powers of the weight. The standard error of ESS needs the third and fourth."""

    def power(k: int) -> Callable[[Any, Namespace], Operand]:
        return lambda s, xp: k * getattr(s, column)

    words = ("", "square_", "cube_", "fourth_")
    return tuple(
        Statistic(f"log_sum_{word}weight_{level}", power(k), "sequence", "logsumexp") for k, word in enumerate(words, 1)
    )


SEQUENCE_POWERS = _powers("sequence", "log_weight")
GEOMETRIC_POWERS = _powers("geometric", "mean_log_weight")


@cache
def outside(low: float, high: float) -> Statistic:
    """Tokens whose weight lies outside [low, high]."""
    bottom, top = math.log(low), math.log(high)
    return Statistic(
        f"tokens_outside_{low:g}_{high:g}", lambda c, xp: c.token * ((c.log_weight < bottom) | (c.log_weight > top))
    )


def _chi2_token(squares: Floats, n: Floats) -> Floats:
    return ratio(squares, n) - 1


def _ess(log_total: Floats, log_squares: Floats, n: Floats) -> Floats:
    """(sum w)^2 / (n sum w^2), in (0, 1]; NaN if every weight is 0."""
    counted = np.where((n > 0) & np.isfinite(log_total) & np.isfinite(log_squares), n, np.nan)
    # Rounding can exceed 1, which is the ESS of equal weights (Cauchy-Schwarz).
    return np.minimum(np.exp(2 * log_total - log_squares - np.log(counted)), 1.0)


def _ess_error(covariance: tuple[Floats, ...], means: tuple[Floats, Floats, Floats], units: Floats) -> Floats:
    """Standard error of a^2 / (n b) by the delta method; means: n, a, b, sums over independent units.

    covariance: the sums of the products nn, na, nb, aa, ab, bb over the units. units: their number.
    """
    n, a, b = means
    nn, na, nb, aa, ab, bb = covariance
    # d log ess = 2 da/a - dn/n - db/b; the three means cancel, so uncentred sums serve.
    spread = 4 * aa / a**2 + nn / n**2 + bb / b**2 - 4 * na / (a * n) - 4 * ab / (a * b) + 2 * nb / (n * b)
    return np.where(units > 1, a**2 / (n * b) * np.sqrt(np.maximum(spread, 0.0) * ratio(units, units - 1)), np.nan)


def _where_trusted(shape: Floats, n: Floats, error: Floats) -> Floats:
    """The error; NaN if the tail is so heavy that the average of w^2 cannot be estimated."""
    return np.where(trusted(shape, n, power=2), error, np.nan)


def _ess_token_error() -> Quantity:
    n, a, b = TOKENS, SUM_WEIGHT, SUM_SQUARE_WEIGHT
    pairs = ((n, n), (n, a), (n, b), (a, a), (a, b), (b, b))

    def value(shape: Floats, n: Floats, a: Floats, b: Floats, m: Floats, *products: Floats) -> Floats:
        return _where_trusted(shape, n, _ess_error(products, (n, a, b), m))

    return Quantity((TOKEN_SHAPE, n, a, b, clusters_of(n), *(product(*pair) for pair in pairs)), value)


def _ess_power_error(powers: tuple[Statistic, ...]) -> Quantity:
    def value(first: Floats, second: Floats, third: Floats, fourth: Floats, n: Floats) -> Floats:
        # In units of the root mean square weight nothing overflows before the fourth power itself does.
        unit = log_mean(second, n) / 2
        a, b = np.exp(first - unit), np.exp(second - 2 * unit)
        third, fourth = np.exp(third - 3 * unit), np.exp(fourth - 4 * unit)
        return _ess_error((n, a, b, b, third, fourth), (n, a, b), n)

    return Quantity((*powers, SEQUENCES), value)


def _ess_sequence_error() -> Quantity:
    plain = _ess_power_error(SEQUENCE_POWERS)

    def value(shape: Floats, *sums: Floats) -> Floats:
        return _where_trusted(shape, sums[-1], plain.value(*sums))

    return Quantity((SEQUENCE_SHAPE, *plain.needs), value)


def _chi2_token_error() -> Quantity:
    plain = clustered_error(SUM_SQUARE_WEIGHT, TOKENS)

    def value(shape: Floats, *sums: Floats) -> Floats:
        return _where_trusted(shape, sums[1], plain.value(*sums))

    return Quantity((TOKEN_SHAPE, *plain.needs), value)


def _chi2_sequence_error(shape: Floats, log_squares: Floats, log_fourths: Floats, n: Floats) -> Floats:
    return _where_trusted(shape, n, error_of_log_sums(log_squares, log_fourths, n))


CHI2_BANDS = (
    Band(-1.0, 1.0, "low", "published reading of chi-squared; verl documentation alerts above 1.0"),
    Band(1.0, 10.0, "moderate", "published reading of chi-squared"),
    Band(10.0, float("inf"), "high, in need of correction", "published reading of chi-squared"),
)
ESS_BANDS = (
    Band(0.0, 0.3, "low", "verl documentation alerts below 0.3"),
    Band(0.3, 0.5, "moderate", "verl documentation"),
    Band(0.5, 1.0, "good", "verl documentation"),
)


def _why_no_weights(value: Callable[[str], float | None]) -> str:
    return (
        "every weight is 0"
        if value("sequences")
        else "no sequence is whole: each has a token set aside, or lies in a slice"
    )


_NO_SEQUENCES: Mapping[str, Any] = {
    "absent": "a slice by token has no whole sequences, or every weight is 0",
    "why": _why_no_weights,
}


def _ess_metric(level: Literal["token", "sequence", "geometric"]) -> Metric:
    powers = {"sequence": SEQUENCE_POWERS, "geometric": GEOMETRIC_POWERS}
    errors = {
        "token": _ess_token_error(),
        "sequence": _ess_sequence_error(),
        "geometric": _ess_power_error(GEOMETRIC_POWERS),
    }
    weight = {"token": "exp(x)", "sequence": "exp(S)", "geometric": "exp(m)"}[level]
    units = "tokens" if level == "token" else "sequences"
    needs = (LOG_SUM_WEIGHT, LOG_SUM_SQUARE_WEIGHT, TOKENS) if level == "token" else (*powers[level][:2], SEQUENCES)
    return Metric(
        f"ess_{level}", "1", f"(sum w)^2 / (n sum w^2), w = {weight}",
        f"Effective sample size as a share of the {units}, weighted by {weight}; 1/ess - 1 is the self-normalised chi-squared.",
        needs=needs, value=_ess, error=errors[level],
        level="token" if level == "token" else "sequence", gaps=SAMPLED, estimator="Kong 1992, per unit",
        weighting=f"every {units[:-1]} counts by its weight", range="(0, 1]", bands=ESS_BANDS, **_NO_SEQUENCES,
        kind="ratio", topic="weights and ESS", neutral=1.0, worse="below", bound="at most",
        title=f"Effective sample size, {'sequences by length' if level == 'geometric' else units}",
        signal="" if level == "geometric" else f"chi2_of_ess_{level}",
    )  # fmt: skip


_LEVELS: tuple[Literal["token", "sequence", "geometric"], ...] = ("token", "sequence", "geometric")
ESS: dict[str, Metric] = {level: _ess_metric(level) for level in _LEVELS}
"""Level -> the effective sample size of its weights."""


def _share_outside(low: float, high: float, signal: str) -> Metric:
    counted = outside(low, high)
    return Metric(
        f"share_outside_{low:g}_{high:g}", "1", f"share of tokens with w = exp(x) < {low:g} or > {high:g}",
        f"The share of tokens that a trust region of [{low:g}, {high:g}] would clip or mask.",
        needs=(counted, TOKENS), value=ratio, error=clustered_error(counted, TOKENS), estimator="share", range="[0, 1]",
        kind="share", topic="weights and ESS", worse="above", signal=signal,
        title=f"Share of weights outside {low:g}–{high:g}",
    )  # fmt: skip


METRICS = (
    Metric("chi2_token", "1", "mean(exp(2x)) - 1",
           "Chi-squared divergence of later from earlier, per token: the variance that per-token weights add.",
           needs=(SUM_SQUARE_WEIGHT, TOKENS), value=_chi2_token, error=_chi2_token_error(),
           gaps=SAMPLED, estimator="mean", direction="chi2(later || earlier)", range="[-1, inf)", bands=CHI2_BANDS,
           kind="mean", topic="weights and ESS", bound="at least", title="Chi-squared per token"),
    Metric("chi2_sequence", "1", "mean over sequences of exp(2S), minus 1",
           "Chi-squared divergence of whole sequences. Noise alone makes it grow with length. A lower bound if k-hat fails.",
           needs=(SEQUENCE_POWERS[1], SEQUENCES), value=lambda b, n: np.expm1(log_mean(b, n)),
           error=Quantity((SEQUENCE_SHAPE, SEQUENCE_POWERS[1], SEQUENCE_POWERS[3], SEQUENCES), _chi2_sequence_error),
           gaps=SAMPLED, level="sequence", estimator="mean", direction="chi2(later || earlier)", range="[-1, inf)",
           weighting="every sequence counts once", **_NO_SEQUENCES, kind="mean", topic="weights and ESS", bound="at least",
           title="Chi-squared per sequence"),
    Metric("log_mean_square_weight_sequence", "nats", "log(mean over sequences of exp(2S))",
           "log(1 + chi2_sequence), the form for plots. A lower bound if k-hat fails; below 0 no heavy weight was drawn.",
           needs=(SEQUENCE_POWERS[1], SEQUENCES), value=log_mean, gaps=SAMPLED, level="sequence", estimator="log-mean",
           weighting="every sequence counts once", range="(-inf, inf)", **_NO_SEQUENCES,
           kind="mean", topic="weights and ESS", title="Chi-squared per sequence, log(1 + value)", worse="above"),
    *ESS.values(),
    *(_share_outside(low, high, signal) for (low, high), signal in BAND_EDGES.items()),
)  # fmt: skip
