"""Calls a function when a module has been imported, without changing how it is imported.

A finder asks the other finders as usual, and has the loader that they return call us when it has executed the module. Spec and
loader stay what they were. wrapt could do this too, but it loads asyncio, ssl and the metadata of every package in each process.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ..process.notice import warn

Then = Callable[[ModuleType], None]

_awaited: dict[str, list[Then]] = {}
"""Module -> functions to call. Global, because imports are those of the process."""
_MARK = "ratioscope_calls"


def when_imported(name: str, then: Then) -> None:
    """Calls `then(module)` once, when the module has been executed, or now if it has been. The importer sees what it raises."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
        return
    _awaited.setdefault(name, []).append(then)
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Finder:
    """A finder that returns what the other finders find. sys.meta_path holds the class, which is an object with `find_spec`."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        parent = name.rpartition(".")[0]
        if parent in _awaited and getattr(sys.modules.get(parent), "__file__", "") is None:  # no __init__ to execute
            _call_awaiting(parent)
        if name not in _awaited:
            return None
        spec = _found_by_others(name, path, target)
        if spec is not None and spec.loader is not None:
            _call_when_executed(spec.loader)
        return spec


def _found_by_others(name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    for finder in list(sys.meta_path):
        find = None if finder is _Finder else getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if find is None else find(name, path, target)
        if spec is not None:
            return spec
    return None


def _call_when_executed(loader: Any) -> None:
    """Has this loader call us. A loader of many modules may keep that: for a module that nobody awaits nothing is called."""
    execute = getattr(loader, "exec_module", None)
    if execute is None or isinstance(loader, type) or hasattr(execute, _MARK):
        return

    def exec_module(module: ModuleType) -> None:
        execute(module)
        _call_awaiting(module.__name__ if module.__spec__ is None else module.__spec__.name)

    setattr(exec_module, _MARK, True)
    try:
        loader.exec_module = exec_module
    except AttributeError:
        warn("%s of %s takes no attribute: what it loads is not recorded.", type(loader).__name__, loader)


def _call_awaiting(name: str) -> None:
    if (module := sys.modules.get(name)) is not None:
        for then in _awaited.pop(name, ()):
            then(module)
