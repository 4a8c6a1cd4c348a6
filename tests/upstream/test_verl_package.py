"""verl itself beside our dialect on random and on hard inputs: masks, weights, metrics, losses.

Needs an importable verl 0.9.1 (its helper needs tensordict, ray, hydra-core, codetiming, orjson and no GPU): put it on
PYTHONPATH. Skipped otherwise; `pytest -m upstream` runs nothing else.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.dialect_golden import differences

from ratioscope.metrics.dialects import verl

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="verl runs on torch")
helper = pytest.importorskip("verl.trainer.ppo.rollout_corr_helper", reason="the verl package is not importable here")

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    **verl.PRESETS,
    "tight icepop normalised": {
        "rollout_is": "token",
        "rollout_is_threshold": "0.9_1.1",
        "rollout_is_batch_normalize": True,
    },
    "sequence normalised": {
        "rollout_is": "sequence",
        "rollout_is_threshold": "1.5",
        "rollout_is_batch_normalize": True,
    },
    "every divergence": {
        "rollout_rs": "token_k1,token_k2,token_k3,seq_sum_k1,seq_sum_k2,seq_sum_k3,seq_mean_k1,seq_mean_k2,seq_mean_k3,"
        "seq_max_k2,seq_max_k3",
        "rollout_rs_threshold": "0.7_1.5,0.1,0.1,0.5_2.0,0.5,0.5,0.97_1.02,0.02,0.02,0.2,0.2",
    },
    "nan cap": {"rollout_is": "token", "rollout_is_threshold": "nan"},
}
SHAPES = ((1, 1), (1, 7), (5, 1), (4, 12), (7, 64), (3, 700))
NOISES = ("zero", "1e-4", "0.01", "0.2", "heavy", "thirty", "bfloat16", "not finite")


def hard_batch(shape: tuple[int, int], noise: str, seed: int) -> dict[str, Any]:
    """Random log-probs with a mask of suffixes, holes and empty rows, at least one token valid; float32."""
    rng = np.random.default_rng(seed)
    rollout = -rng.exponential(1.0, shape)
    spread = {"zero": 0.0, "1e-4": 1e-4, "0.01": 0.01, "bfloat16": 0.01, "not finite": 0.1}.get(noise, 0.2)
    old = rollout + spread * (rng.standard_t(2, shape) if noise == "heavy" else rng.standard_normal(shape))
    mask = (np.arange(shape[1]) < rng.integers(0, shape[1] + 1, (shape[0], 1))) & (rng.random(shape) > 0.1)
    mask[rng.integers(shape[0]), rng.integers(shape[1])] = True
    arrays = {
        "rollout_logprobs": rollout,
        "old_logprobs": old,
        "current_logprobs": old + 0.1 * rng.standard_normal(shape),
    }
    if noise == "thirty":
        old[rng.random(shape) < 0.1] += 30.0
        old[rng.random(shape) < 0.1] -= 30.0
    if noise == "not finite":
        rollout[rng.random(shape) < 0.05] = -np.inf
        old[rng.random(shape) < 0.05] = np.nan
    arrays = {name: value.astype(np.float32) for name, value in arrays.items()}
    if noise == "bfloat16":
        arrays = {name: torch.from_numpy(value).bfloat16().float().numpy() for name, value in arrays.items()}
    return arrays | {"mask": mask, "advantages": rng.standard_normal(shape).astype(np.float32)}


def tensors(batch: Mapping[str, Any], dtype: Any) -> SimpleNamespace:
    """The batch for verl, log-probs of one dtype; Any: torch has no types here."""
    made = {name: torch.from_numpy(value).to(dtype) for name, value in batch.items() if name != "mask"}
    return SimpleNamespace(**made, mask=torch.from_numpy(batch["mask"]).float())


def correction(batch: Mapping[str, Any], config: Mapping[str, Any], dtype: Any) -> tuple[Any, Any, dict[str, float]]:
    """verl's weights (None without), mask and metrics."""
    given, names = tensors(batch, dtype), ("bypass_mode", "loss_type", "_target_")
    arguments = {name: value for name, value in config.items() if name not in names}
    weights, mask, metrics = helper.compute_rollout_correction_and_rejection_mask(
        given.old_logprobs, given.rollout_logprobs, given.mask, **arguments
    )
    return None if weights is None else weights.batch["rollout_is_weights"].numpy(), mask.bool().numpy(), metrics


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", CONFIGS)
def test_correction_is_verls_own(name: str, noise: str) -> None:
    for seed, shape in enumerate(SHAPES):
        batch = hard_batch(shape, noise, seed)
        found = verl.evaluate(batch, CONFIGS[name], kind="rollout_correction")
        try:
            weights, mask, _ = correction(batch, CONFIGS[name], torch.float32)
            _, _, exact = correction(batch, CONFIGS[name], torch.float64)
        except ZeroDivisionError:  # verl's effective sample size of weights that are all 0
            assert found.metrics["rollout_corr/rollout_is_eff_sample_size"] == 0.0
            continue
        assert np.array_equal(found.mask, mask)
        if weights is None:
            assert found.weights is None
        else:
            assert found.weights is not None and found.weights.dtype == weights.dtype
            np.testing.assert_allclose(found.weights, weights, rtol=2e-5)
        # sqrt of float64's rounding, where a std is a difference of equal squares
        assert differences(found.metrics, exact, rtol=1e-7, atol={"_std": 3e-8, "": 1e-8}) == []
        assert found.metrics.keys() == exact.keys()


