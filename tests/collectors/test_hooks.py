"""Hooks on functions of a program that knows nothing of them: what the looks see, and that the program cannot tell."""

import asyncio
import copy
import functools
import importlib
import inspect
import logging
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ratioscope.collectors.watching.hooks import MARK, Call, Hook, install, is_watched, missing, put_on
from ratioscope.collectors.watching.patches import Patches, replace_in_importers
from ratioscope.collectors.watching.recording import Recording

LOOP = '''
import functools

def loss(batch, *, scale=1):
    """The loss."""
    if batch is None:
        raise ValueError("no batch")
    return batch * scale

async def sample(prompt, n=2):
    return [prompt] * n

def steps(n):
    yield from range(n)

class Trainer:
    rate = 3

    def __init__(self, base=0):
        self.base = base

    def step(self, batch, *rest, scale=1, **named):
        return self.base + batch * scale

    @staticmethod
    def pad(rows, value=0):
        return [*rows, value]

    @classmethod
    def make(cls, base):
        return cls(base)

class Longer(Trainer):
    pass

doubled = functools.partial(loss, scale=2)
'''
USER = "from toy_loop.loop import Trainer, loss\n\ndef train(batch):\n    return loss(batch) + Trainer().step(batch)\n"


class Looks:
    """A recorder that keeps every call."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.order: list[str] = []

    def before(self, call: Call) -> str:
        self.order.append("before")
        return f"noted {len(self.calls)}"

    def after(self, call: Call) -> None:
        self.order.append("after")
        self.calls.append(call)

    def doubled_batch(self, call: Call) -> dict[str, Any]:
        return {"batch": call.arguments["batch"] * 2}

    def negative(self, call: Call) -> Any:
        return -call.result

    def nothing(self, call: Call) -> None:
        return None

    def broken(self, call: Call) -> Any:
        raise RuntimeError("a look went wrong")

    def nonsense(self, call: Call) -> Any:
        return 5


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A trainer's module, imported afresh, in a package with a user's script that imports it by name."""
    with toy_package(tmp_path, monkeypatch):
        yield importlib.import_module("toy_loop.loop")


@contextmanager
def toy_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    package = folder / "toy_loop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "loop.py").write_text(LOOP)
    (folder / "toy_user.py").write_text(USER)
    monkeypatch.syspath_prepend(folder)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.startswith("toy_")]:
            del sys.modules[name]


def hook(name: str, **looks: Any) -> Hook:
    return Hook("toy_loop.loop", name, **looks)


@contextmanager
def watching(*hooks: Hook, recorder: Any = None, **options: Any) -> Iterator[tuple[Any, Recording]]:
    """The recorder, and the recording of these hooks until the block ends."""
    looks, recording = recorder or Looks(), Recording("nowhere", {**options}, "toy")  # type: ignore[typeddict-item]
    undo = put_on(hooks, looks, recording)
    try:
        yield looks, recording
    finally:
        recording.is_active = False
        undo()


def failures(recording: Recording) -> list[str]:
    return [recording.first_failure or ""] * recording.failures


def test_arguments_come_by_name_with_defaults_and_the_result_with_what_was_noted(loop: Any) -> None:
    with watching(hook("loss", before="before", after="after")) as (looks, _):
        assert loop.loss(3) == 3 and loop.loss(batch=2, scale=5) == 10
    first, second = looks.calls
    assert (first.target, dict(first.arguments), first.result, first.noted) == (
        None,
        {"batch": 3, "scale": 1},
        3,
        "noted 0",
    )
    assert dict(second.arguments) == {"batch": 2, "scale": 5} and second.noted == "noted 1"
    assert looks.order == ["before", "after"] * 2


def test_a_method_has_its_object_as_target_and_keeps_what_is_variable(loop: Any) -> None:
    trainer = loop.Trainer(1)
    with watching(hook("Trainer.step", after="after")) as (looks, _):
        assert trainer.step(2, "rest", scale=3, more=4) == 7
    (call,) = looks.calls
    assert call.target is trainer
    assert dict(call.arguments) == {"batch": 2, "rest": ("rest",), "scale": 3, "named": {"more": 4}}


