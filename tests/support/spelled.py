"""A number back from its spelling on a page."""

_PLAIN = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def number_of(shown: str) -> float:
    """
    >>> number_of("−31,200"), number_of("1.2·10⁻⁷"), number_of("+0.42")
    (-31200.0, 1.2e-07, 0.42)
    """
    mantissa, _, power = shown.replace(",", "").replace("−", "-").partition("·10")
    return float(mantissa) * 10.0 ** int(power.translate(_PLAIN) or 0)
