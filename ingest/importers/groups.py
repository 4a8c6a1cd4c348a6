"""Rows of a whole group, as data sets have them: for each completion of one prompt, a list of log-probs in a list."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .row import Unreadable, inside
from .table import ColumnMapping

_OF_PROMPT = ("prompt_ids", "prompt_texts")
"""Columns of which one list may stand for the prompt of all completions."""
_MEND = "mend the column, or write one row for each completion"
_LISTS = (list, tuple, np.ndarray)
_ONE_VALUE = (type(None), int, float, str)


def completions(
    values: Any, columns: Sequence[ColumnMapping], *, logprobs: Sequence[str], per_token: Sequence[str]
) -> Iterator[Any] | None:
    """One row for each completion of a group, or an Unreadable where its columns do not fit; None of a row of one sequence.

    A list with an entry for each completion is taken apart; a value that is no list is that of all. A row in which one policy
    has such a list and another a plain one is no group: its column is at fault. logprobs, per_token: the columns of the Record
    that have one number for each token.
    """
    given = [name for name in _places(columns, logprobs) if not isinstance(inside(values, name), _ONE_VALUE)]
    if not given or not all(is_nested(inside(values, name)) for name in given):
        return None
    return _taken_apart(values, columns, given[0], per_token)


def _taken_apart(
    values: Any, columns: Sequence[ColumnMapping], counted: str, per_token: Sequence[str]
) -> Iterator[Any]:
    count = len(inside(values, counted))
    entries: dict[str, Any] = {}
    for into, name in _fields(columns):
        held = inside(values, name)
        if not isinstance(held, _LISTS) or name in entries or _is_of_all(into, held, count):
            continue
        if (fault := _fault(held, count, into in per_token)) is not None:
            yield Unreadable(f"{name[:60]} {fault}, and {counted} has {count} completions; {_MEND}")
            return
        entries[name] = held
    for place in range(count):
        yield {**values, **{name: held[place] for name, held in entries.items()}}


def _fields(columns: Sequence[ColumnMapping]) -> Iterator[tuple[str, str]]:
    """(column, a field of the row that it is made of) for each; "" as the column of fields that its steps name."""
    for line in columns:
        named = [(line.into, name) for name in line.places]
        named += [("", argument) for step in line.steps for argument in step.arguments]
        yield from (each for each in named if not each[1].startswith(("^", "@")))


def _places(columns: Sequence[ColumnMapping], into: Sequence[str]) -> Iterator[str]:
    return (name for line in columns if line.into in into for name in line.places)


def _is_of_all(into: str, held: Any, count: int) -> bool:
    """True for a list that is one value of the whole group."""
    if into.startswith("extra."):
        return len(held) != count
    is_conversation = len(held) > 0 and isinstance(held[0], Mapping)
    return into in _OF_PROMPT and not is_nested(held) and (into == "prompt_ids" or is_conversation)


def _fault(held: Any, count: int, is_per_token: bool) -> str | None:
    """Why a list has no entry for each completion, in words behind its name; None if it has."""
    if is_per_token and not is_nested(held):
        return "is one list; wanted a list for each completion"
    if len(held) != count:
        return f"has {len(held)} entries; wanted one for each completion"
    odd = next((each for each in held if is_per_token and not isinstance(each, (*_LISTS, type(None)))), None)
    return None if odd is None else f"holds a {type(odd).__name__} beside lists; wanted a list for each completion"


def is_nested(value: Any) -> bool:
    """True for a list of lists, as its first entry that is not null shows."""
    if not isinstance(value, _LISTS):
        return False
    return isinstance(next((each for each in value if each is not None), None), _LISTS)


def names_each(values: Any, columns: Sequence[ColumnMapping]) -> bool:
    """True if each completion of the group has a sequence id of its own."""
    return any(isinstance(inside(values, name), _LISTS) for name in _places(columns, ("sequence_ids",)))
