"""TRL 1.16 itself beside our dialect: its trainer on a generation batch of hard log-probs, its loss on hard tensors."""

import os
from collections import defaultdict
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pytest
import torch
from support import tiny_trl
from support.dialect_golden import differences

from ratioscope.errors import ConfigError
from ratioscope.metrics.dialects import trl

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing`:FutureWarning:transformers"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
]

GRPOTrainer: Any = tiny_trl.trl.GRPOTrainer
GRPOConfig: Any = tiny_trl.trl.GRPOConfig

MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
BOUNDS = ((None, 3.0), (0.5, 1.5), (0.9, None), (0.0, 1.0))


class NoisyRollout(tiny_trl.Rollout):
    """Log-probs far from the trainer's, some missing, one sequence without any."""

    def __call__(self, prompts: Any, trainer: Any) -> dict[str, Any]:
        result, rng = super().__call__(prompts, trainer), np.random.default_rng(4)
        for index, logprobs in enumerate(result["logprobs"]):
            noise = rng.normal(0, (0.1, 0.5, 10.0)[index % 3], len(logprobs))
            noisy = [p + n if rng.random() < 0.9 else None for p, n in zip(logprobs, noise, strict=True)]
            result["logprobs"][index] = [None] * len(noisy) if index == 2 else noisy
        return result


@pytest.fixture(scope="module")
def trainer() -> Iterator[Any]:
    with TemporaryDirectory() as folder:
        made = tiny_trl.make_trainer(folder, mask_truncated_completions=True)
        made.use_vllm, made.vllm_mode, made._last_loaded_step = True, "colocate", -1
        made.vllm_generation = SimpleNamespace(sync_weights=lambda: None)
        made.rollout_func = NoisyRollout(env_mask=True)
        yield made


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_ratio_and_sampling_metrics_are_the_trainers_own(trainer: Any, mode: str, bounds: tuple[Any, Any]) -> None:
    low, high = bounds
    settings = {
        "vllm_importance_sampling_mode": mode,
        "vllm_importance_sampling_clip_min": low,
        "vllm_importance_sampling_clip_max": high,
    }
    for name, value in settings.items():
        setattr(trainer, name, value)
    prompts = [{"prompt": prompt} for prompt in tiny_trl.PROMPTS for _ in range(4)]
    held = trainer._generate_and_score_completions(prompts)
    batch = {
        "rollout_logprobs": held["sampling_per_token_logps"].numpy(),
        "old_logprobs": held["old_per_token_logps"].numpy(),
        "current_logprobs": held["old_per_token_logps"].numpy(),
        "mask": (held["completion_mask"] * held["tool_mask"]).numpy(),
        "advantages": held["advantages"].numpy(),
    }
    found = trl.evaluate(batch, {"use_vllm": True, **settings})
    logged = {k: v[-1] for k, v in trainer._metrics["train"].items() if k.startswith("sampling/")}
    assert len(logged) == 5
    assert not differences(found.metrics, logged, rtol=1e-5)
    ratio = found.arrays["importance_sampling_ratio"]
    np.testing.assert_allclose(ratio, held["importance_sampling_ratio"].numpy(), rtol=1e-5)
    assert found.weights is not None
    np.testing.assert_array_equal(found.weights, ratio * (batch["mask"] if mode.startswith("token") else 1))


def hard_inputs(rows: int, positions: int, seed: int) -> dict[str, Any]:
    """What the loss reads, as tensors, under TRL's names; a mask with holes, sometimes an empty row."""
    rng = np.random.default_rng(seed)
    shape = (rows, positions)
    rollout = -rng.exponential(1.0, shape)
    old = rollout + rng.normal(0, 0.2, shape)
    arrays = {
        "sampling_per_token_logps": np.where(rng.random(shape) < 0.1, np.nan, rollout),
        "old_per_token_logps": old,
        "ref_per_token_logps": old + rng.normal(0, 0.2, shape),
        "current": old + rng.normal(0, (0.05, 0.3, 5.0)[seed % 3], shape),
        "entropy": rng.exponential(1.0, shape),
        "advantages": rng.normal(0, 1, rows) * (rng.random(rows) < 0.8),
    }
    held = {name: torch.tensor(value, dtype=torch.float32) for name, value in arrays.items()}
    mask = rng.random(shape) < 0.8
    mask[-1] &= rows == 1 or seed % 2 == 0
    held["completion_mask"] = torch.tensor(mask).long()
    held["num_items_in_batch"] = held["completion_mask"].sum()
    return held


LOSSES: tuple[dict[str, Any], ...] = (
    *({"loss_type": loss} for loss in ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo")),
    *(
        {"loss_type": loss, "importance_sampling_level": "sequence"}
        for loss in ("grpo", "dapo", "luspo", "cispo", "sapo")
    ),
    {"loss_type": "vespo", "vllm_importance_sampling_mode": "token_mask"},
    {"loss_type": "vespo", "use_vllm": False, "vespo_k_neg": 1.0},
    {"epsilon": 0.1, "epsilon_high": 0.28, "delta": 1.5},
    {"beta": 0.1},
    {"beta": 0.1, "use_bias_correction_kl": False, "importance_sampling_level": "sequence", "loss_type": "grpo"},
    {"off_policy_mask_threshold": 0.05},
    {"off_policy_mask_threshold": 0.05, "use_vllm": False},
    {"top_entropy_quantile": 0.3},
    {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 1.1},
    {"vllm_importance_sampling_mode": "sequence_mask", "vllm_importance_sampling_clip_min": 0.5},
)


@pytest.mark.parametrize("shape", ((1, 1), (3, 7), (4, 40)), ids=str)
@pytest.mark.parametrize("config", LOSSES, ids=str)
def test_loss_and_clip_shares_are_the_trainers_own(config: dict[str, Any], shape: tuple[int, int]) -> None:
    for seed in range(6):
        held = hard_inputs(*shape, seed)
        batch = {
            "old_logprobs": held["old_per_token_logps"].numpy(),
            "current_logprobs": held["current"].numpy(),
            "mask": held["completion_mask"].numpy(),
            "advantages": held["advantages"].numpy(),
            "entropy": held["entropy"].numpy(),
            "reference_logprobs": held["ref_per_token_logps"].numpy(),
            "rollout_logprobs": held["sampling_per_token_logps"].numpy(),
        }
        found = trl.evaluate(batch, config)
        wanted = trl_itself(held, config, found.arrays.get("importance_sampling_ratio"))
        assert not differences(found.metrics, wanted, rtol=2e-5, atol=1e-6), seed  # float32 sums upstream
        assert set(wanted) == {name for name in found.metrics if not name.startswith("sampling/")}


def trl_itself(held: dict[str, Any], config: dict[str, Any], ratio: Any) -> dict[str, float]:
    """What the trainer's own `_compute_loss` logs and returns, on an object that holds only what it reads."""
    arguments = SimpleNamespace(
        **{name: config.get(name, getattr(trl.parse({}), name)) for name in vars(trl.parse({}))}
    )
    arguments.steps_per_generation = 1
    one = SimpleNamespace(
        num_processes=1,
        reduce=lambda value, reduction: value,
        gather=lambda value: value,
        pad_across_processes=lambda value, dim, pad_index: value,
    )
    logged = defaultdict[str, list[float]](list)
    stand_in = SimpleNamespace(
        **{
            **vars(arguments),
            "args": arguments,
            "accelerator": one,
            "model": SimpleNamespace(training=True),
            "epsilon_low": arguments.epsilon,
            "epsilon_high": arguments.epsilon if arguments.epsilon_high is None else arguments.epsilon_high,
            "use_vllm": config.get("use_vllm", True),
            "current_gradient_accumulation_steps": 1,
            "aux_loss_enabled": False,
            "_entropy_bonus_enabled": False,
            "_get_per_token_logps_and_entropies": lambda *_, **__: (held["current"], held["entropy"], None),
            "_metrics": {"train": logged},
            "get_off_policy_mask": GRPOTrainer.get_off_policy_mask,
            "get_gamma_weights": GRPOTrainer.get_gamma_weights,
            "get_high_entropy_mask": lambda *values: GRPOTrainer.get_high_entropy_mask(SimpleNamespace(accelerator=one), *values),
        }
    )  # fmt: skip
    empty = torch.zeros(len(held["current"]), 0, dtype=torch.long)
    inputs = {**held, "prompt_ids": empty, "prompt_mask": empty, "completion_ids": held["completion_mask"]}
    if ratio is not None:
        inputs["importance_sampling_ratio"] = torch.tensor(ratio)
    loss = GRPOTrainer._compute_loss(stand_in, None, inputs)
    valid = {name: [value for value in values if not np.isnan(value)] for name, values in logged.items()}
    return {name: values[0] for name, values in valid.items() if values} | {"loss": float(loss)}


REJECTED: tuple[dict[str, Any], ...] = (
    {"vllm_importance_sampling_clip_min": 3.0},
    {"vllm_importance_sampling_clip_min": 5.0, "vllm_importance_sampling_mode": "token_mask"},
    {"vllm_importance_sampling_clip_max": None, "vllm_importance_sampling_mode": "token_truncate"},
)


@pytest.mark.parametrize("config", REJECTED, ids=str)
def test_what_its_configuration_rejects_ours_rejects(config: dict[str, Any], tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="vllm_importance_sampling_clip"):
        GRPOConfig(output_dir=str(tmp_path), bf16=False, use_cpu=True, **config)
    with pytest.raises(ConfigError, match="vllm_importance_sampling_clip"):
        trl.parse(config)


def test_defaults_are_the_packages_own(tmp_path: Any) -> None:
    theirs, ours = GRPOConfig(output_dir=str(tmp_path), bf16=False, use_cpu=True), trl.parse({})
    names = [name for name in vars(ours) if name not in ("warnings", "use_vllm")]
    assert {name: getattr(ours, name) for name in names} == {name: getattr(theirs, name) for name in names}
