"""Batch: what a trainer holds at one call, as it was at that moment. Made on the trainer's thread, read by the writer's.

A per-token value may be padded `(B, T)`, ragged (one list or array per sequence, None where a sequence has none) or packed:
one flat array of all tokens, cut by `lengths`. Nothing is converted or checked here: a snapshot copies and returns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ratioscope.errors import SchemaError
from ratioscope.record import POLICIES, TOKEN_FIELDS

from .host_copy import HostArray, HostCopies

POLICY_COLUMNS = tuple(f"{policy}_logprobs" for policy in POLICIES)
_NUMBERS = (int, float)


@dataclass(frozen=True)
class Batch:
    """`values`: argument of `Collector.log` -> HostArray, list (of HostArrays, lists or scalars) or scalar.

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


def snapshot(value: Any, copies: HostCopies, held: list[HostArray]) -> Any:
    """The value as it is now, out of the trainer's reach; host memory that must be released is put into `held`."""
    if isinstance(value, (list, tuple)):
        return [_element(item, copies, held) for item in value]
    if _is_array(value):
        held.append(copies.of(value))
        return held[-1]
    if isinstance(value, Mapping):
        return dict(value)
    return value


def sequences_offered(values: Mapping[str, Any]) -> int:
    """Sequences in the arguments of one call, from whichever says so; only shapes and lengths are looked at."""
    lengths = values.get("lengths")
    for name in (*POLICY_COLUMNS, *TOKEN_FIELDS):
        value = values.get(name)
        if value is None:
            continue
        if is_ragged(value):
            return len(value)
        if len(_shape(value)) == 2:
            return int(_shape(value)[0])
        if len(_shape(value)) == 1 and name in POLICY_COLUMNS:
            return 1 if lengths is None else len(lengths)
    raise SchemaError(f"log() was given none of {', '.join(POLICY_COLUMNS)}; at least one is needed")


def bytes_offered(values: Mapping[str, Any]) -> int:
    """About how much host memory a snapshot of the arguments takes."""
    return sum(_bytes(value) for value in values.values())


def is_ragged(value: Any) -> bool:
    """Whether the value is one item per sequence (lists, arrays, None) rather than an array or a flat list of numbers."""
    if not isinstance(value, (list, tuple)):
        return False
    first = next((item for item in value if item is not None), None)
    return first is None or (not isinstance(first, _NUMBERS) and _shape(first) != ())


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


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        return (len(value),)
    return tuple(getattr(value, "shape", ()))


def _bytes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return 8 * len(value) + sum(_bytes(item) for item in value if isinstance(item, Sequence) or _is_array(item))
    return int(getattr(value, "nbytes", 0) or 0)
