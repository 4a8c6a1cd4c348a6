"""Looks that fail at every call keep nothing of the trainer's alive, and take themselves off."""

import gc
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ratioscope
from ratioscope import Collector, open_run
from ratioscope.collectors.process.failures import ENOUGH, let_go
from ratioscope.collectors.watching.hooks import Call, Hook, is_watched, put_on
from ratioscope.collectors.watching.recording import Recording

STEPS = 300
HOOK = Hook("a_trainer", "train", after="trained")


class Tensor:
    """Stands for five megabytes."""


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("a_trainer")
    vars(module)["train"] = lambda batch: None
    monkeypatch.setitem(__import__("sys").modules, "a_trainer", module)
    return module


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What is freed is freed at once, as memory of a GPU does not wait for Python's collector of cycles."""
    gc.disable()
    yield
    gc.enable()


class Recorder:
    """An adapter's, whose look does what it is made for."""

    def __init__(self, look: Callable[[Tensor], None]) -> None:
        self.look, self.calls = look, 0

    def trained(self, call: Call) -> None:
        self.calls += 1
        self.look(call.arguments["batch"])


def raised(batch: Tensor) -> None:
    raise AttributeError("no version here")


def raised_again(batch: Tensor) -> None:
    try:
        raised(batch)
    except AttributeError as error:
        raise RuntimeError("while it was looked at") from error


def kept_in_a_cycle(batch: Tensor) -> None:
    try:
        raised(batch)
    except AttributeError as error:
        known = error  # the frame holds the error that holds the frame
        raise known  # noqa: B904


def raised_in_a_group(batch: Tensor) -> None:
    try:
        kept_in_a_cycle(batch)
    except AttributeError as error:
        raise ExceptionGroup("several", [error]) from None


class PanicException(BaseException):
    """As pyo3 raises it."""


def panicked(batch: Tensor) -> None:
    raise PanicException("a library in Rust")


def trained(module: ModuleType, steps: int = STEPS) -> list[Any]:
    """The batches that are still alive after so many steps."""
    batches = []
    for _ in range(steps):
        batch = Tensor()
        batches.append(weakref.ref(batch))
        module.train(batch)
        del batch
    return [alive for batch in batches if (alive := batch()) is not None]


@pytest.mark.parametrize("look", [raised, raised_again, kept_in_a_cycle, raised_in_a_group, panicked])
def test_nothing_that_a_failing_look_has_seen_is_kept(
    trainer: ModuleType, no_collection: None, look: Callable[[Tensor], None], caplog: pytest.LogCaptureFixture
) -> None:
    recording = Recording("nowhere", {}, "toy")
    undo = put_on([HOOK], Recorder(look), recording)
    assert trained(trainer, ENOUGH - 1) == []
    undo()
    assert recording.failures == ENOUGH - 1 and len(caplog.records) == 1


def test_nothing_is_kept_of_values_that_log_cannot_read(no_collection: None, tmp_path: Path) -> None:
    class Unreadable:
        def __init__(self) -> None:
            self.tensor = Tensor()
            alive.append(weakref.ref(self.tensor))

        def __index__(self) -> int:
            kept_in_a_cycle(self.tensor)
            return 0

    alive: list[weakref.ref[Tensor]] = []
    with Collector(tmp_path / "run") as collector:
        for _ in range(20):
            collector.log(step=Unreadable(), rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
        assert collector.counts.sequences.dropped == 20
    assert len(alive) == 20 and not [tensor for gone in alive if (tensor := gone()) is not None]


class MissingMandatoryValue(Exception):
    """OmegaConf's, of a value that is ???."""


class Unreadable(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise MissingMandatoryValue(key)

    def __iter__(self) -> Iterator[str]:
        raise MissingMandatoryValue("model")

    def __len__(self) -> int:
        raise MissingMandatoryValue("model")


def test_nothing_is_kept_where_no_collector_can_be_made(
    trainer: ModuleType, no_collection: None, tmp_path: Path
) -> None:
    recording = Recording(tmp_path / "run", {"text": "wrong"}, "toy")  # type: ignore[typeddict-item]

    def look(batch: Tensor) -> None:
        recording.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])

    put_on([HOOK], Recorder(look), recording)
    assert trained(trainer) == [] and recording.failures == ENOUGH


def test_an_error_that_the_trainer_is_handling_keeps_its_traceback() -> None:
    recording = Recording("nowhere", {}, "toy")

    def look() -> None:
        raise KeyError("ours")

    try:
        raised(Tensor())
    except AttributeError as error:
        recording.watch(look)
        assert error.__traceback__ is not None and error.__context__ is None


def test_errors_that_came_from_each_other_in_a_circle_are_let_go_of() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    let_go(one)


