"""Hollow modules: they stand in for packages that a trainer imports and that do not work without a GPU, or are not installed.

A hollow module has every name; each is an empty class of its own. What a test needs of it is put there by name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterator, MutableSequence
from contextlib import ExitStack, contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest import mock


class Hollow(ModuleType):
    """A module that has every name."""

    __path__: MutableSequence[str] = []
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _Finder(MetaPathFinder, Loader):
    def __init__(self, absent: Collection[str]) -> None:
        self._absent = absent

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        parts = fullname.split(".")
        is_absent = any(".".join(parts[:count]) in self._absent for count in range(1, len(parts) + 1))
        return ModuleSpec(fullname, self, is_package=True) if is_absent else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Hollow(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class Imports:
    """Puts names into modules for as long as they are importable."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def put(self, module: str, **names: Any) -> None:
        """Gives a module, hollow or real, these names."""
        self.put_on(importlib.import_module(module), **names)

    def empty(self, module: str) -> None:
        """Makes one module hollow, of a package that otherwise stays as it is."""
        self._stack.enter_context(mock.patch.dict(sys.modules, {module: Hollow(module)}))

    def put_on(self, owner: Any, **names: Any) -> None:
        """Gives an object or a class these names."""
        for name, value in names.items():
            self._stack.enter_context(mock.patch.object(owner, name, value, create=True))


@contextmanager
def hollow(absent: Collection[str], *own: str) -> Iterator[Imports]:
    """These modules are hollow, and the packages `own` are imported anew; afterwards every module is as before."""
    owned = {name.partition(".")[0] for name in absent} | set(own)
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in owned}
    for name in before:
        del sys.modules[name]
    finder = _Finder(absent)
    sys.meta_path.insert(0, finder)
    try:
        with ExitStack() as stack:
            yield Imports(stack)
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] in owned]:
            del sys.modules[name]
        sys.modules.update(before)
