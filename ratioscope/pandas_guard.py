"""Keeps pandas out of processes that are ours alone. pyarrow imports it with its first array: 0.3 s and 50 MB for nothing."""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Refusing(MetaPathFinder, Loader):
    """Finds pandas, so that a look for it is no error, and refuses to load it, which pyarrow takes for its absence."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname == "pandas" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        raise ModuleNotFoundError("pandas is kept out of this process of ratioscope", name=spec.name)


def keep_pandas_out() -> None:
    """From here on pandas cannot be imported in this process. One that was imported before stays.

    Never in a trainer's process or in a notebook: pyarrow converts nothing to pandas there afterwards.
    """
    sys.meta_path.insert(0, _Refusing())
