"""The names nearest to one that is not there."""

from collections.abc import Sequence
from difflib import get_close_matches

MOST = 3


def near_names(wanted: str, names: Sequence[str]) -> list[str]:
    """At most three of the names, the one most like the wanted one first.

    >>> near_names("trl-stael", ["healthy", "trl-stale"])
    ['trl-stale', 'healthy']
    """
    return get_close_matches(wanted, names, MOST, cutoff=0.0)
