"""Batch: the arguments of one call of `log`, copied as they were at that moment.

The trainer's thread makes it, the writer's thread reads it.

A per-token value may be padded `(B, T)`, ragged (one list or array per sequence, None where a sequence has none) or packed:
one flat array of all tokens, cut by `lengths`. Nothing is converted or checked here, so that `log` returns soon.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from ratioscope.errors import SchemaError
from ratioscope.record import POLICIES

from .host_copy import HostArray, HostCopies, Joined, is_tensor, whole_array
from .token_columns import NUMBERS, is_ragged, shape_of

POLICY_COLUMNS = tuple(f"{policy}_logprobs" for policy in POLICIES)
_LOOKED_AT, _LEVELS = 64, 3
"""Number of items of a long list, and of levels, that are looked at to estimate its size: the trainer waits meanwhile."""


@dataclass(frozen=True)
class Batch:
    """The arguments of one call of `Collector.log`."""

    step: int
    minibatch: int | None
    rank: int
    label: str
    """Names the process in the ids of sequences that came without ids: step-label-index."""
    first_index: int
    """The index of the first sequence in such ids."""
    offered: int
    """Sequences, as counted at the call. One too many if `lengths` turns out to be cumulative."""
    bytes: int
    """About how much memory the copies take."""
    values: Mapping[str, Any]
    """Name of the argument -> HostArray, Joined, list or scalar."""
    copies: tuple[HostArray, ...] = field(repr=False)
    """Host memory to be released once the batch was read."""


def plain(value: Any) -> Any:
    """The value; as a list if it is a nested tensor, an array of objects or strings, or such a column of a data frame."""
    if is_tensor(value):
        return list(value.unbind()) if value.is_nested else value
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind in "OUS" else value
    listed = None if isinstance(value, (list, tuple)) else getattr(value, "to_pylist", getattr(value, "to_list", None))
    if listed is None:
        return value
    first = next((item for item in value if item is not None), None)  # of pandas, polars or Arrow
    if isinstance(getattr(first, "as_py", lambda: first)(), NUMBERS):
        return value if hasattr(value, "shape") else np.asarray(value)
    return listed()


def snapshots(values: Mapping[str, Any], copies: HostCopies) -> tuple[dict[str, Any], tuple[HostArray, ...]]:
    """Copies of all values as they are now, and the host memory to release later. A value that is given twice is copied once."""
    held: list[HostArray] = []
    taken: dict[int, Any] = {}
    try:
        for value in values.values():
            if id(value) not in taken:
                taken[id(value)] = snapshot(value, copies, held)
    except BaseException:
        copies.release_all(held)
        raise
    return {name: taken[id(value)] for name, value in values.items()}, tuple(held)


def snapshot(value: Any, copies: HostCopies, held: list[HostArray]) -> Any:
    """A copy of the value, which the trainer cannot change. Host memory to release later is added to `held`."""
    if isinstance(value, (list, tuple)):
        return _list_snapshot(value, copies, held)
    if _is_array(value):
        held.append(copies.of(value))
        return held[-1]
    return dict(value) if isinstance(value, Mapping) else value


def sequences_offered(values: Mapping[str, Any]) -> int:
    """Number of sequences in the arguments of one call, from the shape of the first log-probs. Values are not read."""
    given = [(name, values[name]) for name in POLICY_COLUMNS if name in values]
    if not given:
        raise SchemaError(f"log() was given none of {', '.join(POLICY_COLUMNS)}; at least one is needed")
    name, value = given[0]
    if is_ragged(value):
        return len(value)
    shape = shape_of(value)
    if len(shape) == 2:
        return int(shape[0])
    if len(shape) == 1:
        return 1 if values.get("lengths") is None else len(values["lengths"])
    raise SchemaError(
        f"{name} has shape {shape}; wanted (sequences, tokens), one list or array per sequence, or (tokens,)"
    )


def bytes_offered(values: Mapping[str, Any]) -> int:
    """About how much host memory a copy of the arguments takes. In a long list only some items are looked at."""
    return sum(_bytes(value) for value in values.values())


def _list_snapshot(items: Sequence[Any], copies: HostCopies, held: list[HostArray]) -> Any:
    arrays = [item for item in items if item is not None]
    if arrays and all(_is_array(item) for item in arrays):
        shapes = {len(shape_of(item)) for item in arrays}
        if shapes == {0} and len(arrays) == len(items):
            held.append(copies.of(_together(arrays, "stack")))
            return held[-1]
        if shapes == {1}:
            held.append(copies.of(_together(arrays, "cat")))
            lengths = [0 if item is None else len(item) for item in items]
            return Joined(held[-1], lengths, [item is not None for item in items])
    return [_element(item, copies, held) for item in items]


def _together(arrays: Sequence[Any], how: str) -> Any:
    if all(is_tensor(item) for item in arrays):
        together = getattr(sys.modules["torch"], how)
        return together([item.detach() for item in arrays])
    plain_arrays = [np.asarray(item.detach().cpu()) if is_tensor(item) else whole_array(item) for item in arrays]
    return np.stack(plain_arrays) if how == "stack" else np.concatenate(plain_arrays)


def _element(item: Any, copies: HostCopies, held: list[HostArray]) -> Any:
    if isinstance(item, (list, tuple)):
        return list(item)
    if isinstance(item, Mapping):
        return dict(item)
    if _is_array(item):
        held.append(copies.of(item))
        return held[-1]
    return item


def _is_array(value: Any) -> bool:
    return not isinstance(value, (str, bytes)) and hasattr(value, "__array__")


def _bytes(value: Any, level: int = 0) -> int:
    """About how much memory a value takes."""
    if isinstance(value, (str, bytes)):
        return sys.getsizeof(value)
    if level > _LEVELS:
        return 0
    if isinstance(value, Mapping):
        return 64 * len(value) + sum(_bytes(item, level + 1) for item in islice(value.values(), _LOOKED_AT))
    if not isinstance(value, (list, tuple)):
        return int(getattr(value, "nbytes", 0) or 0)
    looked_at = value[:: 1 + len(value) // _LOOKED_AT]
    of_looked_at = sum(_bytes(item, level + 1) for item in looked_at)
    if isinstance(next(iter(value), None), (list, tuple)):
        items = sum(len(item) for item in value if item is not None)
        return items * of_looked_at // max(1, sum(len(item) for item in looked_at if item is not None))
    return len(value) * 8 + of_looked_at * len(value) // max(1, len(looked_at))
