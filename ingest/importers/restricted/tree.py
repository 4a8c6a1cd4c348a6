"""Checks the value of a pickle as a tree: no value within itself, no deep nesting, no few bytes that stand for very many."""

from typing import Any

from ratioscope.errors import UnsafeFile

from .budget import Allowance
from .inert import Instance, NumpyArray

_OPEN = -1


def check_tree(value: Any, budget: Allowance) -> None:
    """Raises UnsafeFile where a list or dictionary contains itself, is nested too deeply, or repeats shared parts too often.

    A list that is named a thousand times in a list that is named a thousand times takes little memory until something walks
    it. So all elements are counted as a walk would count them, each shared part as often as it is met.
    """
    sizes: dict[int, int] = {}  # id -> elements below it, or _OPEN while it is being counted
    most = budget.limits.nbytes // 8
    path: list[tuple[Any, list[Any]]] = [(None, [value])]
    while path:
        whole, waiting = path[-1]
        if waiting:
            _enter(waiting.pop(), sizes, path, budget.limits.nested)
            continue
        path.pop()
        if whole is not None:
            sizes[id(whole)] = size = _size(whole, sizes)
            if size > most:
                raise UnsafeFile(f"it repeats shared parts until they are more than {most} elements")


def _enter(part: Any, sizes: dict[int, int], path: list[tuple[Any, list[Any]]], most_levels: int) -> None:
    """Goes into a part that has not been counted yet."""
    if (known := sizes.get(id(part))) == _OPEN:
        raise UnsafeFile("it holds a value that contains itself")
    if known is not None or (inner := _containers(part)) is None:
        return
    sizes[id(part)] = _OPEN
    path.append((part, inner))
    if len(path) > most_levels:
        raise UnsafeFile(f"it is nested more than {most_levels} levels deep")


def _parts(whole: Any) -> Any:
    if isinstance(whole, dict):
        return whole.values()
    if isinstance(whole, (list, tuple)):
        return whole
    if isinstance(whole, Instance):
        return (whole.items, whole.state, whole.arguments)
    if isinstance(whole, NumpyArray) and whole.array is not None and whole.array.dtype == object:
        return whole.array.reshape(-1)
    return None


_CONTAINERS = frozenset((dict, list, tuple, Instance, NumpyArray))


def _containers(whole: Any) -> list[Any] | None:
    """The containers in a container; None for a value that is none."""
    if type(whole) not in _CONTAINERS or (parts := _parts(whole)) is None:
        return None
    return [part for part in parts if type(part) in _CONTAINERS]


def _size(whole: Any, sizes: dict[int, int]) -> int:
    parts = _parts(whole)
    return len(parts) + sum(sizes.get(id(part), 0) for part in parts if type(part) in _CONTAINERS)
