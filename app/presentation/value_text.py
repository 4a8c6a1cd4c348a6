"""A metric's value as a reader should take it: ± its standard error, or as a bound where a tail hides the rest of it."""

import math

from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.metric import Metric

from .digits import count, plus_minus

_SIGNS = {"at least": "≥ ", "at most": "≤ ", "": ""}


def value_with_error(metric: Metric, value: float | None, error: float | None) -> str:
    """Value ± error. Second moments without an error are bounds: k-hat has failed, so the sample shows too little of the tail.

    >>> value_with_error(BY_NAME["kl_k3"], 0.0052341, 0.00031415), value_with_error(BY_NAME["tokens"], 12345.0, None)
    ('0.00523 ± 0.00031', '12,345')
    >>> value_with_error(BY_NAME["chi2_token"], 0.5, None), value_with_error(BY_NAME["chi2_token"], -0.1, None)
    ('≥ 0.5', '≥ 0')
    """
    if metric.kind == "count":
        return count(value)
    if value is not None and value < 0 and metric.bound == "at least" and metric.is_bound(error):
        return "≥ 0"  # a divergence is never negative: a sample below says nothing more than that
    return f"{bound(metric, value, error)}{plus_minus(value, error)}"


def value_words(name: str, value: float | None, error: float | None) -> str:
    """`value_with_error` for the metric of this name. An error that is NaN is unknown, like None."""
    return value_with_error(BY_NAME[name], value, None if error is None or math.isnan(error) else error)


def bound(metric: Metric, value: float | None, error: float | None) -> str:
    """The sign before a value that is only a bound, else an empty text."""
    if value is None or not math.isfinite(value) or not metric.is_bound(error):
        return ""
    return _SIGNS[metric.bound]
