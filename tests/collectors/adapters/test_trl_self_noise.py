"""`self_noise` with TRL's real trainers: training is the same to the last bit, and `trainer_again` is the trainer's own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_trl import TrainingTrace, train
from support.tiny_trl_async import train_async
from support.trl_rows import assert_equal

from ratioscope import SelfNoise, open_run
from ratioscope.collectors.adapters.trl.completion_forward import CompletionForward
from ratioscope.ingest.run import Run

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing`:FutureWarning:transformers"),
    pytest.mark.filterwarnings("ignore:`gradient_checkpointing_(en|dis)able`:FutureWarning:transformers"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
]

SCENES: dict[str, dict[str, Any]] = {
    "the path for vLLM, with tools": {"env_mask": True, "vllm_stub": True},
    "autocast": {"bf16": True, "steps_per_generation": 4, "mask_truncated_completions": True},
    "micro-batches of one": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4},
    "dropout": {"dropout": 0.1, "gradient_checkpointing": True},
    "RLOO": {"rloo": True, "vllm_stub": True},
}
EACH = SelfNoise(every=1, sequences=3)
SAME = ("losses", "gradients", "parameters", "random_state", "log_history", "settings", "batches", "sensitivities")


def trained(run: Path | None, options: Any = None, **scene: Any) -> TrainingTrace:
    rate = scene.pop("dropout", 0.0)
    with pytest.MonkeyPatch.context() as patch:
        if rate:
            import support.tiny_trl as tiny

            made = tiny.tiny_model

            def with_dropout() -> Any:
                model = made()
                model.config.attention_dropout = rate
                for module in model.modules():
                    if hasattr(module, "attention_dropout"):
                        module.attention_dropout = rate
                return model

            patch.setattr(tiny, "tiny_model", with_dropout)
        return train(run, steps=2, options=options, **scene)


@pytest.fixture(scope="module", params=SCENES, ids=str)
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TrainingTrace, TrainingTrace, Run, str]]:
    run = tmp_path_factory.mktemp("run") / "run"
    own = SCENES[request.param]
    plain = trained(None, **own)
    with_it = trained(run, {"self_noise": EACH}, **own)
    yield plain, with_it, open_run(run), request.param


Scene = tuple[TrainingTrace, TrainingTrace, Run, str]


def test_training_is_the_same_to_the_last_bit(scene: Scene) -> None:
    plain, with_it, *_ = scene
    for name in SAME:
        assert_equal(getattr(plain, name), getattr(with_it, name), name)


def test_the_reading_is_the_trainers_own_up_to_rounding(scene: Scene) -> None:
    _, _, run, name = scene
    info = run.readings["trainer_again"]
    assert set(info.steps) <= set(run.steps) and info.steps
    counted = run.metrics((), gap="old:trainer_again")
    assert counted["old:trainer_again/tokens"].item() > 20
    apart = counted["old:trainer_again/max_abs_log_ratio"].item()
    least, most = {"dropout": (1e-3, 9.0), "autocast": (1e-4, 0.5)}.get(name, (0.0, 1e-5))
    assert least <= apart < most  # bfloat16 rounds otherwise in another shape, and dropout draws anew: this is measured


def test_a_second_forward_that_fails_is_counted_said_once_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain, calls = train(None, steps=4), list[int]()

    def broken(self: CompletionForward, places: list[int], batch: Any) -> Any:
        calls.append(1)
        self._trainer.model.eval()
        torch.nn.init.uniform_(torch.empty(3), 0, float(np.random.rand()))  # noqa: NPY002
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(CompletionForward, "_read", broken)
    trace = train(tmp_path / "run", steps=4, options={"self_noise": EACH})
    for name in SAME:
        assert_equal(getattr(plain, name), getattr(trace, name), name)
    run = open_run(tmp_path / "run")
    assert len(calls) == 3 and "trainer_again" not in run.readings  # three in a row, then no more
    assert trace.attachment is not None and trace.attachment.collector.counts.failures == {"self_noise": 3}
    assert sum("self_noise: OutOfMemoryError" in record.getMessage() for record in caplog.records) == 1
    (note,) = run.events.filter(event="self_noise")["note"].to_list()
    assert "failed 3 times in a row" in note and "out of memory" in note


def test_sequences_are_read_each_n_steps_and_not_in_between(tmp_path: Path) -> None:
    train(tmp_path / "run", steps=5, options={"self_noise": SelfNoise(every=2, sequences=2)})
    run = open_run(tmp_path / "run")
    assert run.readings["trainer_again"].steps == (1, 3, 5)
    rows = run.tokens(None, ["step", "sequence_id", "old:trainer_again"]).collect().drop_nulls()
    assert rows.group_by("step").n_unique()["sequence_id"].to_list() == [2, 2, 2]


@pytest.mark.parametrize(("name", "wanted"), [("torch_compile", "torch_compile"), ("is_fsdp_enabled", "all ranks")])
def test_a_trainer_for_which_it_is_not_safe_is_refused_it_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wanted: str
) -> None:
    fault = CompletionForward._fault

    def changed(self: CompletionForward, batch: Any) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(self._trainer if name.startswith("is_") else self._trainer.args, name, True)
            return fault(self, batch)

    monkeypatch.setattr(CompletionForward, "_fault", changed)
    train(tmp_path / "run", steps=2, options={"self_noise": True})
    run = open_run(tmp_path / "run")
    (note,) = run.events.filter(event="self_noise")["note"].to_list()
    assert wanted in note and not run.readings


def test_the_asynchronous_trainer_is_recorded_without_it(tmp_path: Path) -> None:
    train_async(tmp_path / "run", steps=2, options={"self_noise": True})
    run = open_run(tmp_path / "run")
    assert "only inside its loss" in run.events.filter(event="self_noise")["note"].item()
    assert run.size.tokens and not run.readings
