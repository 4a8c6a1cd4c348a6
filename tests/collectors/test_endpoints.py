"""Hooks on the endpoints of Monarch's actors, with endpoints of the shape that torchmonarch 0.7 gives them."""

import asyncio
import functools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ratioscope.collectors.watching.hooks import Call, Hook, is_watched, put_on
from ratioscope.collectors.watching.recording import Recording

HOOKS = tuple(Hook("an_actor", f"Actor.{name}", before="begins", after="ends") for name in ("plain", "concurrent"))


class Endpoint:
    """As `EndpointProperty`: no function, and the same object from class and instance."""

    def __init__(self, method: Any, propagator: Any = None) -> None:
        self._method, self._propagator = method, propagator


class _ConcurrentEndpointProperty(Endpoint):
    """Its function only begins a task, and holds the decorated one in a closure."""

    def __init__(self, method: Any, propagator: Any = None) -> None:
        @functools.wraps(method)
        async def begins(actor: Any, port: list[Any], *arguments: Any) -> None:
            async def body() -> None:
                port.append(await method(actor, *arguments))

            await asyncio.create_task(body())

        super().__init__(begins, propagator)


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> Any:
    async def twice(self: Any, number: int) -> int:
        return 2 * number

    monarch, module = ModuleType("monarch.actor"), ModuleType("an_actor")
    vars(monarch)["concurrent_endpoint"] = lambda method, propagate=None: _ConcurrentEndpointProperty(method, propagate)
    vars(module)["Actor"] = type(
        "Actor", (), {"plain": Endpoint(twice, "all"), "concurrent": _ConcurrentEndpointProperty(twice, "all")}
    )
    monkeypatch.setitem(sys.modules, "monarch.actor", monarch)
    monkeypatch.setitem(sys.modules, "an_actor", module)
    return vars(module)["Actor"]


class Recorder:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def begins(self, call: Call) -> None:
        self.seen.append((type(call.target).__name__, call.arguments["number"]))

    def ends(self, call: Call) -> None:
        self.seen.append(call.result)


def test_the_function_inside_an_endpoint_is_watched_and_the_endpoint_comes_back(actor: Any, tmp_path: Path) -> None:
    before, recorder, port = dict(vars(actor)), Recorder(), list[int]()
    undo = put_on(HOOKS, recorder, Recording(tmp_path / "run", {}, "test"))
    assert all(is_watched(hook) for hook in HOOKS)
    made = actor()
    assert asyncio.run(actor.plain._method(made, 2)) == 4
    asyncio.run(actor.concurrent._method(made, port, 3))
    assert port == [6] and recorder.seen == [("Actor", 2), 4, ("Actor", 3), 6]
    assert actor.plain._propagator == actor.concurrent._propagator == "all"
    undo()
    assert dict(vars(actor)) == before and not any(is_watched(hook) for hook in HOOKS)
