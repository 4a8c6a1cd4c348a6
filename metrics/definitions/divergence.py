"""KL estimates and the size of the log-ratio x, per token.

On tokens sampled from the earlier policy, -x, x^2/2 and exp(x) - 1 - x are the estimators K1, K2, K3 of
KL(earlier || later) (Schulman 2020, "Approximating KL divergence"). For drift they are plain means over rollout samples.
"""

from typing import Literal

import numpy as np

from ratioscope.arrays import Floats

from ..metric import ALL_GAPS, SAMPLED, Band, Metric, Namespace, Operand, Statistic, clustered_error, ratio
from .validity import FINITE

SERIES_BELOW = 1 / 16
_COEFFICIENTS = (1 / 3, 1 / 4, 1 / 5, 1 / 6, 1 / 7, 1 / 8, 1 / 9)


def k3(x: Operand, xp: Namespace) -> Operand:
    """exp(x) - 1 - x, never negative; relative error below 1e-13 for every x.

    The difference cancels: at x = 1e-8 no digit is left. Below 1/16 the series x^2/2 (1 + x/3 (1 + x/4 (1 + ...))) is summed
    instead; the first term that is left out is 2 x^8/10!, 1.3e-16 of the value. From 1/16 on exp(x), which other statistics
    have computed, loses no more than expm1(x) would.
    """
    series = 1.0 + x * 0.0
    small = xp.where(xp.abs(x) < SERIES_BELOW, x, 0.0)
    for coefficient in reversed(_COEFFICIENTS):
        series = 1.0 + coefficient * small * series
    return xp.where(xp.abs(x) < SERIES_BELOW, 0.5 * small * small * series, xp.exp(x) - 1.0 - x)


SUM_LOG_RATIO = Statistic("sum_log_ratio", lambda c, xp: c.log_ratio)
SUM_SQUARE_LOG_RATIO = Statistic("sum_square_log_ratio", lambda c, xp: c.log_ratio * c.log_ratio)
SUM_K3 = Statistic("sum_k3", lambda c, xp: k3(c.log_ratio, xp))
SUM_ABS_LOG_RATIO = Statistic("sum_abs_log_ratio", lambda c, xp: xp.abs(c.log_ratio))
MAX_LOG_RATIO = Statistic(
    "max_log_ratio", lambda c, xp: xp.where(c.finite > 0, c.log_ratio, float("-inf")), combine="max"
)
MAX_NEGATIVE_LOG_RATIO = Statistic(
    "max_negative_log_ratio", lambda c, xp: xp.where(c.finite > 0, -c.log_ratio, float("-inf")), combine="max"
)

KL_BANDS = (
    Band(float("-inf"), 0.01, "healthy", "convention: plain bf16 and 8-bit engines at equal weights stay below"),
    Band(0.01, 0.1, "watch", "prime-rl aims below 0.01 and merges below 0.015"),
    Band(0.1, 1.0, "act", "convention: beyond every published healthy value"),
    Band(1.0, float("inf"), "very stale weights or wrong input", "miles documentation"),
)


def _mean(
    title: str, name: str, total: Statistic, formula: str, meaning: str, *, scale: float = 1.0, gaps: tuple[str, ...] = ALL_GAPS,
    unit: str = "nats/token", estimator: str = "mean", direction: str = "", range: str = "[0, inf)", bands: tuple[Band, ...] = (),
    worse: Literal["above", "away"] = "above", signal: str = "",
) -> Metric:  # fmt: skip
    def value(a: Floats, n: Floats) -> Floats:
        return scale * ratio(a, n)

    return Metric(
        name, unit, formula, meaning, title=title, needs=(total, FINITE), value=value, gaps=gaps,
        error=clustered_error(total, FINITE, scale=scale), estimator=estimator, direction=direction, range=range, bands=bands,
        weighting="every unmasked token of finite log-ratio counts once", kind="mean", topic="divergence", worse=worse,
        signal=signal,
    )  # fmt: skip


def _extreme(title: str, needs: tuple[Statistic, ...], name: str, formula: str, meaning: str, *, sign: float = 1.0,
             range: str = "(-inf, inf)", worse: Literal["above", "away"] = "away") -> Metric:  # fmt: skip
    def value(*extremes: Floats) -> Floats:
        largest = np.maximum.reduce(extremes)
        return np.where(np.isneginf(largest), np.nan, sign * largest)

    return Metric(
        name,
        "nats",
        formula,
        meaning,
        title=title,
        needs=needs,
        value=value,
        estimator="extreme",
        weighting="one token decides",
        range=range,
        kind="extreme",
        topic="tails",
        worse=worse,
    )


_KL = "KL(earlier || later) for mismatch and total; for drift a plain mean over rollout samples, no divergence"

METRICS = (
    _mean("KL, direct estimate", "kl_direct", SUM_LOG_RATIO, "mean(-x)",
          "K1, an unbiased estimate of the KL; can be negative. It misses misaligned lists: a shift does not change their means.",
          scale=-1.0, gaps=SAMPLED, estimator="K1", direction="KL(earlier || later)", range="(-inf, inf)", worse="away"),
    _mean("KL, K2 estimate", "kl_k2", SUM_SQUARE_LOG_RATIO, "mean(x^2 / 2)",
          "K2, an estimate of the KL with low variance; it is biased if log-ratios are large.",
          scale=0.5, estimator="K2", direction=_KL),
    _mean("KL", "kl_k3", SUM_K3, "mean(exp(x) - 1 - x)",
          "K3, an unbiased estimate of the KL that is never negative: the main measure of the size of a gap.",
          estimator="K3", direction=_KL, gaps=SAMPLED, bands=KL_BANDS, signal="kl_k3"),
    _mean("Mean log-ratio", "mean_log_ratio", SUM_LOG_RATIO, "mean(x)",
          "The mean log-ratio. Over the same tokens, total = mismatch + drift.", range="(-inf, inf)", worse="away",
          direction="later minus earlier"),
    _mean("approx_kl of trainers", "ppo_kl", SUM_LOG_RATIO, "mean(old - current)",
          "The mean of old - current, which trainers log as ppo_kl or approx_kl. It is no divergence, because the tokens were "
          "not sampled from old.",
          scale=-1.0, gaps=("drift",), range="(-inf, inf)", worse="away", direction="earlier minus later"),
    _mean("Mean |log-ratio|", "abs_log_ratio", SUM_ABS_LOG_RATIO, "mean(|x|)",
          "The mean distance of the two log-probs of a token.", unit="nats"),
    _extreme("Largest |log-ratio|", (MAX_LOG_RATIO, MAX_NEGATIVE_LOG_RATIO), "max_abs_log_ratio", "max(|x|)",
             "The largest distance of the two log-probs of a token.", range="[0, inf)", worse="above"),
    _extreme("Largest log-ratio", (MAX_LOG_RATIO,), "max_log_ratio", "max(x)",
             "The log-ratio of the token whose probability grew most."),
    _extreme("Smallest log-ratio", (MAX_NEGATIVE_LOG_RATIO,), "min_log_ratio", "min(x)",
             "The log-ratio of the token whose probability shrank most.", sign=-1.0),
)  # fmt: skip