@pytest.mark.parametrize("noise", NOISES)
def test_probability_metrics_are_verls_own(noise: str) -> None:
    protocol = pytest.importorskip("verl.protocol")
    metrics = pytest.importorskip("verl.utils.debug.metrics")
    for seed, shape in enumerate(SHAPES):
        batch = hard_batch(shape, noise, seed)
        given = tensors(batch, torch.float64)
        data = protocol.DataProto.from_dict(
            tensors={
                "rollout_log_probs": given.rollout_logprobs,
                "old_log_probs": given.old_logprobs,
                "response_mask": given.mask,
                "responses": torch.zeros(shape),
            }
        )
        wanted = metrics.calculate_debug_metrics(data)
        found = verl.evaluate(batch, kind="debug_metrics").metrics
        assert differences(found, wanted, rtol=1e-7, atol={"pearson_corr": 1e-6, "": 1e-8}) == []


@pytest.mark.parametrize("name", [name for name in verl.PRESETS if name.startswith("bypass")])
def test_bypass_loss_is_verls_own(name: str) -> None:
    algorithms = pytest.importorskip("verl.trainer.ppo.core_algos")
    config = verl.PRESETS[name]
    for seed, shape in enumerate(SHAPES):
        for noise in ("0.01", "0.2", "thirty"):
            batch = hard_batch(shape, noise, seed)
            given = tensors(batch, torch.float64)
            try:
                loss, wanted = algorithms.compute_policy_loss_bypass_mode(
                    given.rollout_logprobs, given.current_logprobs, given.advantages, given.mask, config=actor(config)
                )
            except ZeroDivisionError:
                continue
            found = verl.evaluate(batch, config, kind="bypass_loss")
            assert differences(found.metrics, wanted, rtol=1e-7, atol={"_std": 3e-8, "": 1e-8}) == []
            assert differences(found.losses, {"pg_loss": loss.item()}, rtol=1e-6, atol=1e-8) == []


def actor(config: Mapping[str, Any]) -> Any:
    """As much of verl's actor configuration as its losses read; Any: verl has no types here."""

    class Actor(SimpleNamespace):
        def get(self, name: str, default: Any = None) -> Any:
            return getattr(self, name, default)

    return Actor(
        clip_ratio=0.2,
        clip_ratio_low=0.2,
        clip_ratio_high=0.2,
        clip_ratio_c=3.0,
        global_batch_info={},
        policy_loss={"rollout_correction": config},
    )