@pytest.mark.parametrize("owner", ["Trainer", "Longer"])
def test_static_and_class_methods_stay_what_they_are_inherited_or_not(loop: Any, owner: str) -> None:
    kind = getattr(loop, owner)
    with watching(hook(f"{owner}.pad", after="after"), hook(f"{owner}.make", after="after")) as (looks, _):
        assert kind.pad([1]) == kind().pad([1]) == [1, 0]
        assert type(kind.make(4)) is kind and type(kind().make(4)) is kind
        assert isinstance(inspect.getattr_static(kind, "pad"), staticmethod)
        assert isinstance(inspect.getattr_static(kind, "make"), classmethod)
    static, _, made, _ = looks.calls
    assert (static.target, dict(static.arguments)) == (None, {"rows": [1], "value": 0})
    assert (made.target, dict(made.arguments)) == (kind, {"base": 4})
    assert {"pad", "make"} & set(vars(loop.Longer)) == set()


def test_a_coroutine_function_stays_one_and_its_result_is_what_it_awaits(loop: Any) -> None:
    with watching(hook("sample", before="before", after="after")) as (looks, _):
        assert inspect.iscoroutinefunction(loop.sample)
        assert asyncio.run(loop.sample("a", n=3)) == ["a", "a", "a"]
    assert looks.calls[0].result == ["a", "a", "a"] and looks.order == ["before", "after"]


def test_a_generator_is_handed_on_untouched(loop: Any) -> None:
    with watching(hook("steps", after="after")) as (looks, _):
        assert list(loop.steps(3)) == [0, 1, 2]
    assert list(looks.calls[0].result) == []  # it was the trainer's, who has used it up


def test_swap_passes_other_arguments_and_replace_returns_another_result(loop: Any) -> None:
    with watching(hook("loss", swap="doubled_batch", after="after")) as (looks, _):
        assert loop.loss(3, scale=2) == 12
    assert looks.calls[0].arguments["batch"] == 3  # what the trainer passed
    with watching(hook("loss", replace="negative")):
        assert loop.loss(3) == -3
    with watching(hook("loss", swap="nothing", replace="nothing")):
        assert loop.loss(3) == 3


@pytest.mark.parametrize("look", ["before", "after", "swap", "replace"])
def test_a_look_that_fails_is_counted_said_once_and_stays_away_from_the_trainer(
    loop: Any, look: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), watching(hook("loss", **{look: "broken"})) as (_, recording):
        assert [loop.loss(1), loop.loss(2)] == [1, 2]
        assert failures(recording) == ["RuntimeError: a look went wrong"] * 2
    assert len(caplog.records) == 1 and "Training goes on" in caplog.text


def test_what_swap_returns_by_mistake_reaches_nobody(loop: Any) -> None:
    with watching(hook("loss", swap="nonsense")) as (_, recording):
        assert loop.loss(3) == 3
        assert len(failures(recording)) == 1


def test_a_look_that_is_not_there_stays_away_from_the_trainer(loop: Any) -> None:
    with watching(hook("loss", after="no_such_look")) as (_, recording):
        assert loop.loss(3) == 3
        assert "no_such_look" in failures(recording)[0]


def test_what_the_original_raises_goes_to_its_caller_and_nothing_is_looked_at(loop: Any) -> None:
    with watching(hook("loss", before="before", after="after")) as (looks, recording):
        with pytest.raises(ValueError, match="no batch"):
            loop.loss(None)
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'batch'"):
            loop.loss()
        assert looks.calls == [] and failures(recording) == []


def test_an_interrupt_within_a_look_is_the_users(loop: Any) -> None:
    class Interrupted(Looks):
        def before(self, call: Call) -> str:
            raise KeyboardInterrupt

    with watching(hook("loss", before="before"), recorder=Interrupted()), pytest.raises(KeyboardInterrupt):
        loop.loss(1)


def test_with_strict_a_failing_look_raises(loop: Any) -> None:
    with watching(hook("loss", after="broken"), strict=True), pytest.raises(RuntimeError, match="a look went wrong"):
        loop.loss(1)


