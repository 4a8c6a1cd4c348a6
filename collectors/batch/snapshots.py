"""Snapshots: the arguments of `log` as they are at the call. Nothing that the trainer does afterwards changes them.

Arrays and tensors are copied into host memory (host_copy.py), lists down to their numbers and texts. Any other object is replaced
by its text, or by what a configuration would keep of it. An argument that only describes rows and cannot be read becomes Unread.
"""

import sys
from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence, ValuesView
from itertools import chain
from numbers import Number
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ratioscope.errors import SchemaError
from ratioscope.kept_settings import kept
from ratioscope.record import TOKEN_FIELDS

from ..process.counts import reason_of
from ..process.failures import is_of_a_handler, let_go
from .host_copy import HostArray, HostCopies, Joined, Unread, is_tensor, whole_array
from .row_lengths import DECIDING
from .token_columns import NUMBERS, shape_of

P = ParamSpec("P")
T = TypeVar("T")
EXTRA = "extra"
_DECIDING = frozenset((*DECIDING, "lengths"))
"""Arguments that decide what is measured: without them there is nothing to record."""
_PER_TOKEN = frozenset((*TOKEN_FIELDS, "turns", "mask_reasons", "prompt_ids"))
_ROWS = frozenset((list, tuple, type(None)))
_FIXED = frozenset((str, int, float, bool, complex, bytes, type(None)))
"""Types whose values never change."""
_MOST_LISTS, _MOST_LEVELS = 10_000, 100
"""Lists and levels of one value of `extra`; a larger one is cut as a configuration is."""


