"""The drift alarm: would an adapter find its functions in this version of the trainer? The source is read, and nothing runs.

A trainer that was renamed inside is refused when it starts, on a cluster, at night. This check says it before.
"""

import ast
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from .adapter import AdapterModule
from .watching.hooks import Hook
from .watching.source import SourceFunction, SourceTree, parsed


@dataclass(frozen=True)
class HookedFunction:
    """A hook, and the function that it would watch."""

    hook: Hook
    function: SourceFunction | None
    """None if the source has no such function."""
    lacking: tuple[str, ...]
    """Parameters that the adapter reads by name and that the function does not have."""
    reason: str
    """The part of the name that is not there, and what is; empty if the function was found."""
    has_module: bool = True
    """False if the module is not there, so that the hook is never put on."""


@dataclass(frozen=True)
class Drift:
    """The functions that an adapter finds in the source of its trainer."""

    found: tuple[HookedFunction, ...]
    """Every hook; empty if the trainer is not there."""

    @property
    def fatal(self) -> tuple[HookedFunction, ...]:
        """The hooks for which the trainer would be refused: a needed function is missing in a module that is there."""
        return tuple(one for one in self.found if one.hook.needed and one.function is None and one.has_module)

    @property
    def changed(self) -> tuple[HookedFunction, ...]:
        """The hooks whose function has no parameter of a name that the adapter reads: what this holds is not recorded."""
        return tuple(one for one in self.found if one.lacking)

    @property
    def would_record(self) -> bool:
        """True if the trainer would be recorded: a needed function was found, and none is missing where its module is."""
        return not self.fatal and any(one.function is not None and one.hook.needed for one in self.found)


def drift(adapter: AdapterModule, source: SourceTree) -> Drift:
    """Looks every hook of an adapter up in the source.

    A hook whose package is not there at all is left out. Arguments are compared for looks in the adapter's own folder.
    """
    hooks = (*adapter.HOOKS, *getattr(adapter, "OBJECT_HOOKS", ()))
    return drift_of(hooks, Path(inspect.getfile(adapter)), source)  # type: ignore[arg-type]


def drift_of(hooks: Iterable[Hook], file: Path, source: SourceTree) -> Drift:
    """The same for the hooks of an adapter in this file."""
    hooks, reads = tuple(hooks), _arguments_read(file)
    there = {top: source.has_package(top) for top in {hook.module.partition(".")[0] for hook in hooks}}
    return Drift(tuple(_found(hook, source, reads) for hook in hooks if there[hook.module.partition(".")[0]]))


def _found(hook: Hook, source: SourceTree, reads: dict[str, set[str]]) -> HookedFunction:
    function = source.function(hook.module, hook.name)
    if function is None:
        return HookedFunction(hook, None, (), _reason(hook, source), source.has_module(hook.module))
    looks = [name for name in (hook.before, hook.after, hook.swap, hook.replace, hook.failed) if name]
    wanted = set[str]().union(*(reads.get(look, set()) for look in looks))
    return HookedFunction(hook, function, tuple(sorted(wanted - set(function.parameters))), "")


def _reason(hook: Hook, source: SourceTree) -> str:
    if not source.has_module(hook.module):
        return f"no module {hook.module}"
    owner, _, name = hook.name.rpartition(".")
    names = source.names(hook.module, owner)
    if owner and not names:
        return f"{hook.module} has no class {owner}{_near(owner, source.names(hook.module))}"
    return f"{owner or hook.module} has no {name}{_near(name, names)}"


def _near(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, list(names), n=2)
    return f"; it has {' and '.join(near)}" if near else ""


def _arguments_read(file: Path) -> dict[str, set[str]]:
    """Name of a look -> the arguments of the call that it reads as `call.arguments["name"]`, by the text of the adapter."""
    reads: dict[str, set[str]] = {}
    for part in sorted(file.parent.glob("*.py")) if file.name == "__init__.py" else [file]:
        for node in ast.walk(parsed(part)):
            if isinstance(node, ast.FunctionDef):
                reads.setdefault(node.name, set()).update(_subscripts(node))
    return reads


def _subscripts(function: ast.FunctionDef) -> Iterator[str]:
    """Names in `call.arguments["name"]`, also through a variable: `given = call.arguments`."""
    nodes = list(ast.walk(function))
    given = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and _is_arguments(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        match node:
            case ast.Subscript(value=value, slice=ast.Constant(value=str(name))) if _is_arguments(value) or (
                isinstance(value, ast.Name) and value.id in given
            ):
                yield name


def _is_arguments(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "arguments"
