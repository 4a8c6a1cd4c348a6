"""Hooks: watch functions of another program. They are declared as data, put on by name and taken off without a trace.

A Hook names a function of the trainer and the methods of a recorder that look at its calls. An exception of such a look is
caught, counted, and logged once. The original function is called exactly once in any case, and what it raises reaches its
caller.
Endpoints of Monarch's actors: a hook watches the function inside one.

`@endpoint` and `@concurrent_endpoint` put an object in the place of a method. The function of the latter only begins a task, so
it is the decorated function that is watched, and the endpoint is made anew around the watched one.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

from ratioscope.errors import ConfigError

from .imports import when_imported
from .patches import Patches, method_kind
from .recording import Recording

Wrapper = TypeVar("Wrapper")
MARK = "ratioscope_original"
"""The attribute of every wrapper that holds the Original."""
ADAPTER = "ratioscope_adapter"
"""The attribute of a hook's wrapper that holds the name of the adapter."""

MODULE = "monarch.actor"


@dataclass(frozen=True)
class Original:
    """A function that is watched. Pickled as None: who copies our wrapper's attributes, as Ray does, sends them by value."""

    function: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


@dataclass(frozen=True)
class Hook:
    """A watched function of a trainer. All but the first two and `needed` name methods of the recorder, which take a Call."""

    module: str
    """The module that has the function."""
    name: str
    """`function` or `Class.method` in the module."""
    before: str | None = None
    """Looks at the call before it is made. Its return value becomes `Call.noted`."""
    after: str | None = None
    """Looks at the call and its result."""
    swap: str | None = None
    """Returns arguments, by name, that are passed instead of the trainer's own."""
    replace: str | None = None
    """Returns the value that the caller gets instead of the result; None keeps the result."""
    failed: str | None = None
    """Looks at a call that has raised, before its caller gets the exception."""
    needed: bool = True
    """True if nothing can be recorded without this function: a trainer that lacks it is refused."""


@dataclass
class Call:
    """One call of a watched function."""

    target: Any
    """The object whose method was called; None for a function."""
    arguments: Mapping[str, Any]
    """By name, with defaults filled in."""
    result: Any = None
    """The value that the function returned; None before it has."""
    noted: Any = None
    """Return value of the look `before`."""
    given: tuple[Any, ...] = ()
    """The arguments that have a place, in their order, whatever a user's own method calls them."""


class Refused(ConfigError):
    """This version of the trainer cannot be recorded; the message says why."""


def put_on(hooks: Iterable[Hook], recorder: Any, recording: Recording) -> Callable[[], None]:
    """Puts each hook on when its module is imported, or now if it is. The returned function takes all off, later ones too.

    If a module lacks a function that is needed, all hooks are taken off, and the recording is refused.
    """
    patches = Patches()
    by_module: dict[str, list[Hook]] = {}
    for hook in hooks:
        by_module.setdefault(hook.module, []).append(hook)

    def install_all(of_module: list[Hook]) -> None:
        recording.watch(lambda: _install_present(of_module, recorder, recording, patches))

    def loaded(module: ModuleType, name: str) -> None:
        with patches.reaching_importers():
            install_all(by_module.get(name, []))

    with patches.reaching_importers():
        for name, of_module in list(by_module.items()):
            if sys.modules.get(name) is not None:
                install_all(of_module)
            else:
                when_imported(name, functools.partial(loaded, name=name))

    def undo() -> None:
        by_module.clear()  # a module that is imported later is not watched
        patches.restore()
        getattr(recorder, "undo", lambda: None)()  # a recorder may have put on something of its own since

    return undo


