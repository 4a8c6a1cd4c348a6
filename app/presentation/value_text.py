"""A metric's value as a reader should take it: ± its standard error, or as a bound where a tail hides the rest of it.

A Limit in words, for charts.
The numbers of a column, all written in one way: their sizes are read down the column.
"""

import math
from datetime import datetime
from typing import Any

import polars as pl

from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.limits import Limit
from ratioscope.metrics.metric import Metric

from .digits import count, digits, plus_minus
from .escape import plotly as escaped
from .theme import MARKS

_SIGNS = {"at least": "≥ ", "at most": "≤ ", "": ""}

SMALLEST_DECIMAL = 1e-6
"""The browser writes a number below this with a power of ten."""
FAR_APART = 100
"""Factor between numbers of a column from which equal decimals would give the largest too many digits. Convention."""


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


def limit_words(limit: Limit) -> str:
    """The mark of the limit's grade, its reading, and from where on the reading holds."""
    if limit.is_floor:
        return f"{escaped(limit.reading, 60)} {digits(limit.at, 2)}"
    mark = f"{MARKS[limit.severity]} " if limit.severity else ""
    return f"{mark}{escaped(limit.reading, 40)} {'≥' if limit.worse == 'above' else '≤'} {digits(limit.at)}"


def number_format(values: pl.Series) -> str:
    """One way to write all numbers of a column: as many decimals as the smallest needs for three digits.

    Numbers are powers of ten where some would be written so, and have three digits each where they lie far apart.
    """
    sizes = values.cast(pl.Float64).abs()
    known = sizes.filter(sizes.is_finite() & (sizes > 0))
    if known.is_empty():
        return "%.3g"
    least, largest = float(known.min()), float(known.max())  # type: ignore[arg-type]
    if least < SMALLEST_DECIMAL:
        return "%.2e"
    return f"%.{max(0, 2 - math.floor(math.log10(least)))}f" if largest < FAR_APART * least else "%.3g"


def cell_texts(values: pl.Series) -> list[str]:
    """The values of a column of a table as texts: `column_texts` of floats, times in UTC, counts, yes and no."""
    return column_texts(values) if values.dtype.is_float() else [*map(_cell_text, values)]


def _cell_text(value: Any) -> str:
    """Any: the values of a frame."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return "" if value is None else count(value) if isinstance(value, int) else str(value)


def column_texts(values: pl.Series) -> list[str]:
    """The numbers of a column as texts, with equal decimals unless they lie far apart; empty where there is none.

    >>> column_texts(pl.Series([8.7, 8.32, None])), column_texts(pl.Series([0.0001, 12.5])), column_texts(pl.Series([3.0, -1.0]))
    (['8.70', '8.32', ''], ['0.0001', '12.5'], ['3', '−1'])
    """
    style, known = number_format(values), values.drop_nulls().cast(pl.Float64)
    if not style.endswith("f") or not known.is_finite().all():
        return ["" if value is None else digits(value) for value in values]
    decimals = 0 if (known == known.round()).all() else int(style[2:-1])
    return ["" if value is None else f"{value + 0.0:,.{decimals}f}".replace("-", "−") for value in values]
