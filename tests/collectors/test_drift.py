"""The drift alarm: what an adapter would find in the source of a trainer, without importing it."""

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ratioscope.collectors.drift import drift
from ratioscope.collectors.trainers import ADAPTERS, adapter_named
from ratioscope.collectors.watching.hooks import Hook
from ratioscope.collectors.watching.source import SourceTree

FILES = {
    "mine/__init__.py": "raise SystemExit('a trainer was imported')",
    "mine/loop.py": """
from __future__ import annotations
import functools
import mine.base as bases
from . import batch
from .base import Base as Parent, shared
from .batch import Batch

class Loop(Parent):
    @functools.wraps
    async def update(self, batch, *, step=0, **more): ...
    @staticmethod
    def loss(logits, labels): ...
    alias = update

class Far(bases.Other[int]): ...

if True:
    def chosen(a): ...
else:
    def other(b): ...
try:
    from fast import kernel
except ImportError:
    def kernel(x, /, y): ...
same = shared
Again = Loop
""",
    "mine/base.py": "def shared(rows): ...\n\nclass Base:\n    def inherited(self, rows): ...\n\nclass Other(Base): ...\n",
    "mine/batch/__init__.py": "from .made import Batch as Batch\nfrom ..base import shared\n",
    "mine/batch/made.py": (
        "from dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Batch:\n    rows: list\n    masks: list = ()\n\n"
        "class Plain: ...\n"
    ),
    "mine/circle.py": "from .round import f\nfrom .round import C\n",
    "mine/round.py": "from .circle import f\nfrom .circle import C\n",
    "mine/broken.py": "def half(",
}
FOUND = {
    ("mine.loop", "Loop.update"): ("batch", "step", "more"),
    ("mine.loop", "Loop.alias"): ("batch", "step", "more"),
    ("mine.loop", "Again.update"): ("batch", "step", "more"),
    ("mine.loop", "Loop.loss"): ("logits", "labels"),
    ("mine.loop", "Loop.inherited"): ("rows",),
    ("mine.loop", "Far.inherited"): ("rows",),
    ("mine.loop", "chosen"): ("a",),
    ("mine.loop", "kernel"): ("x", "y"),
    ("mine.loop", "same"): ("rows",),
    ("mine.loop", "shared"): ("rows",),
    ("mine.loop", "Batch.__init__"): ("rows", "masks"),
    ("mine.batch", "shared"): ("rows",),
    ("mine.batch.made", "Plain.__init__"): None,
    ("mine.loop", "Loop.gone"): None,
    ("mine.loop", "Loop"): None,
    ("mine.circle", "f"): None,
    ("mine.circle", "C.f"): None,
    ("mine.broken", "half"): None,
    ("mine.nowhere", "f"): None,
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose package lies in src/, and that must not be imported."""
    for name, text in FILES.items():
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_text(text)
    return tmp_path


def test_functions_are_found_in_the_source_and_nothing_runs(checkout: Path) -> None:
    source = SourceTree(checkout)
    found = {place: source.function(*place) for place in FOUND}
    assert {place: one and one.parameters for place, one in found.items()} == FOUND
    assert source.has_package("mine") and source.has_module("mine.batch") and not source.has_package("another")


@pytest.mark.parametrize("name", [adapter.name for adapter in ADAPTERS if adapter.version is not None])
def test_the_source_of_an_installed_trainer_tells_what_python_tells(name: str) -> None:
    adapter = adapter_named(name)
    assert adapter is not None
    found = drift(adapter.load(), SourceTree())
    assert found.would_record and found.found
    for one in found.found:
        module = __import__(one.hook.module, fromlist=["x"])
        function = inspect.unwrap(_get(module, one.hook.name))
        assert one.function is not None and one.function.line == function.__code__.co_firstlineno + len(
            _decorators(function)
        )
        assert one.function.file.samefile(inspect.getfile(function))
        assert list(one.function.parameters) == list(inspect.signature(function).parameters)[1:]


def _get(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _decorators(function: Any) -> list[str]:
    lines = inspect.getsource(function).splitlines()
    return lines[: next(i for i, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def ")))]


LOOKS = """
from ratioscope.collectors.watching.hooks import Hook

HOOKS = (
    Hook("mine.loop", "Loop.update", before="begins"),
    Hook("mine.loop", "Loop.upd", after="ends"),
    Hook("mine.loop", "Lop.update", needed=False),
    Hook("mine.later", "f", after="ends"),
    Hook("another", "f", after="ends"),
)

class recorder:
    def begins(self, call):
        given = call.arguments
        return given["batch"], call.arguments["rows"], given.get("maybe"), other["unrelated"]
"""


def test_a_missing_function_or_parameter_is_named_with_what_is_there(checkout: Path) -> None:
    file = checkout / "adapter.py"
    file.write_text(LOOKS)
    module: Any = ModuleType("adapter")
    module.__file__ = str(file)
    exec(compile(LOOKS, file, "exec"), vars(module))
    found = drift(module, SourceTree(checkout))
    assert [one.hook.name for one in found.found] == ["Loop.update", "Loop.upd", "Lop.update", "f"]
    update, renamed, classless, later = found.found
    assert update.lacking == ("rows",) and not update.reason
    assert renamed.reason == "Loop has no upd; it has update"
    assert classless.reason == "mine.loop has no class Lop; it has Loop"
    assert later.reason == "no module mine.later"
    assert found.fatal == (renamed,) and not found.would_record


def test_a_trainer_of_which_only_optional_functions_are_there_would_not_be_recorded(checkout: Path) -> None:
    class Adapter:
        HOOKS = (Hook("mine.loop", "chosen", needed=False), Hook("mine.later", "f"))

    found = drift(Adapter, SourceTree(checkout))  # type: ignore[arg-type]
    assert not found.fatal and not found.would_record
