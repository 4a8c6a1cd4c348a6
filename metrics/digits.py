"""A number as a reader wants it, the same in verdicts, pages, files and the terminal: three digits, a true minus sign."""

import math
from collections.abc import Sequence

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def digits(value: float | None, significant: int = 3) -> str:
    """The value with that many significant digits; ∞ where it is infinite, – where there is none.

    >>> digits(0.0052341), digits(-31234.5), digits(1.2e-7), digits(None), digits(float("inf")), digits(100 * 1e-6)
    ('0.00523', '−31,200', '1.2·10⁻⁷', '–', '∞', '0.0001')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{significant}g}")
    if not 1e-4 <= abs(rounded) < 1e6:
        mantissa, exponent = f"{value:.{significant - 1}e}".split("e")
        if "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa}·10{str(int(exponent)).translate(_SUPERSCRIPT)}".replace("-", "−", 1)
    places = max(0, significant - 1 - math.floor(math.log10(abs(rounded))))
    shown = f"{rounded:,.{places}f}"
    return (shown.rstrip("0").rstrip(".") if "." in shown else shown).replace("-", "−")


def signed(value: float, significant: int = 3) -> str:
    """`digits` with a sign on both sides of 0.

    >>> signed(0.0052341), signed(-0.0), signed(-2.0)
    ('+0.00523', '0', '−2')
    """
    return f"{'+' if value > 0 else ''}{digits(value, significant)}"


def whole_percent(share: float, error: float = math.nan) -> str:
    """A share in whole percent, with the digits that matter next to 0 and 1, and its error; to stand before "of the gap".

    An error of 5% or more leaves whole percent. An error below half a percent has one digit.

    >>> whole_percent(0.42), whole_percent(0.007), whole_percent(0.9975), whole_percent(2e-4), whole_percent(0.0)
    ('42%', '0.7%', '99.8%', 'less than 0.1%', 'none')
    >>> whole_percent(-0.99, 0.34), whole_percent(0.11, 0.0021), whole_percent(0.9999, 0.21), whole_percent(0.0, 0.1)
    ('−99% ± 34%', '11% ± 0.2%', '100% ± 21%', '0% ± 10%')
    """
    size, has_error = abs(share), math.isfinite(error)
    if size < 5e-4 and not has_error:
        return "less than 0.1%" if size else "none"
    places = 2 if 0.9995 <= size < 1 else 1 if 5e-4 <= size < 0.01 or 0.995 < size < 0.9995 else 0
    places = 0 if has_error and error >= 0.05 else places
    shown = f"{round(share, places + 2) + 0.0:.{places}%}".replace("-", "−")
    if not has_error:
        return shown
    return f"{shown} ± {f'{error:.0%}' if error >= 0.005 or not error else f'{digits(100 * error, 1)}%'}"


def size_on_disk(nbytes: float) -> str:
    """A number of bytes in the unit that shows its first digits, as all texts of ours write sizes: KB is 1,000 bytes.

    >>> size_on_disk(999), size_on_disk(41_300), size_on_disk(2.5e13)
    ('999 bytes', '41.3 KB', '25.0 TB')
    """
    for unit in ("bytes", "KB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:,.0f} {unit}" if unit == "bytes" else f"{nbytes:,.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.1f} TB"


def first_few(names: Sequence[str], most: int = 3) -> str:
    """The first names, and the number of the others.

    >>> first_few(["a", "b", "c", "d", "e"]), first_few(["a", "b"])
    ('a, b, c and 2 more', 'a, b')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
