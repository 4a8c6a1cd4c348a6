"""Functions of a program by their source text: nothing is imported and nothing runs.

An import of a trainer takes minutes, needs a GPU's libraries, and is impossible in a bare checkout. Source text is enough to see
whether a function exists and which parameters it has. Names are followed through `from x import y`, base classes and
assignments. A function that a program makes at run time is not seen.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ratioscope.errors import ConfigError
from ratioscope.metrics.digits import size_on_disk

_FOLLOWED = 12
"""Imports, assignments and base classes that are followed from one name."""
_MOST_BYTES = 2 << 20
"""The largest file that is read. The syntax tree takes a hundred times its bytes; no trainer has a file of half the size."""


def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file, in the encoding that the file declares. ConfigError if it has none."""
    if not file.is_file():  # a pipe or a device would never end
        what = "is a folder" if file.is_dir() else "is no file" if file.exists() else "does not exist"
        raise ConfigError(f"{file} {what}; wanted a file of Python, or a notebook")
    with file.open("rb") as opened:
        text = opened.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ConfigError(
            f"{file} has more than {size_on_disk(_MOST_BYTES)}; wanted a file of Python that a person wrote"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler's, on escapes in the text
            return ast.parse(_code_of(text) if file.suffix == ".ipynb" else text)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file} is no notebook: it has no list of cells with their source") from error
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{file} is no Python {sys.version_info[0]}.{sys.version_info[1]}: {error}") from error
    except (RecursionError, MemoryError) as error:
        raise ConfigError(
            f"{file} is nested too deeply to be read; wanted a file of Python that a person wrote"
        ) from error


