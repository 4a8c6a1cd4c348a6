"""Ray in one process: an actor is an object, a remote call is a call, and what it returns is a reference to its value.

Nothing is pickled and nothing runs at the same time, so that a test holds the very tensors that a trainer's workers hold. Real
worker processes are in tests/upstream/test_ray_*.py.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Generator, Iterable
from types import SimpleNamespace
from typing import Any


class Ref:
    """What a remote call returns."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self.value


def get(given: Any, timeout: float | None = None) -> Any:
    return given.value if isinstance(given, Ref) else [get(each) for each in given]


def wait(refs: list[Ref], *, num_returns: int = 1, timeout: float | None = None) -> tuple[list[Ref], list[Ref]]:
    return refs[:num_returns], refs[num_returns:]


class Remote:
    """A function or a bound method that Ray would run elsewhere."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def options(self, **_: Any) -> Remote:
        return self

    def remote(self, *given: Any, **named: Any) -> Ref:
        found = self._function(*_resolved(given), **dict(zip(named, _resolved(named.values()), strict=True)))
        return Ref(asyncio.run(found) if inspect.iscoroutine(found) else found)


def _resolved(values: Iterable[Any]) -> list[Any]:
    return [value.value if isinstance(value, Ref) else value for value in values]


class Handle:
    """An actor."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Remote:
        if name.startswith("__"):
            raise AttributeError(name)
        return Remote(getattr(self._made, name))


class ActorClass:
    """A class whose objects are actors. Their environment variables become the process's."""

    def __init__(self, made: type, variables: dict[str, str] | None = None) -> None:
        self.made, self._variables = made, variables or {}
        self.__ray_metadata__ = SimpleNamespace(modified_class=made)
        self._default_options: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made, name)

    def options(self, runtime_env: dict[str, Any] | None = None, **_: Any) -> ActorClass:
        return ActorClass(self.made, (runtime_env or {}).get("env_vars"))

    def remote(self, *given: Any, **named: Any) -> Handle:
        os.environ.update(self._variables)
        return Handle(self.made(*_resolved(given), **named))


def remote(*given: Any, **_: Any) -> Any:
    """`ray.remote`, with and without options."""
    if not given:
        return remote
    return ActorClass(given[0]) if isinstance(given[0], type) else Remote(given[0])


def placement_group(*, bundles: list[Any], **_: Any) -> SimpleNamespace:
    return SimpleNamespace(bundle_count=len(bundles), ready=lambda: Ref(None), bundle_specs=bundles)


def cluster_resources() -> dict[str, float]:
    return {"CPU": 64.0, "GPU": 8.0}


NAMES = {
    "get": get, "wait": wait, "remote": remote, "put": Ref, "kill": lambda *_, **__: None, "get_gpu_ids": lambda: [0],
    "cluster_resources": cluster_resources, "is_initialized": lambda: True,
}  # fmt: skip
"""What `ray` has."""
