"""The NeMo-RL adapter on NeMo-RL's own code: its loops, rollouts, batches, workers, loss, logs and dumps, on a CPU.

Needs a checkout of NVIDIA-NeMo/RL (it is not published), tested with 7ea279ab of 2026-08-22, in a folder of SOURCES. Skipped
otherwise. tests/support/nemo_rl_places.py says what stands in for what. These parts cannot run here, and stay with the stand-ins
of tests/standins:

    MegatronPolicyWorkerImpl    models/policy/workers/megatron_policy_worker.py:29 imports megatron.bridge, which needs CUDA
    SingleController            only that worker has train_microbatch (line 1372), by which it trains
    ppo_train                   models/value/workers/dtensor_value_worker_v2.py:23: its critic is built of nemo_automodel
    refit by CUDA IPC           models/policy/utils.py:25: rebuild_cuda_tensor
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.imported import imported

import ratioscope

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="NeMo-RL runs on torch")
pytest.importorskip("tensordict", reason="NeMo-RL's requirements are not importable here")
places = pytest.importorskip("support.nemo_rl_places", reason="it needs torch")
driving = pytest.importorskip("upstream.nemo_rl_drive", reason="it needs torch")
checks = pytest.importorskip("upstream.nemo_rl_checks", reason="it needs torch")

V2, PACKED = {"dtensor_cfg": {"_v2": True}}, {"sequence_packing": {"enabled": True}}
CORRECTED = {"use_importance_sampling_correction": True}


def _truncated(kind: str, high: float, low: float | None = None) -> dict[str, Any]:
    name = "truncated_importance_sampling"
    return {"loss_fn": CORRECTED | {f"{name}_type": kind, f"{name}_ratio": high, f"{name}_ratio_min": low}}


ASYNC = {
    "grpo": {"async_grpo": {"enabled": True}},
    "loss_fn": CORRECTED,
    "policy": {"generation": {"vllm_cfg": {"async_engine": True}}},
}
PLANE = {"data_plane": {"enabled": True, "impl": "transfer_queue"}}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "v2": {"policy": V2},
    "dynamic batches": {"policy": {"dynamic_batching": {"enabled": True}}},
    "packed": {"policy": PACKED},
    "packed v2": {"policy": V2 | PACKED},
    "two updates": {"policy": {"train_global_batch_size": 4}},
    "two updates, packed": {"policy": {"train_global_batch_size": 4, **PACKED}},
    "bfloat16": {"policy": {"precision": "bfloat16"}},
    "corrected": {"loss_fn": CORRECTED},
    "tis": _truncated("tis", 1.002),
    "icepop": _truncated("icepop", 1.01, 0.99),
    "seq-mask-tis": _truncated("seq-mask-tis", 1.002, 0.999),
    "sequence level": {"loss_fn": CORRECTED | {"sequence_level_importance_ratios": True, "token_level_loss": False}},
    "dual clip": {"loss_fn": {"ratio_clip_c": 3.0}, "policy": {"train_global_batch_size": 4}},
    "sequence error filter": {"grpo": {"seq_logprob_error_threshold": 1.015}},
    "async": ASYNC,
    "data plane": PLANE,
    "data plane, packed": {**PLANE, "policy": PACKED},
}
ABSENT: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "on-policy ratio": ({"loss_fn": {"force_on_policy_ratio": True}}, ("old_logprobs",)),
    "no reference": (
        {"grpo": {"skip_reference_policy_logprobs_calculation": True}, "loss_fn": {"reference_policy_kl_penalty": 0.0}},
        ("reference_logprobs",),
    ),
}


@pytest.fixture(scope="module")
def module() -> Iterator[Any]:
    """NeMo-RL's modules, by their names within it."""
    with places.importable() as named:
        for name in ("algorithms.grpo", "algorithms.async_utils", "utils.logger"):  # what they import may draw
            named(name)
        yield named


@pytest.mark.parametrize("name", SETTINGS)
def test_what_nemo_rl_holds_is_recorded_and_its_training_is_bit_identical(
    tmp_path: Path, module: Any, name: str
) -> None:
    trace = driving.drive(tmp_path / "run", tmp_path / "on", module, options={"strict": True}, **SETTINGS[name])
    assert trace["refused"] is None and trace["finished"]
    checks.assert_held(trace, tmp_path / "run")
    checks.assert_logged(trace, tmp_path / "run", ratioscope.open_run(tmp_path / "run").info["config"])
    checks.assert_same(trace, driving.drive(None, tmp_path / "off", module, **SETTINGS[name]))


@pytest.mark.parametrize("name", ABSENT)
def test_zeros_that_nemo_rl_fills_in_are_not_recorded(tmp_path: Path, module: Any, name: str) -> None:
    settings, absent = ABSENT[name]
    trace = driving.drive(tmp_path / "run", tmp_path / "on", module, options={"strict": True}, **settings)
    checks.assert_held(trace, tmp_path / "run", absent=absent)
    checks.assert_same(trace, driving.drive(None, tmp_path / "off", module, **settings))


