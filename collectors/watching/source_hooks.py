"""The hooks of an adapter by the text of its file: nothing is imported and nothing runs."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, fields

from .hooks import Hook

_FIELDS = tuple(field.name for field in fields(Hook))


@dataclass(frozen=True)
class SourceHooks:
    """The hooks of an adapter that its text has, and the places of those that it does not have."""

    hooks: tuple[Hook, ...]
    unseen: tuple[int, ...]
    """Lines whose hooks are made at run time, so that the text does not have them."""


def names_given(tree: ast.Module) -> dict[str, ast.expr | None]:
    """Each name at the top of a module -> the value that it is assigned; None for a function, a class or an import."""
    given: dict[str, ast.expr | None] = {}
    for item in tree.body:
        match item:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                given[name] = None
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                given |= {alias.asname or alias.name: None for alias in aliases}
            case ast.Assign(targets=targets, value=value):
                given |= {target.id: value for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                given[name] = value
    return given


def source_hooks(given: dict[str, ast.expr | None]) -> SourceHooks:
    """The hooks in HOOKS and OBJECT_HOOKS. given: as `names_given` returns it."""
    found = [one for name in ("HOOKS", "OBJECT_HOOKS") if name in given for one in _found(given[name], given, {name})]
    return SourceHooks(
        tuple(one for one in found if isinstance(one, Hook)), tuple(one for one in found if isinstance(one, int))
    )


def _found(value: ast.expr | None, given: dict[str, ast.expr | None], seen: set[str]) -> Iterator[Hook | int]:
    """Hooks in the order of the text, and the line of each part whose hooks the text does not have; 0 for an import."""
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _found(part, given, seen)
        case ast.Starred(value=inner):
            yield from _found(inner, given, seen)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _found(left, given, seen)
            yield from _found(right, given, seen)
        case ast.Name(id=name) if name in given and name not in seen:
            yield from _found(given[name], given, {*seen, name})
        case ast.Call() if (hook := _hook(value, given)) is not None:
            yield hook
        case _:
            yield getattr(value, "lineno", 0)


def _hook(call: ast.Call, given: dict[str, ast.expr | None]) -> Hook | None:
    """The Hook that the call makes; None if it makes another thing, or of values that the text does not have."""
    if ast.unparse(call.func).rpartition(".")[2] != "Hook":
        return None
    values = dict(zip(_FIELDS, call.args, strict=False)) | {word.arg or "": word.value for word in call.keywords}
    told = {name: _constant(value, given) for name, value in values.items()}
    if not {"module", "name"} <= told.keys() <= set(_FIELDS) or ... in told.values():
        return None
    return Hook(**told)  # type: ignore[arg-type]  # a constant of another type is found by the adapter's own run


def _constant(value: ast.expr, given: dict[str, ast.expr | None]) -> object:
    """The constant; ... if it is none."""
    if isinstance(value, ast.Name):
        value = given.get(value.id) or value
    return value.value if isinstance(value, ast.Constant) else ...