def test_nothing_about_the_function_changes_that_a_program_asks(loop: Any) -> None:
    facts: list[Callable[[Any], Any]] = [
        inspect.signature,
        inspect.getsource,
        inspect.getdoc,
        inspect.iscoroutinefunction,
        lambda function: (function.__name__, function.__qualname__, function.__module__),
        callable,
        copy.deepcopy,
    ]
    names = ("loss", "sample", "Trainer.step", "Trainer.pad", "Trainer.make")

    def told() -> list[Any]:
        return [[fact(_named(loop, name)) for name in names] for fact in facts[:-1]]

    before = told()
    with watching(*(hook(name, after="after") for name in names)):
        assert told() == before
        assert all(copy.deepcopy(_named(loop, name)) == _named(loop, name) for name in names)
    assert told() == before


def _named(loop: Any, name: str) -> Any:
    found = loop
    for part in name.split("."):
        found = getattr(found, part)
    return found


def test_everything_comes_off_and_nothing_else_is_touched(loop: Any) -> None:
    user = importlib.import_module("toy_user")
    before = {module: dict(vars(module)) for module in (loop, user)}
    classes = {kind: dict(vars(kind)) for kind in (loop.Trainer, loop.Longer)}
    names = ("loss", "sample", "Trainer.step", "Trainer.pad", "Longer.make", "Longer.step")
    with watching(*(hook(name, after="after") for name in names)):
        assert all(is_watched(hook(name)) for name in names)
    assert {module: dict(vars(module)) for module in (loop, user)} == before
    assert {kind: dict(vars(kind)) for kind in classes} == classes


def test_who_imported_a_function_by_name_is_watched_too_and_gets_it_back(loop: Any) -> None:
    user = importlib.import_module("toy_user")
    original = loop.loss
    with watching(hook("loss", after="after"), hook("Trainer.step", after="after")) as (looks, _):
        assert user.train(2) == 4 and user.loss is loop.loss is not original
        assert [call.target is None for call in looks.calls] == [True, False]
    assert user.loss is loop.loss is original


def test_a_function_that_two_modules_name_has_the_looks_of_both_wherever_it_is_called(loop: Any) -> None:
    user = importlib.import_module("toy_user")
    original, elsewhere = loop.loss, Hook("toy_user", "loss", after="after")
    with watching(hook("loss", after="after"), elsewhere) as (looks, _):
        assert user.loss is loop.loss is not original and loop.loss(1) == original(1)
        assert len(looks.calls) == 2
    assert user.loss is loop.loss is original


