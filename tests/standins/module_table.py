"""Stand-ins imported under their trainer's own module names, by a finder, so that import hooks see what they would see there."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from inspect import isclass, isfunction
from types import ModuleType
from typing import Any

Table = Mapping[str, Mapping[str, Any]]
"""module -> name -> function or class of the stand-in; packages between need no line."""


class TableFinder(MetaPathFinder, Loader):
    """Makes modules of a table. A value is given the module's name, as if it had been defined there."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        is_package = any(name.startswith(f"{fullname}.") for name in self._table)
        if not is_package and fullname not in self._table:
            return None
        return spec_from_loader(fullname, self, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        for name, value in self._table.get(module.__name__, {}).items():
            if isclass(value) or isfunction(value):
                value.__module__ = module.__name__
            setattr(module, name, value)


@contextmanager
def importable(table: Table) -> Iterator[None]:
    """The table's modules can be imported within; behind it none of them is loaded."""
    finder = TableFinder(table)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        tops = {name.partition(".")[0] for name in table}
        for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
            del sys.modules[name]
