"""`Collector.read_again` by hand, what it leaves as it was, and who refuses it."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ratioscope import Collector, SelfNoise, open_run
from ratioscope.collectors.attach import start
from ratioscope.collectors.process.isolated_forward import fault_of, isolated_forward
from ratioscope.collectors.self_noise import SecondForward, guarded, self_noise_in_words
from ratioscope.collectors.trainers import ADAPTERS
from ratioscope.collectors.watching.recording import Recording
from ratioscope.errors import ConfigError


class Restless(torch.nn.Module):
    """A module whose forward draws, counts, writes to a buffer in place, and replaces another."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("longest", torch.zeros(1))
        self.calls = 0

    seen: torch.Tensor
    longest: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.first = len(x)
        self.seen += random.random() + float(np.random.rand()) + torch.rand(1)  # noqa: NPY002
        self.longest = torch.full((1,), float(len(x)))
        self.cache = torch.ones(3)
        found: torch.Tensor = self.norm(torch.nn.functional.dropout(self.layer(x), 0.5))
        return found


def state_of(model: Restless) -> list[Any]:
    tensors = [*model.state_dict().values(), *(p.grad for p in model.parameters()), torch.get_rng_state()]
    bits = [None if tensor is None else tensor.numpy().tobytes() for tensor in tensors]
    numpy_state: Any = np.random.get_state()  # noqa: NPY002
    return [bits, random.getstate(), str(numpy_state), model.calls, sorted(vars(model)), model.training]


@pytest.mark.parametrize("fails", [False, True])
def test_a_forward_inside_leaves_everything_as_it_was(fails: bool) -> None:
    model, x = Restless(), torch.randn(6, 4)
    model(x).sum().backward()
    before, buffers = state_of(model), (model.seen, model.longest)
    try:
        with isolated_forward(model):
            model.eval()
            model.train()
            assert not model(x).requires_grad
            model.layer.eval()
            if fails:
                raise torch.OutOfMemoryError
    except torch.OutOfMemoryError:
        assert fails
    assert state_of(model) == before and torch.is_grad_enabled() and model.layer.training
    assert model.seen is buffers[0] and model.longest is buffers[1]


def test_casts_of_autocast_made_inside_are_not_found_by_training() -> None:
    model, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        with isolated_forward(model):
            model(x)
        model(x).sum().backward()
    assert model.weight.grad is not None and model.weight.grad.abs().sum() > 0


def test_a_sharded_model_keeps_its_buffers_modes_and_the_random_states() -> None:
    model, x = Restless(), torch.randn(6, 4)
    before = [state_of(model)[0], random.getstate(), model.training]
    longest = model.longest
    with guarded([model, "no module"]):
        model.eval()
        model(x)
        model.norm.train()(x)
    assert [state_of(model)[0], random.getstate(), model.training] == before and model.norm.training
    assert model.longest is longest
    assert model.calls == 1  # what else a forward sets belongs to the sharding, and stays


class FakeDTensor(torch.nn.Parameter):
    """Named as torch's."""


FakeDTensor.__name__ = "DTensor"


def test_a_model_whose_forward_is_not_safe_is_named() -> None:
    plain, sharded = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    sharded.weight = FakeDTensor(torch.zeros(2, 2))
    assert fault_of(plain) == ""
    assert "sharded" in fault_of(sharded)
    compiled: Any = torch.compile(plain, backend="eager")
    assert "compiled" in fault_of(torch.nn.Sequential(compiled))


def logged(run: Path, score: Any, **options: Any) -> Collector:
    model = torch.nn.Linear(1, 1)
    old = torch.linspace(-2, -0.1, 24).reshape(4, 6)
    with Collector(run, **options) as collector:
        for step in range(6):
            again = collector.read_again(step, 4, lambda rows: score(old[rows]), model)
            collector.log(step=step, rollout_logprobs=old - 0.1, old_logprobs=old, readings=again)
    return collector


def test_a_trainer_of_ones_own_reads_again_by_hand(tmp_path: Path) -> None:
    logged(tmp_path / "run", lambda own: own + 0.01, self_noise=SelfNoise(every=2, sequences=2))
    run = open_run(tmp_path / "run")
    assert run.readings["trainer_again"].steps == (0, 2, 4)
    found = run.metrics((), gap="old:trainer_again")
    assert found["old:trainer_again/tokens"].item() == 3 * 2 * 6
    assert found["old:trainer_again/abs_log_ratio"].item() == pytest.approx(0.01, rel=1e-4)