def test_a_script_that_imported_a_function_is_found_wherever_it_is(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script = ModuleType("__main__")
    vars(script)["loss"] = loop.loss
    monkeypatch.setitem(sys.modules, "__main__", script)
    replace_in_importers([(loop.loss, "other")])
    assert vars(script)["loss"] == "other"


def test_what_somebody_else_put_over_ours_stays_and_still_works(loop: Any) -> None:
    original = loop.loss
    with watching(hook("loss", after="after")) as (looks, _):
        ours: Any = loop.loss
        theirs: Any = lambda batch: ours(batch) + 100  # noqa: E731
        loop.loss = theirs
        assert loop.loss(1) == 101 and len(looks.calls) == 1
    assert loop.loss is theirs and loop.loss(1) == 101
    assert len(looks.calls) == 1 and getattr(ours, MARK).function is original


def test_who_copies_the_attributes_of_a_wrapper_does_not_send_the_original_with_them(loop: Any) -> None:
    # Ray puts a wrapper of its own on each method of an actor, by functools.wraps, and sends its attributes by value
    with watching(hook("loss", after="after")):
        theirs = functools.wraps(loop.loss)(lambda batch: loop.loss(batch))
        held = {name: value for name, value in vars(theirs).items() if name != "__wrapped__"}
        data = pickle.dumps(held)
        assert MARK in held and pickle.loads(data)[MARK] is None
    assert not is_watched(hook("loss", after="after"))


def test_wrapped_functions_pickle_by_reference(loop: Any) -> None:
    with watching(hook("loss", after="after"), hook("Trainer.step", after="after")) as (looks, _):
        for thing in (loop.loss, functools.partial(loop.loss, scale=3), loop.Trainer(5).step):
            data = pickle.dumps(thing)
            assert b"ratioscope" not in data and pickle.loads(data)(2) == thing(2)
        assert pickle.loads(pickle.dumps(loop.loss)) is loop.loss
        assert len(looks.calls) == 6
    assert pickle.loads(data)(2) == 7  # in a process without hooks it is the original


def test_what_a_wrapper_holds_of_ours_does_not_travel(loop: Any) -> None:
    # Ray pickles by value what it cannot find by name: a class of a script, or one that a decorator has replaced
    with watching(hook("loss", after="after")):
        held = inspect.getclosurevars(loop.loss).nonlocals
        data = pickle.dumps(held["looks"])
    assert set(held) == {"looks", "original"}
    assert pickle.loads(data) is None and b"ratioscope" not in data


def test_a_partial_is_watched_like_a_function(loop: Any) -> None:
    with watching(hook("doubled", after="after")) as (looks, _):
        assert loop.doubled(4) == 8
    assert dict(looks.calls[0].arguments) == {"batch": 4, "scale": 2} and isinstance(loop.doubled, functools.partial)


def test_a_module_imported_later_is_watched_from_its_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with toy_package(tmp_path, monkeypatch), watching(hook("loss", after="after")) as (looks, _):
        user = importlib.import_module("toy_user")
        assert user.train(3) == 6
        assert [dict(call.arguments) for call in looks.calls] == [{"batch": 3, "scale": 1}]


def test_hooks_taken_off_before_the_import_never_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with toy_package(tmp_path, monkeypatch):
        with watching(hook("loss", after="after")) as (looks, _):
            pass
        take_off = put_on([hook("loss", after="after")], looks, Recording(tmp_path, {}, "toy"))
        take_off()
        loop: Any = importlib.import_module("toy_loop.loop")
        assert loop.loss(3) == 3 and looks.calls == [] and not is_watched(hook("loss"))


def test_a_needed_name_that_is_missing_refuses_the_recording_and_is_said(
    loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = (hook("loss", after="after"), hook("Trainer.gone", after="after"))
    assert missing(hooks) == ["toy_loop.loop.Trainer.gone"]
    with watching(*hooks) as (_, recording):
        assert not is_watched(hooks[0]) and loop.loss(1) == 1
        assert recording.refused is not None and "has no toy_loop.loop.Trainer.gone," in recording.refused
        assert failures(recording) == [] and not recording.is_active
    assert "training goes on" in caplog.text


def test_a_name_that_may_be_missing_is_left_out(loop: Any) -> None:
    gone = hook("Trainer.gone", after="after", needed=False)
    assert missing([gone]) == []
    with watching(gone, hook("loss", after="after")) as (looks, recording):
        assert loop.loss(1) == 1 and len(looks.calls) == 1 and failures(recording) == []


def test_hooks_of_one_function_are_each_called_and_each_come_off(loop: Any) -> None:
    original = loop.loss
    with watching(hook("loss", after="after")) as (outer, _):
        with watching(hook("loss", after="after"), hook("loss", after="after")) as (inner, _):
            assert loop.loss(1) == 1
        assert loop.loss(1) == 1
    assert (len(outer.calls), len(inner.calls)) == (2, 2) and loop.loss is original


def test_an_object_may_be_watched_alone(loop: Any) -> None:
    watched, other = loop.Trainer(1), loop.Trainer(1)
    patches, looks = Patches(), Looks()
    recording = Recording("nowhere", {}, "toy")
    for name in ("Trainer.step", "Trainer.pad", "Trainer.make"):
        install(hook(name, after="after"), looks, recording, patches, watched)
    assert is_watched(hook("Trainer.step"), watched) and not is_watched(hook("Trainer.step"), other)
    assert (
        watched.step(1) == other.step(1) == 2 and watched.pad([1]) == [1, 0] and type(watched.make(2)) is loop.Trainer
    )
    assert [call.target for call in looks.calls] == [watched, None, loop.Trainer]
    patches.restore()
    assert vars(watched) == {"base": 1}
