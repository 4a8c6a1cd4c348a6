"""TRL recorded by name or by environment: whichever trainer the process trains, for as long as it trains."""

import importlib
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.paths import TESTS
from support.tiny_trl import make_trainer, train, transformers
from support.tiny_trl_async import train_async
from support.trl_rows import assert_equal
from support.written_run import token_rows

from ratioscope import attach, open_run
from ratioscope.collectors.adapters.trl import WRAPPED
from ratioscope.collectors.adapters.trl import start as start_trl
from ratioscope.collectors.adapters.trl.attaching import ANOTHER, is_attached
from ratioscope.collectors.adapters.trl.foreign import NOT_UNSLOTH
from ratioscope.collectors.trainers import ADAPTERS
from ratioscope.collectors.watching.hooks import MARK, Refused
from ratioscope.collectors.watching.recording import Recording
from ratioscope.errors import ConfigError

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing`:FutureWarning:transformers"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
]

Trainer: Any = importlib.import_module("transformers.trainer").Trainer
Grpo: Any = importlib.import_module("trl").GRPOTrainer


def test_by_name_a_trainer_is_recorded_while_it_trains_and_left_as_it_was(tmp_path: Path) -> None:
    before = vars(Trainer)["train"]
    plain, attachment = train(None), attach("trl", tmp_path / "run")
    assert hasattr(Trainer.train, MARK) and not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="attached to TRL already"):
        attach("trl", tmp_path / "again")
    trainer = make_trainer(str(tmp_path / "trainer"))
    callbacks = list(trainer.callback_handler.callbacks)
    trainer.train()
    assert not is_attached(trainer) and trainer.callback_handler.callbacks == callbacks
    assert attachment.detach()
    assert vars(Trainer)["train"] is before
    assert_equal(plain.losses, trainer.losses, "losses")
    assert len(token_rows(tmp_path / "run")) == 24
    assert open_run(tmp_path / "run").metrics().height == 3


def test_by_name_the_asynchronous_trainer_is_recorded_too(tmp_path: Path) -> None:
    attachment = attach("trl", tmp_path / "run")
    trace = train_async(None, steps=2)
    assert attachment.detach()
    rows = token_rows(tmp_path / "run").to_pylist()
    assert len(rows) == sum(int(batch["segment_id"].max()) + 1 for batch in trace.batches) == 16
    assert_equal(train_async(None, steps=2).losses, trace.losses, "losses")


def test_a_trainer_that_the_user_attached_to_is_not_attached_to_twice(tmp_path: Path) -> None:
    attachment = attach("trl", tmp_path / "by_name")
    trace = train(tmp_path / "own")
    assert attachment.detach()
    assert trace.attachment is not None and trace.attachment.collector.counts.failures == {}
    assert len(token_rows(tmp_path / "own")) == 24 and not (tmp_path / "by_name").exists()


class Detaching(transformers.TrainerCallback):  # type: ignore[misc]
    """Detaches after the first step; is_clean: whether the trainer was as before, then."""

    def __init__(self, attachment: Any) -> None:
        self.attachment, self.trainer, self.is_clean = attachment, SimpleNamespace(), False

    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        if state.global_step == 1:
            assert is_attached(self.trainer)
            self.is_clean = self.attachment.detach() and not is_attached(self.trainer)


def test_detach_in_the_midst_of_training_leaves_nothing_behind(tmp_path: Path) -> None:
    attachment = attach("trl", tmp_path / "run")
    trainer = make_trainer(str(tmp_path / "trainer"))
    callback = Detaching(attachment)
    callback.trainer = trainer
    trainer.add_callback(callback)
    trainer.train()
    assert callback.is_clean and not any(name in vars(trainer) for name in WRAPPED)
    assert_equal(train(None).losses, trainer.losses, "losses")
    assert set(token_rows(tmp_path / "run")["step"].to_pylist()) == {1}


def test_a_second_trainer_is_not_mixed_into_the_first_ones_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attachment = attach("trl", tmp_path / "run")
    train(None, steps=1)
    assert ANOTHER not in caplog.text
    train(None, steps=2)
    assert attachment.detach()
    assert caplog.text.count(ANOTHER) == 1
    assert set(token_rows(tmp_path / "run")["step"].to_pylist()) == {1}


def test_a_trainer_whose_training_failed_is_left_as_it_was(tmp_path: Path) -> None:
    attachment = attach("trl", tmp_path / "run")
    trainer = make_trainer(str(tmp_path / "trainer"))
    trainer.rollout_func = lambda prompts, trainer: {"prompt_ids": [], "completion_ids": []}
    with pytest.raises(ValueError, match="rollout_func must return keys"):
        trainer.train()
    assert attachment.detach()
    assert not is_attached(trainer)


def test_trainers_of_other_kinds_are_let_alone(tmp_path: Path) -> None:
    attachment = attach("trl", tmp_path / "run")

    class Other(Trainer):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        def _inner_training_loop(self, *arguments: Any, **named: Any) -> Any:
            return 7

    other = Other()
    with pytest.raises(AttributeError):  # it has nothing that a trainer has
        other.train()
    assert attachment.detach() and not is_attached(other) and not (tmp_path / "run").exists()


@pytest.mark.parametrize("module", ["UnslothGRPOTrainer", "unsloth_cache_UnslothGRPOTrainer"])
def test_an_unsloth_whose_loss_is_another_is_refused_with_what_it_lacks(tmp_path: Path, module: str) -> None:
    base = type("_UnslothGRPOTrainer", (), {"__module__": module})
    theirs = type("UnslothGRPOTrainer", (base,), {"__module__": module, "compute_loss": lambda self: None})
    attachment = attach(theirs(), tmp_path / "run")
    assert attachment.refused is not None
    for part in ("has no _generate", "grpo_accumulated_loss, UnslothEfficientGRPO", "2026.10.9", "training goes on"):
        assert part in attachment.refused
    assert attachment.detach() and not (tmp_path / "run").exists()


def test_trls_adapter_names_the_one_for_unsloths_trainer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class UnslothGRPOTrainer(Trainer):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

    attachment = attach("trl", tmp_path / "run")
    with pytest.raises(AttributeError), caplog.at_level(logging.ERROR):
        UnslothGRPOTrainer().train()
    assert attachment.refused == NOT_UNSLOTH and NOT_UNSLOTH in caplog.text and not (tmp_path / "run").exists()
    train(None, steps=1)
    assert attachment.detach() and attachment.refused is None  # this trainer can be recorded
    assert len(token_rows(tmp_path / "run")) > 0


REPLACED = {
    "swift.rlhf_trainers.grpo_trainer": ("_compute_loss", 'attach("ms_swift"'),
    "axolotl.core.trainers.grpo.async_trainer": ("_compute_loss", "samples ahead"),
}
"""Module -> a method that its class replaces, and a part of the reason for which it is refused."""


def _foreign(module: str, method: str) -> Any:
    def other(self: Any, *arguments: Any) -> None:
        raise NotImplementedError

    return type("GRPOTrainer", (Grpo,), {"__module__": module, method: other, "__init__": lambda self: None})()


@pytest.mark.parametrize("module", REPLACED)
def test_a_trainer_that_replaces_the_methods_of_trl_is_refused_with_the_reason(tmp_path: Path, module: str) -> None:
    method, reason = REPLACED[module]
    recording = Recording(tmp_path / "run", {}, "trl")
    for kind in (cls := type(_foreign(module, method)), type("Mine", (cls,), {"__module__": "__main__"})):
        with pytest.raises(Refused) as refused:
            start_trl(kind(), recording)
        assert reason in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_ms_swifts_trainer_is_taken_by_its_own_adapter(tmp_path: Path) -> None:
    trainer = _foreign("swift.rlhf_trainers.grpo_trainer", "_compute_loss")
    fitting = next(adapter for adapter in ADAPTERS if adapter.fits(trainer))
    assert fitting.name == "ms_swift"


def test_an_unknown_package_that_replaces_a_method_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    package = ModuleType("anothers.trainer")
    package.__file__ = "/env/lib/python3.11/site-packages/anothers/trainer.py"
    monkeypatch.setitem(sys.modules, package.__name__, package)

    def generate(self: Any, *arguments: Any) -> Any:
        return Grpo._generate(self, *arguments)

    trainer = make_trainer(str(tmp_path / "trainer"))
    type_of = type(trainer)
    trainer.__class__ = type("Theirs", (type_of,), {"__module__": package.__name__, "_generate": generate})
    attachment = attach(trainer, tmp_path / "run")
    assert attachment.refused is None and "anothers.trainer replaces _generate" in caplog.text
    trainer.__class__ = type("Mine", (type_of,), {"__module__": "__main__", "_generate": generate})
    attachment.detach()
    caplog.clear()
    attach(trainer, tmp_path / "another").detach()
    assert "replaces" not in caplog.text


SCRIPT = """
from support import tiny_trl
trace = tiny_trl.train(None, steps=2)
print("LOSSES", [float(loss).hex() for loss in trace.losses])
"""


def test_a_script_without_a_line_of_ours_is_recorded_by_its_environment(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("from ratioscope.collectors.environment import install\n\ninstall()\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    path = os.pathsep.join((str(tmp_path), str(TESTS)))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RATIOSCOPE_")}
    environment = {"PYTHONPATH": path, "RATIOSCOPE_RUN": str(tmp_path / "run")}
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(token_rows(tmp_path / "run")) == 16
    run = open_run(tmp_path / "run")
    assert run.metrics()["step"].to_list() == [1, 2]
    losses = [float(loss).hex() for loss in train(None, steps=2).losses]
    assert f"LOSSES {losses}" in done.stdout
