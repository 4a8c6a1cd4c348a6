"""Row: one row of a file as it was read, with the values that its file has for all rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.errors import FieldError

ABSENT = None


@dataclass(frozen=True)
class Unreadable:
    """A row that is no row."""

    reason: str
    is_cut: bool = False
    """True for the last line of a file that does not end: it was cut off, or is being written."""


@dataclass(frozen=True)
class SetAside:
    """Sound parts of a file that are no samples of training: they are counted, and no row is made of them."""

    what: str
    """The parts, in words, such as `rollouts of an evaluation`."""
    count: int = 1
    """Their number."""


@dataclass(frozen=True)
class Row:
    """A row; places are looked up in it."""

    values: Any
    """The value of the row: usually a mapping."""
    file: Any
    """The value of the whole file, for places that begin with ^."""
    facts: Mapping[str, Any]
    """`row`, and the parts of the file's name, for places that begin with @."""

    def at(self, place: str) -> Any:
        """The value at a place; None where there is none."""
        if place.startswith("@"):
            return self.facts.get(place[1:])
        if place.startswith("^"):
            return inside(self.file, place[1:])
        return inside(self.values, place)


def inside(value: Any, place: str) -> Any:
    """The value at a place inside a value. A name with dots in it is looked up as it is first.

    >>> inside({"a": [{"b": 1}]}, "a.0.b")
    1
    """
    if isinstance(value, Mapping) and place in value:
        return value[place]
    for name in place.split("."):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes)):
            index = int(name) if name.removeprefix("-").isdigit() else len(value)
            value = value[index] if -len(value) <= index < len(value) else None
        else:
            return None
    return value


def flat(value: Any, what: str) -> np.ndarray[Any, Any]:
    """Numbers in a row, as a one-dimensional array; null is NaN. FieldError for anything else."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        array = value
    elif isinstance(value, (list, tuple, np.ndarray)):
        array = _of_list(list(value), what)
    else:
        raise FieldError(f"{what} is a {type(value).__name__}; wanted one number per token")
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise FieldError(f"{what} has the shape {array.shape} and the type {array.dtype}; wanted one number per token")
    return array


def _of_list(values: list[Any], what: str) -> np.ndarray[Any, Any]:
    kinds = set(map(type, values))
    if bool in kinds and kinds - {bool, type(None)}:
        raise FieldError(f"{what} holds true or false among other values; wanted one number per token")
    if kinds - {int, float, bool, type(None)} and not all(issubclass(kind, (np.number, np.bool_)) for kind in kinds):
        other = next(kind.__name__ for kind in kinds if kind not in (int, float, bool, type(None)))
        or_group = ", or a list for each completion in every column of log-probs" if other == "list" else ""
        raise FieldError(f"{what} holds a {other}; wanted one number per token{or_group}")
    if type(None) in kinds:
        values = [np.nan if value is None else value for value in values]
    try:
        return np.array(values, np.float64 if not values else None)
    except OverflowError as error:
        raise FieldError(f"{what} holds a number that is too large") from error