def test_a_score_that_raises_costs_the_reading_and_nothing_else(tmp_path: Path) -> None:
    def fail(own: Any) -> Any:
        raise RuntimeError("no memory")

    collector = logged(tmp_path / "run", fail, self_noise=SelfNoise(every=1))
    run = open_run(tmp_path / "run")
    assert len(run.records().collect()) == 24 and not run.readings
    assert collector.counts.failures == {"self_noise": 3}
    assert "failed 3 times in a row" in run.events.filter(event="self_noise")["note"].item()


def test_a_failure_now_and_then_does_not_end_it() -> None:
    answers = iter([RuntimeError("once"), None, RuntimeError("twice"), RuntimeError("thrice"), None])
    failures, said = list[str](), list[str]()

    def score(places: list[int]) -> list[torch.Tensor]:
        if (error := next(answers)) is not None:
            raise error
        return [torch.zeros(2) for _ in places]

    second = SecondForward(SelfNoise(1, 2), lambda _, note: said.append(note), lambda what, _: failures.append(what))
    read = [bool(second.read(step, 5, score, torch.nn.Linear(1, 1))) for step in range(5)]
    assert read == [False, True, False, False, True] and len(failures) == 3 and not said


def test_a_driver_reads_a_sequence_for_each_rank_at_a_time_and_stops_at_the_first_failure() -> None:
    asked, said = list[list[int]](), list[str]()

    def score(places: list[int]) -> list[torch.Tensor]:
        asked.append(places)
        if len(asked) > 3:
            raise RuntimeError("one rank")
        return [torch.full((1,), float(place)) for place in places]

    second = SecondForward(SelfNoise(1, 2), lambda _, note: said.append(note), lambda *_: None)
    assert second.read(0, 3, score, (), 4) == {}  # fewer sequences than ranks
    (read,) = second.read(1, 9, score, (), 3).values()
    assert asked == [[0, 1, 3], [4, 6, 7]] and [place for place, row in enumerate(read) if row is not None] == [
        0,
        1,
        3,
        4,
        6,
        7,
    ]
    assert all(row is None or row.item() == place for place, row in enumerate(read))
    assert not second.read(2, 9, score, (), 3) and not second.read(3, 9, score, (), 3)
    assert len(asked) == 4 and "failed once with RuntimeError: one rank" in said[0]


def test_without_the_option_the_model_is_not_looked_at(tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        assert collector.read_again(1, 4, lambda _: 1 / 0, None) == {}  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("wrong", [0, "yes", SelfNoise, 2.5])
def test_anything_else_is_refused_at_once(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="self_noise"):
        Collector(tmp_path / "run", self_noise=wrong)
    with pytest.raises(ConfigError, match="every is 0"):
        SelfNoise(every=0)


@pytest.mark.parametrize("text", ["", "0"])
def test_a_text_may_ask_for_none(text: str) -> None:
    assert self_noise_in_words(text) is None


@pytest.mark.parametrize(("text", "wanted"), [("7", SelfNoise(7)), (" 5x2", SelfNoise(5, 2))])
def test_a_text_gives_steps_and_sequences(text: str, wanted: SelfNoise) -> None:
    assert self_noise_in_words(text) == wanted


@pytest.mark.parametrize("text", ["x4", "-1", "10x-4", "10x4x2", "0x4", "ten"])
def test_a_text_that_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="self_noise"):
        self_noise_in_words(text)


def test_each_adapter_takes_the_option_or_says_why_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    taken = [adapter.name for adapter in ADAPTERS if not adapter.no_self_noise]
    assert taken == ["verl", "slime", "skyrl", "nemo_rl", "trl"]
    for adapter in ADAPTERS:
        caplog.clear()
        recording = Recording(tmp_path / adapter.name, {"self_noise": True}, adapter.name)
        start(adapter, recording, None)()
        refused = [one for one in caplog.messages if "self_noise is refused" in one]
        assert len(refused) == (adapter.name not in taken)
        assert recording.options.get("self_noise") is (True if adapter.name in taken else None)
