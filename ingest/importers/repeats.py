"""Responses that a log holds twice, as a program that writes again after an error leaves them."""

from collections.abc import Iterable
from typing import Any

REPEATED = "responses that the log holds twice, with equal id and log-probs"
_MOST_KNOWN = 1 << 20
"""Responses of a file of which a second writing is noticed; after as many the memory begins anew."""


def is_known(name: Any, place: Any, logprobs: Iterable[bytes], known: set[int]) -> bool:
    """True if `known` has a response of this id, place and log-probs; it has the response from now on. False without an id."""
    if name is None:
        return False
    digest = hash((str(name), place, *logprobs))
    if digest in known:
        return True
    if len(known) >= _MOST_KNOWN:
        known.clear()
    known.add(digest)
    return False
