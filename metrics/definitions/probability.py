"""Agreement of the two policies token by token: differences of probabilities, correlations at shifts, slope.

Correlations are Pearson's over tokens. They are computed from raw moments, which merge; in float64 they are accurate to about
1e-12.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ratioscope.arrays import Floats

from ..columns import SHIFTS, ShiftedPair, TokenColumns
from ..metric import ALL_GAPS, SAMPLED, Band, Metric, Operand, Statistic, clustered_error, ratio
from .validity import TOKENS

PolicyValues = Callable[[TokenColumns], tuple[Operand, Operand, Operand]]
"""Columns -> (count, earlier, later), each 0 for tokens that do not count."""


def moments(name: str, sides: PolicyValues, *, whole: bool = False) -> tuple[Statistic, ...]:
    """Count, sums, sums of squares and sum of products of two columns."""

    def statistic(word: str, formula: Callable[[Operand, Operand, Operand], Operand]) -> Statistic:
        return Statistic(f"{name}_{word}", lambda c, xp: formula(*sides(c)), whole=whole)

    return (
        statistic("count", lambda n, a, b: n),
        statistic("sum_earlier", lambda n, a, b: a),
        statistic("sum_later", lambda n, a, b: b),
        statistic("sum_square_earlier", lambda n, a, b: a * a),
        statistic("sum_square_later", lambda n, a, b: b * b),
        statistic("sum_product", lambda n, a, b: a * b),
    )


def _probabilities(c: TokenColumns) -> tuple[Operand, Operand, Operand]:
    return c.token, c.earlier_probability, c.later_probability


def _logprobs(c: TokenColumns) -> tuple[Operand, Operand, Operand]:
    return c.finite, c.earlier * c.finite, c.later


def _shifted(shift: int) -> PolicyValues:
    def sides(c: TokenColumns) -> tuple[Operand, Operand, Operand]:
        pair: ShiftedPair = c.pairs[shift]
        return pair.exists, pair.earlier, pair.later

    return sides


def correlation(n: Floats, a: Floats, b: Floats, aa: Floats, bb: Floats, ab: Floats) -> Floats:
    """Pearson's correlation from moments; not available for fewer than two tokens or where a side is constant."""
    count = np.where(n > 1, n, np.nan)
    spread_a, spread_b = aa - a * a / count, bb - b * b / count
    # Rounding can leave a tiny spread of a constant.
    varies = (spread_a > 1e-14 * aa) & (spread_b > 1e-14 * bb)
    product = np.where(varies, spread_a, np.nan) * spread_b
    return np.clip((ab - a * b / count) / np.sqrt(product), -1.0, 1.0)


def _slope(earlier_squares: Floats, products: Floats) -> Floats:
    return ratio(products, earlier_squares)


PROBABILITY = moments("probability", _probabilities)
LOGPROB = moments("logprob", _logprobs)
SHIFTED = {
    shift: moments(f"shift_{'plus' if shift > 0 else 'minus'}_{abs(shift)}", _shifted(shift), whole=True)
    for shift in SHIFTS
}
SUM_PROB_DIFF = Statistic("sum_prob_diff", lambda c, xp: xp.abs(c.later_probability - c.earlier_probability))
MAX_PROB_DIFF = Statistic(
    "max_prob_diff",
    lambda c, xp: xp.where(c.token > 0, xp.abs(c.later_probability - c.earlier_probability), float("-inf")),
    combine="max",
)

_CORRELATION = "Pearson's correlation over tokens"
ATTENUATION = (
    "Noise alone lowers it to 1 - s^2 / (2 v^2), where s is the standard deviation of the log-ratios and v that of the "
    "log-probs. If log-probs hardly vary, as those of a near-uniform policy or of a step of low entropy, a low value is no "
    "evidence of any fault."
)
"""The correlation of two readings of the same log-probs, in words. Spearman 1904."""


def _correlation(
    title: str, name: str, needs: tuple[Statistic, ...], formula: str, meaning: str, gaps: tuple[str, ...] = ALL_GAPS,
) -> Metric:  # fmt: skip
    return Metric(
        name, "1", formula, meaning, title=title, needs=needs, value=correlation, gaps=gaps, estimator="Pearson", range="[-1, 1]",
        absent="there are fewer than two tokens, or one side is the same at every token",
        kind="correlation", topic="agreement", neutral=1.0, worse="below",
    )  # fmt: skip


def _shift_correlation(shift: int) -> Metric:
    shifted = _correlation(
        f"Correlation after a shift of {shift:+d}", f"shift_correlation_{shift:+d}",
        SHIFTED[shift], f"{_CORRELATION} of later[t] and earlier[t{-shift:+d}]",
        f"logprob_correlation with the earlier policy's list moved by {shift:+d}. If it is near 1 and logprob_correlation is "
        "not, that list is shifted.", SAMPLED,
    )  # fmt: skip
    return replace(shifted, topic="faults", neutral=0.0, worse="away")


METRICS = (
    Metric("prob_diff", "1", "mean(|exp(later) - exp(earlier)|)", "The mean difference of the two probabilities of a token.",
           needs=(SUM_PROB_DIFF, TOKENS), value=ratio, error=clustered_error(SUM_PROB_DIFF, TOKENS), range="[0, 1]",
           estimator="mean", bands=(Band(0.0, 0.005, "healthy", "verl FAQ: about 0.005 or lower"),),
           kind="mean", topic="agreement", worse="above", title="Difference of probabilities"),
    Metric("max_prob_diff", "1", "max(|exp(later) - exp(earlier)|)",
           "The difference of the two probabilities at the token where it is largest.",
           needs=(MAX_PROB_DIFF,), value=lambda largest: np.where(np.isneginf(largest), np.nan, largest), range="[0, 1]",
           estimator="extreme", weighting="one token decides", kind="extreme", topic="agreement", worse="above",
           title="Largest difference of probabilities"),
    _correlation("Correlation of probabilities", "prob_correlation", PROBABILITY, f"{_CORRELATION} of exp(logprob)",
                 "The correlation of the two probabilities of a token. It saturates: gross faults can leave it above 0.98. "
                 "Only values below 0.9 are informative."),
    _correlation("Correlation of log-probs", "logprob_correlation", LOGPROB, f"{_CORRELATION} of logprobs",
                 "The correlation of the two log-probs of a token. Old weights, another context and other tokens lower it. "
                 f"{ATTENUATION}"),
    *(_shift_correlation(shift) for shift in SHIFTS),
    Metric("slope", "1", "sum(earlier * later) / sum(earlier^2), of logprobs",
           "Slope of the line through 0 that fits later to earlier; not 1 if the two sides differ in temperature.",
           needs=(LOGPROB[3], LOGPROB[5]), value=_slope, estimator="least squares", range="(-inf, inf)",
           kind="ratio", topic="faults", title="Slope of log-probs"),
)  # fmt: skip
