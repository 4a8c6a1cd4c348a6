"""A metric's value as a reader should take it: ± its standard error, or as a bound where a tail hides the rest of it."""

import math

from .digits import count, plus_minus

AT_LEAST = frozenset({"chi2_token", "chi2_sequence"})
AT_MOST = frozenset({"ess_token", "ess_sequence", "ess_geometric"})
COUNTS = frozenset({"tokens", "sequences"})


def measured(metric: str, value: float | None, error: float | None) -> str:
    """Value ± error. Second moments without an error are bounds: k-hat has failed, so the sample shows too little of the tail.

    >>> measured("kl_k3", 0.0052341, 0.00031415), measured("chi2_token", 0.5, None), measured("chi2_token", -0.1, None)
    ('0.00523 ± 0.00031', '≥ 0.5', '≥ 0')
    """
    if metric in COUNTS:
        return count(value)
    if value is not None and value < 0 and metric in AT_LEAST and is_bound(metric, error):
        return "≥ 0"  # a divergence is never negative: a sample below says nothing more than that
    return f"{bound(metric, value, error)}{plus_minus(value, error)}"


def bound(metric: str, value: float | None, error: float | None) -> str:
    """What stands before a value that is only a bound, else nothing."""
    if value is None or not math.isfinite(value) or not is_bound(metric, error):
        return ""
    return "≥ " if metric in AT_LEAST else "≤ "


def is_bound(metric: str, error: float | None) -> bool:
    """Whether a value of the metric with this standard error is only a bound."""
    return error is None and metric in AT_LEAST | AT_MOST
