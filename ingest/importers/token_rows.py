"""Tables of one row per token: rows that follow one another and have one sequence become a row of lists."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ratioscope.errors import UnsafeFile

from .row import Unreadable, inside
from .table import ColumnMapping
from .token_strings import TOKEN_TEXTS

POSITION = "position"
"""The field that counts the tokens of a sequence, if the rows have it."""
_OF_KEY = ("step", "minibatch", "sequence_ids")
_WORDS = {"true": True, "false": False}


@dataclass
class _Sequence:
    """The rows of a sequence that were read so far."""

    key: tuple[Any, ...]
    """The values that all its rows share."""
    row: int
    """The number of its first row."""
    tokens: dict[str, list[Any]]
    """Field -> one value per token."""
    whole: dict[str, Any]
    """Field -> the value that all of its rows must have."""
    texts: frozenset[str] = frozenset()
    """The fields whose cells stay as they are: the text of a token may be that of a number."""
    fault: str = ""
    """Why it cannot be read; empty if it can."""

    def add(self, values: Mapping[str, Any]) -> None:
        for name, cells in self.tokens.items():
            cells.append(values.get(name))
        for name, value in self.whole.items():
            if (other := values.get(name)) is not value and not _is_same(other, value):
                self.fault = self.fault or f"its rows differ in {name}; wanted one value in all rows of a sequence"

    def joined(self) -> Any:
        """The row of lists; a field that no row has is absent."""
        held = {name: cells for name, cells in self.tokens.items() if any(cell is not None for cell in cells)}
        lists = {name: cells if name in self.texts else list(map(plain_cell, cells)) for name, cells in held.items()}
        fault = self.fault or _out_of_order(lists.get(POSITION, ()))
        return Unreadable(fault) if fault else {**self.whole, **lists}


@dataclass
class TokenRows:
    """Joins the rows of a table. per_token: columns of one value per token; the other columns have one value per sequence."""

    columns: tuple[ColumnMapping, ...]
    per_token: frozenset[str]
    _seen: set[tuple[Any, ...]] = field(default_factory=set)
    """The keys of the sequences that were read."""

    def joined(self, rows: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """(number of its first row, a row of lists) for each sequence; Unreadable for one that does not hold together.

        A row that cannot be read makes the sequence before it unreadable, and the one that begins behind it: it may have been a
        token of either. UnsafeFile where a sequence goes on after rows of another one.
        """
        own: _Sequence | None = None
        lost = ""
        for number, values in enumerate(rows):
            if not isinstance(values, Mapping):
                lost = values.reason if isinstance(values, Unreadable) else "the row is no mapping"
                lost = f"row {number}, which may be one of its tokens, cannot be read: {lost}"
                if own is not None:
                    own.fault = own.fault or lost
                continue
            dotted = [place for place in self._dotted if place not in values]
            values = {**values, **{place: inside(values, place) for place in dotted}} if dotted else values
            key = tuple(_first(values, places) for places in self._key)
            if own is None or key != own.key:
                if own is not None:
                    yield own.row, own.joined()
                own = self._begun(key, number, values, lost)
            own.add(values)
            lost = ""
        if own is not None:
            yield own.row, own.joined()
        elif lost:
            yield 0, Unreadable(lost)

    def _begun(self, key: tuple[Any, ...], number: int, values: Mapping[str, Any], fault: str) -> _Sequence:
        if key in self._seen:
            raise UnsafeFile(
                f"row {number} goes on with a sequence after rows of another one; sort the table by step, sequence and position"
            )
        self._seen.add(key)
        tokens: dict[str, list[Any]] = {place: [] for place in self._of_tokens}
        whole = {place: values.get(place) for place in self._of_sequences}
        return _Sequence(key, number, tokens, whole, self._texts, fault)

    @cached_property
    def _key(self) -> tuple[tuple[str, ...], ...]:
        return tuple(line.places for line in self.columns if line.into in _OF_KEY)

    @cached_property
    def _dotted(self) -> tuple[str, ...]:
        return tuple(place for place in (*self._of_tokens, *self._of_sequences) if "." in place)

    @cached_property
    def _of_tokens(self) -> tuple[str, ...]:
        return (*(place for line in self.columns if line.into in self.per_token for place in line.places), POSITION)

    @cached_property
    def _texts(self) -> frozenset[str]:
        return frozenset(place for line in self.columns if line.into == TOKEN_TEXTS for place in line.places)

    @cached_property
    def _of_sequences(self) -> tuple[str, ...]:
        places = (place for line in self.columns for place in line.places if place[0] not in "^@")
        return tuple(place for place in places if place not in self._of_tokens)


def is_number(value: Any) -> bool:
    """True for one number, or a text of one."""
    return isinstance(plain_cell(value), (int, float, np.number))


def _first(values: Mapping[str, Any], places: Iterable[str]) -> Any:
    return next((str(value) for place in places if (value := values.get(place)) is not None), None)


def plain_cell(cell: Any) -> Any:
    """The value of a cell; a number, where the cell is a text of one."""
    if not isinstance(cell, str):
        return cell
    try:
        return _WORDS[cell.lower()] if cell.lower() in _WORDS else int(cell)
    except ValueError:
        pass
    try:
        return float(cell)
    except ValueError:
        return cell


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other or (one != one and other != other))  # the last: both are NaN


def _out_of_order(positions: Iterable[Any]) -> str:
    """The first place where positions do not go up by 1, in words; empty where they do, or are absent."""
    held = list(positions)
    for one, other in zip(held, held[1:], strict=False):
        if one is not None and other is not None and other != one + 1:
            return f"its {POSITION} goes from {one} to {other}; wanted each token once, in order"
    return ""