@pytest.mark.parametrize("name", ["plain", "async"])
def test_rewards_groups_versions_and_cuts_are_nemo_rls(tmp_path: Path, module: Any, name: str) -> None:
    trace = driving.drive(tmp_path / "run", tmp_path / "on", module, options={"strict": True}, **SETTINGS[name])
    facts, _ = checks.records(tmp_path / "run")
    for step, dump in enumerate(trace["dumps"], 1):
        lines = [{key: value[0] for key, value in json.loads(line).items() if key != "idx"} for line in dump.open()]
        mine = [row for row in facts if row["step"] == step]
        for line in lines:
            (row,) = (row for row in mine if [*row["prompt_ids"], *row["token_ids"]] == _sequence(line))
            assert row["reward"] == pytest.approx(line["rewards"]) and row["trainer_version"] == step - 1
            assert (row["finish_reason"] == "truncated") == (line["sample_loss_mask"] == 0)
            line["group"] = row["group_id"]
        groups = {line["group"]: tuple(_sequence(line)[:3]) for line in lines}
        assert len(groups) == driving.PROMPTS == len(set(groups.values()))
        lags = {row["trainer_version"] - row["rollout_version_max"] for row in mine}
        assert lags == ({1} if name == "async" and step > 1 else {0})


def _sequence(line: dict[str, Any]) -> list[int]:
    end = len(line["token_loss_mask"]) - line["token_loss_mask"][::-1].index(1)
    found: list[int] = line["token_ids"][:end]
    return found


def test_the_dumps_that_nemo_rl_writes_are_imported_to_the_rows_that_the_adapter_records(
    tmp_path: Path, module: Any
) -> None:
    trace = driving.drive(tmp_path / "run", tmp_path / "on", module, options={"strict": True})
    code, rows = imported(trace["dumps"][0].parent, tmp_path / "imported")
    facts, _ = checks.records(tmp_path / "run")
    names = (
        "step",
        "prompt_ids",
        "token_ids",
        "rollout_logprobs",
        "old_logprobs",
        "advantages",
        "mask",
        "loss_mask",
        "reward",
    )
    assert code == 0
    kept = [sorted(repr([row[name] for name in names]) for row in each) for each in (rows, facts)]
    assert kept[0] == kept[1] and len(rows) == 3 * driving.ROWS


EACH = ratioscope.SelfNoise(every=1, sequences=2)


def drawing(monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> None:
    """Has the workers' forward draw from every source, as dropout does. fails: and raise in a second forward."""
    transformers: Any = pytest.importorskip("transformers")
    own = transformers.Qwen2ForCausalLM.forward

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        rows = named["input_ids"] if "input_ids" in named else given[0]
        is_workers = rows.shape[0] > 1 or self.dtype == torch.float32  # the engine's is in bfloat16
        drawn = random.random() + float(np.random.rand()) + float(torch.rand(())) if is_workers else 0.0  # noqa: NPY002
        if fails and is_workers and rows.shape[0] == 1:
            raise torch.OutOfMemoryError("out of memory")
        found = own(self, *given, **named)
        found.logits = found.logits * (1 + drawn / 100)
        return found

    monkeypatch.setattr(transformers.Qwen2ForCausalLM, "forward", forward)


@pytest.mark.parametrize("name", ["plain", "v2", "packed", "dynamic batches", "async"])
def test_a_second_forward_is_recorded_and_leaves_training_bit_identical(
    tmp_path: Path, module: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    drawing(monkeypatch)
    options = {"strict": True, "self_noise": EACH}
    trace = driving.drive(tmp_path / "run", tmp_path / "on", module, options=options, **SETTINGS[name])
    checks.assert_same(trace, driving.drive(None, tmp_path / "off", module, **SETTINGS[name]))
    run = ratioscope.open_run(tmp_path / "run")
    found = run.metrics((), gap="old:trainer_again")
    assert run.readings["trainer_again"].steps == (1, 2, 3) and found["old:trainer_again/sequences"].item() == 6
    assert 1e-4 < found["old:trainer_again/max_abs_log_ratio"].item() < 0.5


def test_the_second_forward_of_the_same_weights_is_old_but_for_rounding(tmp_path: Path, module: Any) -> None:
    options = {"strict": True, "self_noise": EACH}
    driving.drive(tmp_path / "run", tmp_path / "on", module, options=options)
    found = ratioscope.open_run(tmp_path / "run").metrics((), gap="old:trainer_again")
    assert found["old:trainer_again/tokens"].item() > 20
    assert 0 < found["old:trainer_again/max_abs_log_ratio"].item() < 1e-5


def test_a_second_forward_that_fails_changes_nothing_and_is_the_last(
    tmp_path: Path, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing(monkeypatch, fails=True)
    trace = driving.drive(tmp_path / "run", tmp_path / "on", module, options={"self_noise": EACH})
    checks.assert_same(trace, driving.drive(None, tmp_path / "off", module))
    run = ratioscope.open_run(tmp_path / "run")
    (note,) = run.events.filter(event="self_noise")["note"].to_list()
    assert "failed once with" in note and "out of memory" in note and not run.readings


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (ABSENT["on-policy ratio"][0], "computes no old log-probs"),
        ({"policy": {"logprob_batch_size": 1}}, "hold one sequence"),
        (PLANE, "into the data plane"),
    ],
    ids=["on-policy ratio", "alone", "data plane"],
)
def test_settings_that_cannot_be_read_again_are_told(
    tmp_path: Path, module: Any, settings: dict[str, Any], wanted: str
) -> None:
    options = {"strict": True, "self_noise": EACH}
    driving.drive(tmp_path / "run", tmp_path / "on", module, options=options, **settings)
    run = ratioscope.open_run(tmp_path / "run")
    (note,) = run.events.filter(event="self_noise")["note"].to_list()
    assert wanted in note and not run.readings