def install(hook: Hook, recorder: Any, recording: Recording, patches: Patches, owner: Any = None) -> None:
    """Puts the hook on. owner: the object, if only the method of this one object is to be watched and not that of its class."""
    target, name = (owner, hook.name.rpartition(".")[2]) if owner is not None else resolve(hook)
    is_method = isinstance(target, type) and method_kind(target, name) is not staticmethod

    def wrapper_of(original: Any) -> Any:
        if inside(original) is None:
            return watched(original, hook, recorder, recording, is_method=is_method)
        made = around(original, lambda body: watched(body, hook, recorder, recording, is_method=is_method))
        setattr(marked(made, original), ADAPTER, recording.adapter)
        return made

    patches.put(target, name, wrapper_of)


def install_on(owner: Any, hooks: Iterable[Hook], recorder: Any, recording: Recording, patches: Patches) -> None:
    """Puts those hooks on one object whose methods it has."""
    for hook in hooks:
        if hasattr(owner, hook.name):
            install(hook, recorder, recording, patches, owner)


def resolve(hook: Hook) -> tuple[Any, str]:
    """The module or class that has the function, and its name there; AttributeError if there is none."""
    owner: Any = sys.modules[hook.module]
    *path, name = hook.name.split(".")
    for part in path:
        owner = getattr(owner, part)
    getattr(owner, name)
    return owner, name


def missing(hooks: Iterable[Hook]) -> list[str]:
    """Names of needed functions that their module, which is loaded, does not have."""
    return [
        f"{hook.module}.{hook.name}" for hook in hooks if hook.needed and hook.module in sys.modules and _lacks(hook)
    ]


def lacks(lacking: Sequence[str], recording: Recording) -> str:
    """The words of a refusal, for what `missing` returned."""
    return f"{recording.title} has no {', '.join(lacking)}, so that nothing is recorded; training goes on{recording.advice}"


def watched(original: Any, hook: Hook, recorder: Any, recording: Recording, *, is_method: bool) -> Any:
    """A wrapper that takes the looks of the hook and calls the original. is_method: whether the first argument is the object.

    cloudpickle pickles by value what it cannot find by name. The wrapper is then pickled as the original alone.
    """
    looks = _Looks(original, hook, recorder, recording, is_method)
    calls = _awaiting if inspect.iscoroutinefunction(original) else _calling
    wrapper = marked(functools.wraps(original)(calls(original, looks)), original)
    setattr(wrapper, ADAPTER, recording.adapter)
    return wrapper


def marked(wrapper: Wrapper, original: Any) -> Wrapper:
    """The wrapper, with MARK set: for adapters that wrap a function themselves."""
    setattr(wrapper, MARK, Original(original))
    return wrapper


def recorder_of(hooks: Iterable[Hook], *parts: Any) -> SimpleNamespace:
    """The methods that these hooks name, each of the first part that has it. The calls in a process decide which of them run."""
    names = {name for h in hooks for name in (h.before, h.after, h.swap, h.replace, h.failed) if name}
    looks = {name: next(getattr(part, name) for part in parts if hasattr(part, name)) for name in names}
    return SimpleNamespace(**looks)


def _calling(original: Any, looks: _Looks | None) -> Any:
    def wrapper(*arguments: Any, **named: Any) -> Any:
        if looks is None:  # the wrapper came out of a pickle
            return original(*arguments, **named)
        call, arguments, named = looks.enter(arguments, named)
        try:
            result = original(*arguments, **named)
        except BaseException:
            looks.fail(call)
            raise
        return looks.leave(call, result)

    return wrapper


def _awaiting(original: Any, looks: _Looks | None) -> Any:
    async def wrapper(*arguments: Any, **named: Any) -> Any:
        if looks is None:
            return await original(*arguments, **named)
        call, arguments, named = looks.enter(arguments, named)
        try:
            result = await original(*arguments, **named)
        except BaseException:
            looks.fail(call)
            raise
        return looks.leave(call, result)

    return wrapper


