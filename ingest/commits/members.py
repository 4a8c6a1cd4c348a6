"""Members of the entries of a commit log, each checked: whole numbers, counts, texts, times, names and spans of steps."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ratioscope.errors import SourceError

_INT64 = 1 << 63
_MOST_COUNT = 1 << 48
"""Largest count in an entry. Sums of such counts over all lines of a run fit into 64 bits."""


def step_spans(item: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """Steps written as [first, last, first, last, ...], as pairs of first and last."""
    numbers = item.get("steps")
    if not isinstance(numbers, list) or len(numbers) % 2 or not all(is_int64(step) for step in numbers):
        raise SourceError(f"its commit has steps {str(numbers)[:60]!r}; wanted pairs of first and last")
    return tuple((first, last) for first, last in zip(numbers[::2], numbers[1::2], strict=True) if first <= last)


def whole_number(entry: Mapping[str, Any], name: str, least: int = -_INT64) -> int:
    """A member that must be a 64-bit whole number of at least `least`. A count (`least` is 0 or more) has at most 48 bits."""
    value = entry.get(name)
    if type(value) is int and least <= value < (_MOST_COUNT if least >= 0 else _INT64):
        return value
    raise SourceError(f"its commit has {name} {str(value)[:60]!r}; wanted a whole number")


def optional_count(entry: Mapping[str, Any], name: str) -> int | None:
    """A member that must be a count; None where it is absent or null."""
    return None if entry.get(name) is None else whole_number(entry, name, least=0)


def text(entry: Mapping[str, Any], name: str) -> str:
    """A member that must be a text."""
    value = entry.get(name)
    if not isinstance(value, str):
        raise SourceError(f"its commit has {name} {str(value)[:60]!r}; wanted a text")
    return value


def seconds(entry: Mapping[str, Any]) -> float | None:
    """The member `time` in seconds since 1970; None where it is absent or outside the years 1970 to 9999."""
    value = entry.get("time")
    return float(value) if isinstance(value, int | float) and 0 <= value < 253402300800 else None


def names(value: object) -> frozenset[str]:
    """The texts in a list; empty for any other value."""
    return frozenset(item for item in value if isinstance(item, str)) if isinstance(value, list) else frozenset()


def names_among(entry: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> frozenset[str]:
    """The names that the member lists, without those that are not in `allowed`."""
    value = entry.get(name)
    if not isinstance(value, list):
        return frozenset()
    try:
        return _among(tuple(value), allowed)
    except TypeError:  # an item of the list is no text and cannot be hashed
        return frozenset(item for item in value if isinstance(item, str) and item in allowed)


@lru_cache(256)
def _among(names: tuple[str, ...], allowed: tuple[str, ...]) -> frozenset[str]:
    """The known ones of these names. One set is shared by all files with equal names: a run has hundreds of thousands."""
    return frozenset(name for name in names if name in allowed)


def is_int64(value: object) -> bool:
    return type(value) is int and -_INT64 <= value < _INT64
