"""The numbers of a column, all written in one way: their sizes are read down the column."""

import math

import polars as pl

from .digits import digits

SMALLEST_DECIMAL = 1e-6
"""The browser writes a number below this with a power of ten."""
FAR_APART = 100
"""Factor between numbers of a column from which equal decimals would give the largest too many digits. Convention."""


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


def column_texts(values: pl.Series) -> list[str]:
    """The numbers of a column as texts, with equal decimals unless they lie far apart; empty where there is none.

    >>> column_texts(pl.Series([8.7, 8.32, None])), column_texts(pl.Series([0.0001, 12.5])), column_texts(pl.Series([3.0, -1.0]))
    (['8.70', '8.32', ''], ['0.0001', '12.5'], ['3', '−1'])
    """
    style, known = number_format(values), values.drop_nulls().cast(pl.Float64)
    if not style.endswith("f") or not known.is_finite().all():
        return ["" if value is None else digits(value) for value in values]
    decimals = 0 if (known == known.round()).all() else int(style[2:-1])
    return ["" if value is None else f"{value:,.{decimals}f}".replace("-", "−") for value in values]