class _Looks:
    """The looks of one hook at the calls of one function."""

    def __init__(self, original: Any, hook: Hook, recorder: Any, recording: Recording, is_method: bool) -> None:
        self._hook, self._recorder, self._recording = hook, recorder, recording
        self._signature = inspect.signature(original)
        self._is_method = is_method
        self._target = None if is_method else getattr(original, "__self__", None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as None, because ratioscope may not be installed where the pickle is read."""
        return type(None), ()

    def enter(
        self, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Call | None, tuple[Any, ...], dict[str, Any]]:
        if not self._recording.is_active:
            return None, arguments, named
        call = self._recording.watch(lambda: self._call(arguments, named), f"arguments of {self._hook.name}")
        if call is None:
            return None, arguments, named
        if self._hook.before is not None:
            call.noted = self._look(self._hook.before, call)
        given = None if self._hook.swap is None else self._look(self._hook.swap, call)
        swap = f"result of {self._hook.swap}"
        swapped = self._recording.watch(lambda: self._swapped(arguments, named, given), swap) if given else None
        return call, *(swapped or (arguments, named))

    def fail(self, call: Call | None) -> None:
        if call is not None and self._hook.failed is not None:
            self._look(self._hook.failed, call)

    def leave(self, call: Call | None, result: Any) -> Any:
        if call is None or not self._recording.is_active:
            return result
        call.result = result
        if self._hook.after is not None:
            self._look(self._hook.after, call)
        if self._hook.replace is not None:
            instead = self._look(self._hook.replace, call)
            return result if instead is None else instead
        return result

    def _look(self, method: str, call: Call) -> Any:
        return self._recording.watch(lambda: getattr(self._recorder, method)(call), method)

    def _call(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Call | None:
        try:
            bound = self._signature.bind(*arguments, **named)
        except TypeError:  # the original raises a better message
            return None
        bound.apply_defaults()
        values = dict(bound.arguments)
        target = values.pop(next(iter(values))) if self._is_method and values else self._target
        return Call(target, values, given=bound.args[self._is_method :])

    def _swapped(
        self, arguments: tuple[Any, ...], named: dict[str, Any], given: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        bound = self._signature.bind(*arguments, **named)
        bound.arguments.update(given)
        return bound.args, bound.kwargs


def is_watched(hook: Hook, owner: Any = None, adapter: str | None = None) -> bool:
    """True if the function is wrapped by us at present. owner: as in `install`. adapter: whose wrapper; None for any."""
    if owner is None and _lacks(hook):
        return False
    target, name = resolve(hook) if owner is None else (owner, hook.name.rpartition(".")[2])
    function = getattr(target, name, None)
    if adapter is None:
        return hasattr(function, MARK)
    while hasattr(function, MARK):  # adapters of several trainers may watch a function that these inherit
        if getattr(function, ADAPTER, None) == adapter:
            return True
        function = getattr(getattr(function, MARK), "function", None)
    return False


def _install_present(hooks: list[Hook], recorder: Any, recording: Recording, patches: Patches) -> None:
    if lacking := missing(hooks):
        recording.refuse(lacks(lacking, recording))
        if recording.options.get("strict", False):
            raise Refused(recording.refused or "")
        return
    for hook in hooks:
        if not _lacks(hook):
            install(hook, recorder, recording, patches)


def _lacks(hook: Hook) -> bool:
    try:
        resolve(hook)
    except AttributeError:
        return True
    return False


def inside(attribute: Any) -> Any:
    """The function that the decorator got; None if the attribute of the class is no endpoint."""
    method = getattr(attribute, "_method", None)
    if method is None or not hasattr(attribute, "_propagator"):
        return None
    return method.__wrapped__ if _is_concurrent(attribute) else method


def around(attribute: Any, watched: Callable[[Any], Any]) -> Any:
    """An endpoint like this one, of the watched function."""
    function = watched(inside(attribute))
    if _is_concurrent(attribute):
        return sys.modules[MODULE].concurrent_endpoint(function, propagate=attribute._propagator)
    made = copy.copy(attribute)
    made._method = function
    return made


def _is_concurrent(attribute: Any) -> bool:
    concurrent = getattr(sys.modules.get(MODULE), "concurrent_endpoint", None)
    return concurrent is not None and type(attribute).__name__ == "_ConcurrentEndpointProperty"