def readable(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, each in a form of which `snapshots` can take a copy; Unread where it has none."""
    return {name: _or_unread(name, plain, value) for name, value in given.items()}


def snapshots(values: Mapping[str, Any], copies: HostCopies) -> tuple[dict[str, Any], tuple[HostArray, ...]]:
    """Copies of all values as they are now, and the host memory to release later. A value that is given twice is copied once."""
    held: list[HostArray] = []
    taken: dict[str, Any] = {}
    known: dict[tuple[int, Any], Any] = {}
    try:
        for name, value in values.items():
            how = _extra if name == EXTRA else _tokens if name in _PER_TOKEN or ":" in name else _copy
            key = id(value), how
            if key not in known:
                known[key] = _or_unread(name, how, value, copies, held)
            taken[name] = known[key]
            if isinstance(taken[name], Unread):
                del known[key]  # of another argument it may be refused
    except BaseException:
        copies.release_all(held)
        raise
    return taken, tuple(held)


def plain(value: Any) -> Any:
    """The value as an array, a list or a scalar.

    A list if it is a nested tensor, an array of objects or texts, such a column of a data frame, or another kind of sequence. An
    array that shares the memory if it is a buffer. SchemaError if it can be read only once, or in no order.
    """
    if type(value) in _FIXED or isinstance(value, (list, tuple, Mapping, str, Unread)):
        return value
    if is_tensor(value):
        return list(value.unbind()) if value.is_nested else value
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind in "OUS" else value
    listed = getattr(value, "to_pylist", getattr(value, "to_list", None))
    if listed is not None:
        first = next((item for item in value if item is not None), None)  # of pandas, polars or Arrow
        if isinstance(getattr(first, "as_py", lambda: first)(), NUMBERS):
            return _shaped(value)
        return listed()
    return _shaped(value) if _is_array(value) else _plain_sequence(value)


def _shaped(value: Any) -> Any:
    return value if hasattr(value, "shape") else np.asarray(value)


def _plain_sequence(value: Any) -> Any:
    try:
        return np.asarray(memoryview(value))  # of array.array and bytearray, for example
    except TypeError:
        pass
    if isinstance(value, (Sequence, KeysView, ValuesView)):
        return list(value)
    if isinstance(value, (Iterator, set, frozenset)):
        raise SchemaError(f"a {type(value).__name__} {_CANNOT[isinstance(value, Iterator)]}; wanted a list or an array")
    return value


_CANNOT = {True: "can be read only once", False: "has no order"}


def _or_unread(name: str, made: Callable[P, T], *given: P.args, **named: P.kwargs) -> T | Unread:
    """The result; if making it fails, Unread for an argument that only describes rows. An argument that decides is refused."""
    outer = sys.exception()
    try:
        return made(*given, **named)
    except Exception as error:
        if name in _DECIDING or is_of_a_handler(error):
            raise
        unread = Unread(reason_of(error))
        let_go(error, outer)
        return unread


def _copy(value: Any, copies: HostCopies, held: list[HostArray]) -> Any:
    if type(value) in _FIXED or isinstance(value, Unread):
        return value
    if isinstance(value, (list, tuple)):
        return _list(value, copies, held)
    if isinstance(value, Mapping):
        return {key: _copy(plain(item), copies, held) for key, item in value.items()}
    if _is_array(value):
        held.append(copies.of(value))
        return held[-1]
    return value if isinstance(value, Number) else str(value)


def _tokens(value: Any, copies: HostCopies, held: list[HostArray]) -> Any:
    """The copy of a value per token. Numbers in many lists become one list: a copy of each list takes six times as long."""
    joined = _numbers_of(value) if isinstance(value, (list, tuple)) else None
    return _copy(value, copies, held) if joined is None else joined


def _numbers_of(rows: Sequence[Any]) -> Joined | None:
    """The numbers of all lists; None if there is anything else in them or beside them."""
    if not _ROWS.issuperset(map(type, rows)) or all(row is None for row in rows):
        return None
    numbers = list(chain.from_iterable(row for row in rows if row is not None))
    if (numbers and type(numbers[0]) is str) or not _is_flat(numbers):
        return None
    lengths = [0 if row is None else len(row) for row in rows]
    return Joined(numbers, lengths, [row is not None for row in rows]) if sum(lengths) == len(numbers) else None


def _list(items: Sequence[Any], copies: HostCopies, held: list[HostArray]) -> Any:
    """A list with an item for each sequence, or of all tokens."""
    if _is_flat(items):
        return list(items)
    items = [_or_unread("", plain, item) for item in items]
    joined = _joined(items, copies, held)
    return [_item(item, copies, held) for item in items] if joined is None else joined


def _joined(items: Sequence[Any], copies: HostCopies, held: list[HostArray]) -> HostArray | Joined | None:
    """One copy of many arrays; None if the items are anything else."""
    arrays = [item for item in items if item is not None]
    if not arrays or not all(map(_is_array, arrays)):
        return None
    shapes = {len(shape_of(item)) for item in arrays}
    if shapes == {0} and len(arrays) == len(items):
        held.append(copies.of(_together(arrays, "stack")))
        return held[-1]
    if shapes == {1}:
        held.append(copies.of(_together(arrays, "cat")))
        lengths = [0 if item is None else shape_of(item)[0] for item in items]
        return Joined(held[-1], lengths, [item is not None for item in items])
    return None


def _together(arrays: Sequence[Any], how: str) -> Any:
    if all(is_tensor(item) for item in arrays):
        together = getattr(sys.modules["torch"], how)
        return together([item.detach() for item in arrays])
    plain_arrays = [np.asarray(item.detach().cpu()) if is_tensor(item) else whole_array(item) for item in arrays]
    return np.stack(plain_arrays) if how == "stack" else np.concatenate(plain_arrays)


def _item(item: Any, copies: HostCopies, held: list[HostArray]) -> Any:
    if type(item) in _FIXED:
        return item
    if isinstance(item, (list, tuple)):
        return _or_unread("", _row, item, copies, held)
    return _or_unread("", _copy, item, copies, held)


def _row(row: Sequence[Any], copies: HostCopies, held: list[HostArray]) -> Any:
    """A list of the tokens of one sequence."""
    if _is_flat(row) or _FIXED.issuperset(map(type, row)):
        return list(row)
    if all(map(_is_array, row)) and {shape_of(item) for item in row} == {()}:
        held.append(copies.of(_together(row, "stack")))
        return held[-1]
    return [_number(item) if _is_array(item) else _item(plain(item), copies, held) for item in row]


def _number(array: Any) -> Any:
    """The one number in an array or tensor."""
    return array.item() if hasattr(array, "item") else np.asarray(array).item()


def _is_flat(items: Sequence[Any]) -> bool:
    """True if a list holds numbers alone, or texts alone. To add them up takes less time than a look at the type of each."""
    try:
        kind = type(items[0]) if items else int
        if kind is str:
            return isinstance("".join(items), str)
        return kind in (int, float, bool) and type(sum(items)) in (int, float)
    except Exception as error:
        if is_of_a_handler(error):
            raise
        return False


def _extra(value: Any, copies: HostCopies, held: list[HostArray]) -> Any:
    """The values beside the columns: for each sequence a mapping, or one for all."""
    if isinstance(value, (list, tuple)):
        return [_extra_of_row(item) for item in value]
    return _copy(value, copies, held) if _is_array(value) else _extra_of_row(value)


def _extra_of_row(value: Any) -> Any:
    try:
        return _nested(dict(value) if isinstance(value, Mapping) else value, iter(range(_MOST_LISTS)), 0)
    except (StopIteration, RecursionError):
        return _kept(value)


def _nested(value: Any, left: Iterator[int], level: int) -> Any:
    """The value with copies of its lists and mappings. StopIteration if there are too many, RecursionError beyond some levels."""
    kind = type(value)
    if kind in _FIXED or isinstance(value, (np.number, np.bool_)):
        return value
    if not isinstance(value, (list, tuple, dict)):
        return _kept(value)
    next(left)
    if level > _MOST_LEVELS:
        raise RecursionError
    if isinstance(value, dict):
        if _FIXED.issuperset(map(type, value.values())):
            return dict(value)
        return {key: _nested(item, left, level + 1) for key, item in value.items()}
    if _is_flat(value):
        return list(value)
    return [_nested(item, left, level + 1) for item in value]


def _kept(value: Any) -> Any:
    return kept({"": value}).settings[""]


def _is_array(value: Any) -> bool:
    return not isinstance(value, (str, bytes)) and hasattr(value, "__array__")