def _code_of(notebook: bytes) -> str:
    """The code of a notebook. A line that Jupyter's shell reads becomes `pass`; a cell in another language is left out."""
    cells = ["".join(cell["source"]) for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
    code = [cell for cell in cells if not cell.startswith("%%") or cell.startswith(("%%time", "%%capture"))]
    return re.sub(r"^([ \t]*)[%!].*$", r"\1pass", "\n".join(code), flags=re.MULTILINE)


@dataclass(frozen=True)
class SourceFunction:
    """A function that was found in the source."""

    file: Path
    line: int
    """The number of its first line."""
    parameters: tuple[str, ...]
    """Names, without the object of a method."""


class SourceTree:
    """The modules of a checkout, or of what is installed here."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: a checkout, or a folder of checkouts; None for what Python would import."""
        self._folder = folder
        self._modules: dict[str, _Module | None] = {}

    def has_package(self, package: str) -> bool:
        """True if the package, or module, is there."""
        return next(self._tops(package), None) is not None

    def has_module(self, module: str) -> bool:
        """True if the module is there."""
        return self._module(module) is not None

    def function(self, module: str, name: str) -> SourceFunction | None:
        """`function` or `Class.method` of a module; None if there is none."""
        return self._find(module, name.split("."), _FOLLOWED)

    def names(self, module: str, owner: str = "") -> list[str]:
        """The names that a module defines, or a class of it with its base classes."""
        if (path := self._module(module)) is None:
            return []
        if not owner:
            return list(path.names)
        return [
            item.name
            for _, base in self._classes(module, owner, _FOLLOWED)
            for item in base.body
            if isinstance(item, _Def)
        ]

    def _find(self, module: str, path: list[str], left: int) -> SourceFunction | None:
        owner = self._module(module)
        node = None if owner is None else owner.names.get(path[0])
        if owner is None or node is None or left == 0:
            return None
        if isinstance(node, _Import):
            whole = f"{node.module}.{node.name}"
            if node.name and self._module(node.module) is not None and self._defines(node):
                return self._find(node.module, [node.name, *path[1:]], left - 1)
            return self._find(whole if node.name else node.module, path[1:], left - 1) if path[1:] else None
        if isinstance(node, str):
            return self._find(module, [*node.split("."), *path[1:]], left - 1)
        if isinstance(node, ast.ClassDef):
            return self._method(module, path, left) if path[1:] else None
        return None if path[1:] else _function(owner.file, node, is_method=False)

    def _defines(self, name: _Import) -> bool:
        module = self._module(name.module)
        return module is not None and name.name in module.names

    def _method(self, module: str, path: list[str], left: int) -> SourceFunction | None:
        for where, owner in self._classes(module, path[0], left):
            for item in owner.body:
                if isinstance(item, _Def) and item.name == path[1]:
                    file = self._modules[where]
                    return None if file is None else _function(file.file, item, is_method=not _is_static(item))
                if isinstance(item, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id == path[1] for t in item.targets
                ):
                    value = ast.unparse(item.value).split(".")
                    own = self._method(module, [path[0], *value], left - 1) if len(value) == 1 and left else None
                    return own or self._find(where, value, left - 1)
            if path[1] == "__init__" and (made := self._dataclass(where, owner)) is not None:
                return made
        return None

    def _dataclass(self, module: str, owner: ast.ClassDef) -> SourceFunction | None:
        """The `__init__` that a dataclass is given when it is made."""
        file = self._module(module)
        if file is None or not any("dataclass" in ast.unparse(one) for one in owner.decorator_list):
            return None
        fields = (item.target for item in owner.body if isinstance(item, ast.AnnAssign))
        return SourceFunction(file.file, owner.lineno, tuple(one.id for one in fields if isinstance(one, ast.Name)))

    def _classes(self, module: str, name: str, left: int) -> Iterator[tuple[str, ast.ClassDef]]:
        """The class and its base classes, nearest first, each with the module that defines it."""
        owner = self._module(module)
        node = None if owner is None else owner.names.get(name)
        if left == 0 or node is None:
            return
        if isinstance(node, _Import) and node.name:
            yield from self._classes(node.module, node.name, left - 1)
        elif isinstance(node, str) and "." not in node:
            yield from self._classes(module, node, left - 1)
        elif isinstance(node, ast.ClassDef):
            yield module, node
            for base in node.bases:
                yield from self._base(
                    module, ast.unparse(base.value if isinstance(base, ast.Subscript) else base), left - 1
                )

    def _base(self, module: str, name: str, left: int) -> Iterator[tuple[str, ast.ClassDef]]:
        head, _, rest = name.partition(".")
        owner = self._module(module)
        node = None if owner is None else owner.names.get(head)
        if rest and isinstance(node, _Import):
            yield from self._base(f"{node.module}.{node.name}".rstrip("."), rest, left)
        else:
            yield from self._classes(module, head, left)

    def _module(self, name: str) -> _Module | None:
        if name not in self._modules:
            self._modules[name] = next((_Module(name, file) for file in self._files(name)), None)
        return self._modules[name]

    def _files(self, module: str) -> Iterator[Path]:
        top, *rest = module.split(".")
        for folder in self._tops(top):
            for file in (
                folder.joinpath(*rest).with_suffix(".py") if rest else folder,
                folder.joinpath(*rest, "__init__.py"),
            ):
                if file.is_file():
                    yield file

    def _tops(self, top: str) -> Iterator[Path]:
        """Folders of this package, and files of this module."""
        if self._folder is not None:
            for inside in ("", "src", "*", "*/src"):
                yield from (path for path in sorted(self._folder.glob(f"{inside}/{top}".strip("/"))) if path.is_dir())
            return
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            spec = None
        if spec is not None and spec.submodule_search_locations is not None:
            yield from map(Path, spec.submodule_search_locations)
        elif spec is not None and spec.origin is not None and top not in sys.builtin_module_names:
            yield Path(spec.origin)


@dataclass(frozen=True)
class _Import:
    """A name that a module imports."""

    module: str
    name: str
    """Empty if the name is the module itself."""


_Def = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class _Module:
    """One file of source."""

    name: str
    file: Path

    @cached_property
    def names(self) -> dict[str, ast.ClassDef | _Def | _Import | str]:
        """Each name at the top of the module: a class, a function, an import, or the name that is assigned to it."""
        try:
            tree = parsed(self.file)
        except (ConfigError, OSError):
            return {}
        return dict(self._named(tree.body))

    def _named(self, body: list[ast.stmt]) -> Iterator[tuple[str, ast.ClassDef | _Def | _Import | str]]:
        for item in body:
            if isinstance(item, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield item.name, item
            elif isinstance(item, ast.ImportFrom):
                yield from ((a.asname or a.name, _Import(self._absolute(item), a.name)) for a in item.names)
            elif isinstance(item, ast.Import):
                for alias in item.names:
                    yield (
                        alias.asname or alias.name.partition(".")[0],
                        _Import(alias.name if alias.asname else alias.name.partition(".")[0], ""),
                    )
            elif isinstance(item, ast.Assign) and isinstance(item.value, ast.Name | ast.Attribute):
                yield from ((t.id, ast.unparse(item.value)) for t in item.targets if isinstance(t, ast.Name))
            elif isinstance(item, ast.If | ast.Try):
                for part in (item.body, item.orelse, *(handler.body for handler in getattr(item, "handlers", ()))):
                    yield from self._named(part)

    def _absolute(self, item: ast.ImportFrom) -> str:
        if item.level == 0:
            return item.module or ""
        parts = self.name.split(".")
        kept = parts[: len(parts) - item.level + (self.file.name == "__init__.py")]
        return ".".join([*kept, *([item.module] if item.module else [])])


def _function(file: Path, node: object, *, is_method: bool) -> SourceFunction | None:
    if not isinstance(node, _Def):
        return None
    arguments = node.args
    named = [one.arg for one in (*arguments.posonlyargs, *arguments.args)][int(is_method) :]
    further = [one.arg for one in (arguments.vararg, *arguments.kwonlyargs, arguments.kwarg) if one is not None]
    return SourceFunction(file, node.lineno, (*named, *further))


def _is_static(node: _Def) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in node.decorator_list)
