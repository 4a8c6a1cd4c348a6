"""AReaL 1.0.4 itself beside our dialect on random and on hard inputs: every exported number, the loss, what it refuses.

Needs an importable areal 1.0.4 (its actor module needs aiohttp, omegaconf, hydra-core, ray and a dozen smaller packages,
no GPU): put it on PYTHONPATH. Skipped otherwise; `pytest -m upstream` runs nothing else.
"""

from typing import Any

import numpy as np
import pytest
from support.dialect_golden import differences

from ratioscope.errors import ConfigError, SchemaError
from ratioscope.metrics.dialects import areal

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="AReaL runs on torch")
actor = pytest.importorskip("areal.trainer.ppo.actor", reason="the areal package is not importable here")

PREFIX = "ppo_actor/update/"
RATIO = {"metric": "ratio", "upper": 1.2, "lower": 0.8}
CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"use_decoupled_loss": False},
    {"use_decoupled_loss": False, "recompute_logprob": True},
    {"m2_threshold": 0.01},
    {"prox_logp_method": "loglinear"},
    {"prox_logp_method": "metrics", "rejection_sampling": {"upper": 1.5}},
    {"use_sapo_loss": True, "sapo_tau_neg": 2.0},
    {"c_clip": 3.0, "eps_clip_higher": 0.28, "rejection_sampling": {"action": "clamp", "upper": 1.1}},
    *(
        {
            "importance_sampling_level": ppo,
            "rejection_sampling": {**RATIO, "level": level, "action": action, "agg": agg},
        }
        for ppo in ("token", "sequence")
        for level, agg in (("token", "mean"), ("sequence", "mean"), ("sequence", "sum"), ("sequence", "max"))
        for action in ("mask", "clamp")
    ),
    *(
        {"rejection_sampling": {"level": level, "metric": metric, "agg": agg, "upper": upper, "lower": lower}}
        for metric, upper, lower in (("kl_k1", 0.1, -0.1), ("kl_k2", 0.01, None), ("kl_k3", 0.01, 0.0))
        for level, agg in (("token", "mean"), ("sequence", "mean"), ("sequence", "sum"), ("sequence", "max"))
    ),
)
SHAPES = ((1, 1), (5, 1), (4, 12), (6, 200))
NOISES = ("1e-4", "0.2", "thirty", "rollout not finite", "old not finite")


def hard_batch(shape: tuple[int, int], noise: str, seed: int) -> dict[str, Any]:
    """Random float32 log-probs; a mask with holes and an empty row; versions 3 to 7, -1 at masked tokens."""
    rng = np.random.default_rng(seed)
    rollout = -rng.exponential(1.0, shape)
    old = rollout + (1e-4 if noise == "1e-4" else 0.2) * rng.standard_normal(shape)
    if noise == "thirty":
        old = np.where(rng.random(shape) < 0.1, rollout + rng.choice([-30, 30], shape), old)
    current = old + 0.1 * rng.standard_normal(shape)
    if noise.endswith("not finite"):
        (rollout if noise.startswith("rollout") else old)[0, -1] = rng.choice([np.nan, -np.inf])
    mask = rng.random(shape) < 0.8
    mask[-1] = shape[0] == 1
    return {
        "rollout_logprobs": rollout.astype(np.float32),
        "old_logprobs": old.astype(np.float32),
        "current_logprobs": current.astype(np.float32),
        "mask": mask,
        "advantages": rng.standard_normal(shape).astype(np.float32),
        "versions": np.where(mask, rng.integers(3, 8, shape), -1).astype(np.int32),
        "current_version": 7,
    }


def areal_itself(batch: dict[str, Any], config: dict[str, Any]) -> dict[str, float]:
    """What areal's loss function records for the batch, under its names; ValueError and RuntimeError are its own."""
    given = dict(config)
    block, decoupled = given.pop("rejection_sampling", None), given.pop("use_decoupled_loss", None)
    recomputed = given.pop("recompute_logprob", False)
    data = {name: torch.tensor(batch[name]) for name in ("advantages", "versions")}
    data["loss_mask"] = torch.tensor(batch["mask"]).float()
    old = batch["old_logprobs"] if decoupled is not False or recomputed else batch["rollout_logprobs"]
    if given.get("use_sapo_loss"):
        old = batch["rollout_logprobs"]
    data["logprobs"] = torch.tensor(old if recomputed else batch["rollout_logprobs"])
    if given.get("prox_logp_method") != "loglinear":
        data["prox_logp"] = torch.tensor(old)
    actor.stats_tracker.export_all()
    loss = actor.grpo_loss_fn(
        torch.tensor(batch["current_logprobs"]),
        torch.zeros(batch["mask"].shape),
        data,
        eps_clip=given.pop("eps_clip", 0.2),
        eps_clip_higher=given.pop("eps_clip_higher", None),
        c_clip=given.pop("c_clip", None),
        rejection_sampling=None if block is None else actor.RejectionSamplingConfig(**block),
        current_version=batch["current_version"],
        **given,
    )
    recorded = {k: v for k, v in actor.stats_tracker.export_all().items() if not k.endswith("__count")}
    return {PREFIX + name: value for name, value in {**recorded, "loss": float(loss)}.items()}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_exported_number_is_areals_own(config: dict[str, Any], shape: tuple[int, int], noise: str) -> None:
    batch = hard_batch(shape, noise, seed=len(str(config)) + shape[1])
    try:
        wanted = areal_itself(batch, config)
    except RuntimeError:
        with pytest.raises(SchemaError, match="AReaL stops the run there"):
            areal.evaluate(batch, config, version="1.0.4")
        return
    found = areal.evaluate(batch, config, version="1.0.4").metrics
    assert not differences(found, wanted, rtol=1e-3, atol=3e-6)  # float32 sums and ratios of exp(30) upstream
    assert set(found) == set(wanted)


@pytest.mark.parametrize(
    "block",
    (
        {"level": "group"},
        {"action": "drop"},
        {"metric": "binary_kl"},
        {"agg": "median"},
        {"upper": 0.5},
        {"lower": 9.0},
        {"lower": 0.0},
        {"metric": "kl_k2", "upper": 0.0},
        {"metric": "kl_k3", "upper": -1.0},
        {"metric": "kl_k1", "action": "clamp"},
    ),
    ids=str,
)
def test_what_its_configuration_rejects_ours_rejects(block: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        actor.RejectionSamplingConfig(**block)
    with pytest.raises(ConfigError):
        areal.parse({"rejection_sampling": block}, "1.0.4")
