"""Batch: what a trainer holds at one call, as it was at that moment. Made on the trainer's thread, read by the writer's.

A per-token value may be padded `(B, T)`, ragged (one list or array per sequence, None where a sequence has none) or packed:
one flat array of all tokens, cut by `lengths`. Nothing is converted or checked here: a snapshot copies and returns.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ratioscope.errors import SchemaError
from ratioscope.record import POLICIES

from .host_copy import HostArray, HostCopies, is_tensor

POLICY_COLUMNS = tuple(f"{policy}_logprobs" for policy in POLICIES)
_LOOKED_AT = 64
"""Items of a long list that are looked at to tell how large it is."""
_NUMBERS = (int, float, np.number)


@dataclass(frozen=True)
class Joined:
    """One array per sequence, copied as one: all values in a row. A sequence that is not `present` has length 0."""

    values: HostArray
    lengths: list[int]
    present: list[bool]

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class Batch:
    """`values`: argument of `Collector.log` -> HostArray, Joined, list or scalar.

    label, first_index: sequences without ids are called step-label-index. offered: sequences as counted at the call;
    one too many where `lengths` turns out to be cumulative. bytes: about what the snapshot holds.
    """

    step: int
    minibatch: int | None
    rank: int
    label: str
    first_index: int
    offered: int
    bytes: int
    values: Mapping[str, Any]
    copies: tuple[HostArray, ...] = field(repr=False)


def plain(value: Any) -> Any:
    """The value, with the array types that are lists in disguise (of objects, of strings, nested tensors) as lists."""
    if is_tensor(value):
        return list(value.unbind()) if value.is_nested else value
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUS":
        return value.tolist()
    return value


def snapshots(values: Mapping[str, Any], copies: HostCopies) -> tuple[dict[str, Any], tuple[HostArray, ...]]:
    """All values as they are now, and the host memory to be released in the end. What is given twice is copied once."""
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
    """The value as it is now, out of the trainer's reach; host memory that must be released is put into `held`."""
    if isinstance(value, (list, tuple)):
        return _list_snapshot(value, copies, held)
    if _is_array(value):
        held.append(copies.of(value))
        return held[-1]
    return dict(value) if isinstance(value, Mapping) else value


def sequences_offered(values: Mapping[str, Any]) -> int:
    """Sequences in the arguments of one call, told by the first log-probs; only shapes and lengths are looked at."""
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
    """About how much host memory a snapshot of the arguments takes. Of a long list it looks at some items."""
    return sum(_bytes(value) for value in values.values())


def is_ragged(value: Any) -> bool:
    """Whether the value is one item per sequence (lists, arrays, None) rather than an array or a flat list of numbers."""
    if isinstance(value, Joined):
        return True
    if not isinstance(value, (list, tuple)):
        return False
    first = next((item for item in value if item is not None), None)
    return first is None or (not isinstance(first, _NUMBERS) and shape_of(first) != ())


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array, tensor or flat list; () of anything else."""
    if isinstance(value, (list, tuple)):
        return (len(value),)
    return tuple(getattr(value, "shape", ()))


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
    plain_arrays = [np.asarray(item.detach().cpu() if is_tensor(item) else item) for item in arrays]
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


def _bytes(value: Any) -> int:
    if isinstance(value, (str, bytes)):
        return sys.getsizeof(value)
    if isinstance(value, Mapping):
        return sum(_bytes(item) + 64 for item in value.values())
    if not isinstance(value, (list, tuple)):
        return int(getattr(value, "nbytes", 0) or 0)
    looked_at = value[:: 1 + len(value) // _LOOKED_AT]
    if isinstance(next(iter(value), None), (list, tuple)):
        items = sum(len(item) for item in value if item is not None)
        return items * sum(map(_bytes, looked_at)) // max(1, sum(len(item) for item in looked_at if item is not None))
    return len(value) * 8 + sum(map(_bytes, looked_at)) * len(value) // max(1, len(looked_at))
