"""Numbers as a reader wants them: three digits, a standard error that says how many of them count, a true minus sign."""

import math
from collections.abc import Sequence
from statistics import median

from ratioscope.metrics.digits import digits, first_few, signed, size_on_disk, whole_percent

__all__ = ["a_step", "count", "digits", "first_few", "percent", "plus_minus", "signed", "size_on_disk", "whole_percent"]


SMALLEST, LEAST_ERROR = 1e-4, 1e-6
"""The smallest number that `digits` writes in decimals, and the smallest error of one that is written so."""


def plus_minus(value: float | None, error: float | None) -> str:
    """Value ± standard error, the value cut where the error's second digit stands; the value alone without an error.

    A small error of a value in decimals has decimals too: two scales beside each other cannot be compared at a glance.

    >>> plus_minus(0.0052341, 0.00031415), plus_minus(1.0, None), plus_minus(1.234e-7, 1e-9), plus_minus(12.0, 30.0)
    ('0.00523 ± 0.00031', '1', '1.234·10⁻⁷ ± 1·10⁻⁹', '12 ± 30')
    >>> plus_minus(0.00177012, 4.41e-5), plus_minus(1.0, 2e-12)
    ('0.00177 ± 0.000044', '1 ± 2·10⁻¹²')
    """
    if value is None or error is None or not (math.isfinite(value) and math.isfinite(error)) or error == 0:
        return digits(value)
    error_place = math.floor(math.log10(abs(error))) - 1
    value_place = math.floor(math.log10(abs(value))) if value else error_place
    is_decimal = abs(value) >= SMALLEST and LEAST_ERROR <= error < SMALLEST
    shown = f"{error:.{1 - math.floor(math.log10(error))}f}" if is_decimal else digits(error, 2)
    return f"{digits(value, max(1, min(6, value_place - error_place + 1)))} ± {shown}"


def count(value: float | None, noun: str = "") -> str:
    """A whole number with thousands separated, and its noun in the right number.

    >>> count(1, "token"), count(12345, "token"), count(2_500_000)
    ('1 token', '12,345 tokens', '2,500,000')
    """
    if value is None or math.isnan(value):
        return "–"
    shown = f"{int(value):,}"
    return f"{shown} {noun if int(value) == 1 else noun + 's'}" if noun else shown


def a_step(sizes: Sequence[float], noun: str) -> str:
    """The median number of tokens or sequences per drawn step; empty where it is not known.

    >>> a_step([200, 212, 96], "token"), a_step([], "token")
    ('N ≈ 200 tokens a step (median)', '')
    """
    known = [size for size in sizes if not math.isnan(size)]
    return f"N ≈ {count(median(known), noun)} a step (median)" if known else ""


def percent(share: float | None) -> str:
    """A measured share with three digits, as any measurement; tiny ones keep their size, those next to all stay below 100%.

    `whole_percent` is for parts of a gap.

    >>> percent(0.0312), percent(1.0), percent(0.0), percent(2e-7), percent(0.99999)
    ('3.12%', '100%', '0%', '2·10⁻⁵%', '99.999%')
    """
    if share is None or math.isnan(share):
        return "–"
    if 0.999 < share < 1:
        return f"{100 - 100 * float(f'{1 - share:.1g}'):.10g}%"
    return f"{digits(100 * share)}%"
