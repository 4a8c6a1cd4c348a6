"""Wraps methods of one object, and takes the wrappers off again. The class, and every other object of it, stay as they are."""

from collections.abc import Callable
from typing import Any

Method = Callable[..., Any]
_ABSENT = object()


class InstanceHooks:
    """The wrappers put on one object."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._wrapped: list[tuple[str, Method, Any]] = []

    def wrap(self, name: str, wrapper_of: Callable[[Method], Method]) -> None:
        """Puts `wrapper_of(method)` in the method's place."""
        wrapper = wrapper_of(getattr(self._target, name))
        self._wrapped.append((name, wrapper, vars(self._target).get(name, _ABSENT)))
        setattr(self._target, name, wrapper)

    def restore(self) -> None:
        """Takes the wrappers off. One that somebody else has wrapped in turn stays, and should then only pass calls on."""
        for name, wrapper, before in reversed(self._wrapped):
            if vars(self._target).get(name) is not wrapper:
                continue
            if before is _ABSENT:
                delattr(self._target, name)
            else:
                setattr(self._target, name, before)
        self._wrapped.clear()
