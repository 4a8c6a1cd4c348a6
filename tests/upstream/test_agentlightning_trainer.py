"""Agent-Lightning's own trainer (1.0.2) is verl's to the adapter: its step on a CPU, with verl's own batches and losses.

Needs verl, as test_verl_adapter.py, and the unpacked wheel of agentlightning in a folder of SOURCES. Stood in for: its rollouts,
which come from agents behind a proxy, and its server's client.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.adapter_properties import differences
from support.hollow import hollow
from support.sources import on_path
from support.written_run import token_rows

import ratioscope
from ratioscope.collectors.trainers import adapter_named
from ratioscope.metrics.engines.join import joined

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="verl runs on torch")
OmegaConf: Any = pytest.importorskip("omegaconf").OmegaConf
driving: Any = pytest.importorskip("upstream.verl_drive", reason="verl is not importable here")


GROUPS = {f"task{prompt}" for prompt in range(driving.PROMPTS)}
COLUMNS = {
    "rollout_logprobs": "rollout_log_probs",
    "old_logprobs": "old_log_probs",
    "current_logprobs": "current_logprobs",
}
ABSENT = ("agentlightning.client", "agentlightning.hooks", "httpx", "httpx_retries", "kubernetes")


class AgentLightning(driving.Training):  # type: ignore[misc]
    """verl's tiny training, with Agent-Lightning's step."""

    def _trainer(self) -> Any:
        trainer = super()._trainer()
        trainer.__class__ = type("Tiny", (self.own,), {"_rollout": self._rolled_out})
        agents = {"async_rollout": {"enabled": False}, "max_ppo_update_times": None}
        OmegaConf.update(self.config, "agentlightning", agents)
        trainer.is_async, trainer._train_dataloader_iter, trainer.epoch = False, None, 0
        return trainer

    own: Any = None

    @staticmethod
    def _rolled_out(trainer: Any, gen_batch: Any, is_train: bool) -> Any:
        batch = trainer.async_rollout_manager.generate_sequences(gen_batch)
        batch.batch["token_level_scores"] = batch.batch.pop("rm_scores")
        rows = len(batch.batch)
        batch.non_tensor_batch["data_id_list"] = np.array([f"task{row // 2}" for row in range(rows)], dtype=object)
        return batch, {}

    def _fit(self) -> None:
        for step in range(1, self.steps + 1):
            self.trainer.global_steps = step
            metrics, _ = self.trainer._train_step({}, False)
            self.logged.append((step, metrics))


def train(run: Path | None) -> tuple[dict[str, Any], Any]:
    with on_path("agentlightning"), hollow(ABSENT, "agentlightning"):
        AgentLightning.own = import_module("agentlightning.verl.trainer").AgentLightningRayPPOTrainer
        training = AgentLightning(trainer="v0", steps=2)
        attachment = None if run is None else ratioscope.attach("verl", run, strict=True)
        trace = training.run()
        assert attachment is None or attachment.detach()
    return trace, training.trainer


def test_its_steps_are_recorded_as_verls_and_are_bit_identical(tmp_path: Path) -> None:
    (recorded, trainer), (plain, _) = train(tmp_path / "run"), train(None)
    for name in ("weights", "gradients", "losses", "rng", "held"):
        assert differences(recorded[name], plain[name]) == [], name
    verl = adapter_named("verl")
    assert verl is not None and verl.fits(trainer)
    rows = joined(token_rows(tmp_path / "run")).to_pylist()
    assert {row["step"] for row in rows} == {1, 2} and {row["group_id"] for row in rows if row["group_id"]} == GROUPS
    compared = dict.fromkeys(COLUMNS, 0)
    for row in rows:
        wanted = recorded["held"][0][row["step"], row["minibatch"], row["sequence_id"]]
        sampled = np.array(row["mask"])
        for ours, theirs in COLUMNS.items():
            if row[ours] is not None and theirs in wanted:
                assert np.array(row[ours])[sampled].tolist() == np.array(wanted[theirs])[sampled].tolist(), ours
                compared[ours] += 1
        assert row["trainer_version"] in (row["step"] - 1, None)
    assert set(compared.values()) == {2 * driving.PROMPTS * driving.SAMPLES}
    assert ratioscope.open_run(tmp_path / "run").policies == ("rollout", "old", "current")
