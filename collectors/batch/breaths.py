"""Loops over sequences and texts that let other threads, such as the trainer's, have the interpreter in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from time import perf_counter, sleep
from typing import Any, TypeVar

import pyarrow as pa

PIECE = 4096
"""Texts that Arrow converts while it keeps the interpreter: a third of a millisecond."""
_STRETCH_SECONDS = 3e-4
_BREATH_SECONDS = 2e-5  # without a sleep this thread has the lock again before a waiting thread is awake
T = TypeVar("T")


def pieces(items: Iterable[T]) -> Iterator[list[T]]:
    """Lists of the items, with a breath after each."""
    left = iter(items)
    while piece := list(islice(left, PIECE)):
        yield piece
        if len(piece) == PIECE:
            sleep(_BREATH_SECONDS)


def breathing(items: Iterable[T]) -> Iterator[T]:
    """The items, with a breath whenever the work on them has taken a third of a millisecond."""
    began = perf_counter()
    for item in items:
        yield item
        if perf_counter() - began > _STRETCH_SECONDS:
            sleep(_BREATH_SECONDS)
            began = perf_counter()


def listed(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> Iterator[Any]:
    """The values of an Arrow column, with breaths."""
    return breathing(
        value for first in range(0, len(column), PIECE) for value in column.slice(first, PIECE).to_pylist()
    )


def let_go(items: list[Any]) -> None:
    """Empties a list of numbers, texts or lists: to free a million of them at once keeps the interpreter for milliseconds."""
    for _ in breathing(_freed(items)):
        pass


def _freed(items: list[Any]) -> Iterator[None]:
    is_nested = any(isinstance(item, list) for item in items)
    while items:
        if not is_nested:
            del items[-PIECE:]
        elif isinstance(last := items.pop(), list):
            yield from _freed(last)
        yield
