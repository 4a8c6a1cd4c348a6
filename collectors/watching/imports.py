"""Being told that a module has been imported, without changing how it is.

A finder asks the others as always and lets the loader that they found say when it is done; a spec and a loader stay what they
were. wrapt could do this too, at the price of asyncio, ssl and the metadata of every package in each process of a job.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ..process.notice import warn

Told = Callable[[ModuleType], None]

_awaited: dict[str, list[Told]] = {}
"""Global, because imports are the process's: module -> whom to tell."""
_MARK = "ratioscope_tells"


def when_imported(name: str, told: Told) -> None:
    """Calls `told(module)` once, when the module has been executed; now if it has. The importer sees what that raises."""
    module = sys.modules.get(name)
    if module is not None:
        told(module)
        return
    _awaited.setdefault(name, []).append(told)
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Finder:
    """Finds what the others find. Of the class itself, as sys.meta_path takes any object with `find_spec`."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        parent = name.rpartition(".")[0]
        if parent in _awaited and getattr(sys.modules.get(parent), "__file__", "") is None:  # no __init__ to execute
            _tell(parent)
        if name not in _awaited:
            return None
        spec = _found_by_others(name, path, target)
        if spec is not None and spec.loader is not None:
            _tell_when_executed(spec.loader)
        return spec


def _found_by_others(name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    for finder in list(sys.meta_path):
        find = None if finder is _Finder else getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if find is None else find(name, path, target)
        if spec is not None:
            return spec
    return None


def _tell_when_executed(loader: Any) -> None:
    """Lets this one loader tell. One that loads many modules may keep it: of a module that nobody awaits nobody is told."""
    execute = getattr(loader, "exec_module", None)
    if execute is None or isinstance(loader, type) or hasattr(execute, _MARK):
        return

    def exec_module(module: ModuleType) -> None:
        execute(module)
        _tell(module.__name__ if module.__spec__ is None else module.__spec__.name)

    setattr(exec_module, _MARK, True)
    try:
        loader.exec_module = exec_module
    except AttributeError:
        warn("%s of %s takes no attribute: what it loads is not recorded.", type(loader).__name__, loader)


def _tell(name: str) -> None:
    if (module := sys.modules.get(name)) is not None:
        for told in _awaited.pop(name, ()):
            told(module)