def test_an_adapter_whose_look_always_fails_takes_itself_off_and_says_what_to_do(
    trainer: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Recorder] = []

    def recorder(recording: Recording) -> Recorder:
        made.append(Recorder(raised))
        return made[0]

    adapter = ModuleType("my_adapter")
    vars(adapter).update(HOOKS=(HOOK,), recorder=recorder)
    attachment = ratioscope.attach(adapter, tmp_path / "run")
    alive = weakref.ref(made[0])
    trained(trainer)
    assert made.pop().calls == ENOUGH and not is_watched(HOOK)
    first, last = (record.getMessage() for record in caplog.records)
    assert (
        first == "my_adapter adapter: AttributeError: no version here. Training goes on. More of this is only counted."
    )
    assert last.startswith(
        "my_adapter adapter: trained failed 100 times in a row, first with AttributeError: no version here; nothing was recorded "
        "meanwhile, so the adapter takes itself off. Training goes on"
    )
    assert alive() is None
    assert attachment.detach() and not (tmp_path / "run").exists()


def test_a_shipped_adapter_that_takes_itself_off_names_the_version_it_was_tested_with(
    trainer: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    from ratioscope.collectors.attach import start
    from ratioscope.collectors.trainers import adapter_named

    adapter = adapter_named("slime")
    assert adapter is not None
    recording = Recording("nowhere", {}, "slime")
    undo = start(adapter, recording, None)
    for _ in range(ENOUGH):
        recording.watch(lambda: raised(Tensor()))
    assert "This adapter was tested with 2026-08-21" in caplog.messages[-1]
    undo()


def test_a_failing_look_beside_one_that_records_is_the_only_one_taken_off(
    trainer: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recording = Recording(tmp_path / "run", {}, "toy")

    def logged(batch: Tensor) -> None:
        step = recorder.calls - 1
        recording.log(step=step, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]], mask=[[1]])

    recorder, broken = Recorder(logged), Recorder(raised)
    undo = [put_on([HOOK], recorder, recording), put_on([HOOK], broken, recording)]
    trained(trainer, 1)
    for n in range(STEPS):
        recording.watch(lambda: broken.look(Tensor()), "scalars")
        if n == ENOUGH // 2:
            recording.log(step=1, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]], mask=[[1]])
    assert recording.is_active and "it is not called any more" in caplog.messages[-1]
    for back in undo:
        back()
    assert recording.close()
    run = open_run(tmp_path / "run")
    assert "not called any more" in run.events.filter(event="adapter_failed")["note"][0]


def test_one_success_begins_the_count_anew() -> None:
    recording = Recording("nowhere", {}, "toy")
    for n in range(3 * ENOUGH):
        recording.watch(lambda n=n: raised(Tensor()) if n % ENOUGH else None)  # type: ignore[misc]
    assert recording.is_active and recording.failures == 3 * (ENOUGH - 1)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_ends_the_process_ends_it(error: type[BaseException]) -> None:
    def look() -> None:
        raise error

    with pytest.raises(error):
        Recording("nowhere", {}, "toy").watch(look)


def test_a_strict_log_handler_raises_nothing_into_a_look(trainer: ModuleType, tmp_path: Path) -> None:
    class Strict(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no warnings in this house")

    handler = Strict()
    logging.getLogger("ratioscope").addHandler(handler)
    try:
        put_on([HOOK], Recorder(raised), Recording("nowhere", {}, "toy"))
        trained(trainer)
        recording = Recording(tmp_path / "run", {}, "toy")
        recording.say_once("no_old_logprobs", 0, "not there")
        assert recording.close()
    finally:
        logging.getLogger("ratioscope").removeHandler(handler)


def test_a_configuration_whose_items_raise_costs_the_configuration_and_no_row(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "run", {"config": Unreadable()}, "toy")
    recording.describe(config=Unreadable())
    recording.watch(lambda: recording.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]], mask=[[1]]))
    assert recording.close() and recording.failures == 0
    assert open_run(tmp_path / "run").steps == [0]


def test_a_trainer_that_cannot_be_attached_to_is_refused_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(recording: Recording) -> Any:
        raise TypeError("another version")

    adapter = ModuleType("my_adapter")
    vars(adapter).update(HOOKS=(), recorder=broken)
    attachment = ratioscope.attach(adapter, tmp_path / "run")
    reason = "my_adapter cannot be attached to: TypeError: another version; nothing is recorded, training goes on"
    assert attachment.refused == reason
    assert attachment.refused in caplog.text
    with pytest.raises(TypeError, match="another version"):
        ratioscope.attach(adapter, tmp_path / "run", strict=True)


def test_a_collector_of_its_own_takes_any_configuration(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", config=Unreadable()) as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]], mask=[[1]])
    assert "MissingMandatoryValue" in str(open_run(tmp_path / "run").info["config"])
