"""A number as a reader wants it, the same in verdicts, pages, files and the terminal: three digits, a true minus sign."""

import math

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
