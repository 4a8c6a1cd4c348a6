"""Batch: the arguments of one call of `log`, copied as they were at that moment.

The trainer's thread makes it, the writer's thread reads it.

A per-token value may be padded `(B, T)`, ragged (one list or array per sequence, None where a sequence has none) or packed:
one flat array of all tokens, cut by `lengths`. Nothing is converted or checked here, so that `log` returns soon.
"""

import sys
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ratioscope.errors import SchemaError
from ratioscope.record import POLICIES

from ..process.failures import is_of_a_handler
from .host_copy import HostArray
from .token_columns import is_ragged, shape_of

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
    """Name of the argument -> HostArray, Joined, list, scalar or Unread."""
    copies: tuple[HostArray, ...] = field(repr=False)
    """Host memory to be released once the batch was read."""


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


def _bytes(value: Any, level: int = 0) -> int:
    """About how much memory a value takes."""
    if isinstance(value, (str, bytes)):
        return sys.getsizeof(value)
    if level > _LEVELS:
        return 0
    if isinstance(value, Mapping):
        return 64 * len(value) + sum(_bytes(item, level + 1) for item in islice(value.values(), _LOOKED_AT))
    if not isinstance(value, (list, tuple)):
        try:
            nbytes = getattr(value, "nbytes", None)
            return int(nbytes if nbytes is not None else 8 * len(value) if isinstance(value, Sized) else 0)
        except Exception as error:  # an object of the trainer's, which `snapshots` will not be able to read either
            if is_of_a_handler(error):
                raise
            return 0
    looked_at = value[:: 1 + len(value) // _LOOKED_AT]
    of_looked_at = sum(_bytes(item, level + 1) for item in looked_at)
    if isinstance(next(iter(value), None), (list, tuple)):
        return _lengths(value) * of_looked_at // max(1, _lengths(looked_at))
    return len(value) * 8 + of_looked_at * len(value) // max(1, len(looked_at))


def _lengths(items: Sequence[Any]) -> int:
    """The lengths of all items that have one, added up; of a million lists in 20 ms."""
    try:
        return sum(map(len, items))
    except TypeError:
        return sum(len(item) for item in items if isinstance(item, Sized))
