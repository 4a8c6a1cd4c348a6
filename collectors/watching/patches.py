"""Patches: attributes of another program's objects, classes and modules that are replaced, and put back without a trace."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

_ABSENT = object()


@dataclass
class Patches:
    """Replaced attributes. `restore` puts the originals back, except where somebody else has since replaced ours."""

    _undo: list[Callable[[], None]] = field(default_factory=list)
    """Calls that put the originals back, in the order of the patches."""
    _replaced: list[tuple[Any, Any]] = field(default_factory=list)
    """Functions of modules and their wrappers, in the order in which they were put on."""
    _reached: int = 0
    """The first so many of them have reached their importers."""

    def put(self, owner: Any, name: str, wrapper_of: Callable[[Any], Any]) -> None:
        """Puts `wrapper_of(original)` in the place of an attribute of an object, class or module."""
        if any(vars(owner).get(name) is before for before, _ in self._replaced[self._reached :]):
            self._reach_importers()  # the owner imported a function that has a wrapper by now, which is what is wrapped
        own = vars(owner).get(name, _ABSENT)
        kind = method_kind(owner, name)
        held = inspect.getattr_static(owner, name) if kind is not None else own
        original = held.__func__ if kind is not None else getattr(owner, name) if own is _ABSENT else own
        made = wrapper_of(original)
        wrapper = made if kind is None else kind(made)
        setattr(owner, name, wrapper)
        self._undo.append(lambda: _put_back(owner, name, wrapper, own))
        if isinstance(owner, ModuleType):
            self._replaced.append((original, wrapper))

    @contextmanager
    def reaching_importers(self) -> Iterator[None]:
        """Modules that imported by name what is put on within get it too, by one search at the end: a search takes 20 ms."""
        try:
            yield
        finally:
            self._reach_importers()

    def _reach_importers(self) -> None:
        replace_in_importers(self._replaced[self._reached :])
        self._reached = len(self._replaced)

    def restore(self) -> None:
        """Puts everything back, last first. A second call does nothing."""
        try:
            while self._undo:
                self._undo.pop()()
        finally:
            replaced, self._replaced, self._reached = self._replaced, [], 0
            replace_in_importers([(wrapper, original) for original, wrapper in replaced])


def replace_in_importers(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Replaces functions, each by its pair, in all modules that imported them by name (`from x import f`), scripts included."""
    replacements = {id(before): after for before, after in pairs}
    if not replacements:
        return
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and not replacements.keys().isdisjoint(map(id, list(vars(module).values()))):
            held = {name: value for name, value in list(vars(module).items()) if id(value) in replacements}
            vars(module).update({name: _last(value, replacements) for name, value in held.items()})


def _last(held: Any, replacements: Mapping[int, Any]) -> Any:
    """The replacement that is not itself replaced: a function may have been wrapped more than once."""
    while id(held) in replacements:
        held = replacements[id(held)]
    return held


def method_kind(owner: Any, name: str) -> type[staticmethod[..., Any]] | type[classmethod[Any, ..., Any]] | None:
    """staticmethod or classmethod, if the attribute of the class, own or inherited, is one; None for anything else."""
    held = inspect.getattr_static(owner, name, None) if isinstance(owner, type) else None
    return staticmethod if isinstance(held, staticmethod) else classmethod if isinstance(held, classmethod) else None


def _put_back(owner: Any, name: str, wrapper: Any, before: Any) -> None:
    if vars(owner).get(name) is not wrapper:
        return
    if before is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, before)
