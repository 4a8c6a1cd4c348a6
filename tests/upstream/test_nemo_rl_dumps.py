"""What NeMo-RL's own logger and replay buffer write is imported to what was put into them.

Needs a checkout of NVIDIA-NeMo/RL in a folder of SOURCES, tested with 7ea279ab of 2026-08-22. Stood in for: Ray, the data plane,
trackers, and what the buffer of the SingleController imports.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.hollow import Hollow, hollow
from support.imported import imported, rejected
from support.sources import on_path

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

ABSENT = (
    "ray", "wandb", "prometheus_client", "mlflow", "swanlab", "matplotlib", "torchdata", "tensordict", "transformers",
    "omegaconf", "hydra", "nemo_rl.data_plane", "nemo_rl.data.datasets", "nemo_rl.utils.r3_trace", "nemo_rl.models",
    "nemo_rl.environments", "nemo_rl.experience.payload", "nemo_rl.experience.interfaces",
    "nemo_rl.algorithms.async_utils.trajectory_collector", "nemo_rl.distributed.worker_groups",
    "nemo_rl.distributed.virtual_cluster", "nemo_rl.distributed.ray_actor_environment_registry",
)  # fmt: skip


@pytest.fixture
def nemo_rl(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", Hollow("torch.utils.tensorboard"))
    with on_path("nemo_rl"), hollow(ABSENT, "nemo_rl") as imports:
        imports.put("matplotlib", pyplot=Hollow("matplotlib.pyplot"))
        imports.put("ray", remote=lambda made=None, **asked: made or (lambda later: later))
        buffer = import_module("nemo_rl.algorithms.async_utils.replay_buffer")
        batch = import_module("nemo_rl.distributed.batched_data_dict").BatchedDataDict
        yield SimpleNamespace(buffer=buffer, batch=batch, logger=import_module("nemo_rl.utils.logger").Logger)


def _messages(group: int, place: int) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "q", "token_ids": torch.tensor([1, 2, 3 + group])},
        {"role": "assistant", "content": "history", "token_ids": torch.tensor([4])},
        {"role": "assistant", "content": "a", "token_ids": torch.tensor([10 + place, 11]),
         "generation_logprobs": torch.tensor([-0.1 * (group + 1), -0.2 * (place + 1)])},
        {"role": "environment", "content": "e", "token_ids": torch.tensor([7])},
        {"role": "assistant", "content": "b", "token_ids": torch.tensor([9]), "generation_logprobs": torch.tensor([-0.5])},
        {"role": "environment", "content": "end", "token_ids": torch.tensor([8, 8])},
    ]  # fmt: skip


VERSIONS, TARGETS = [3, 3, 4], [4, 5, 5]


def test_groups_of_the_replay_buffer_have_the_versions_that_they_were_added_with(nemo_rl: Any, tmp_path: Path) -> None:
    buffer = nemo_rl.buffer.ReplayBufferImpl(max_size=8, drop_incomplete_targets_on_restore=False)
    for group, (version, target) in enumerate(zip(VERSIONS, TARGETS, strict=True)):
        batch = nemo_rl.batch({
            "message_log": [_messages(group, place) for place in range(2)], "total_reward": torch.tensor([1.0, 0.0]),
            "loss_multiplier": torch.tensor([1.0, float(group != 1)]), "idx": [group, group], "extra_env_info": [{}, {}],
        })  # fmt: skip
        group_of_prompts = {"batch": batch, "rollout_metrics": {"turns": 2.0}, "timestamp": 1000.5 + group}
        assert buffer.add(group_of_prompts, version, target) == "success"
    (tmp_path / "step_4").mkdir()
    assert buffer.save_to_path(str(tmp_path / "step_4" / "replay_buffer.pt")) == 3
    code, rows = imported(tmp_path / "step_4", tmp_path / "run")
    assert code == 0 and [row["step"] for row in rows] == [4, 4, 5, 5, 5, 5]
    assert [row["rollout_version_min"] for row in rows] == [3, 3, 3, 3, 4, 4]
    assert [row["reward"] for row in rows] == [1.0, 0.0] * 3
    assert [any(row["loss_mask"]) for row in rows] == [True, True, True, False, True, True]
    for row, (group, place) in zip(rows, [(g, p) for g in range(3) for p in range(2)], strict=True):
        assert row["prompt_ids"] == [1, 2, 3 + group, 4], "an answer of the history was not sampled"
        assert row["token_ids"] == [10 + place, 11, 7, 9] and row["mask"] == [True, True, False, True]
        assert row["turn"] == [0, 0, 1, 1]
        wanted = np.asarray([-0.1 * (group + 1), -0.2 * (place + 1), np.nan, -0.5], np.float32)
        assert np.array_equal(np.float32(row["rollout_logprobs"]), wanted, equal_nan=True)


def test_rows_of_the_logger_are_cut_to_the_sampled_tokens(nemo_rl: Any, tmp_path: Path) -> None:
    mask = torch.tensor([[0, 0, 1, 1, 0, 1, 0], [0, 1, 1, 0, 0, 0, 0]])
    held = nemo_rl.batch({
        "content": [["q", "a"], ["q", "b"]], "rewards": torch.tensor([1.0, 0.0]), "input_lengths": torch.tensor([6, 3]),
        "token_ids": torch.arange(14).reshape(2, 7), "token_loss_mask": mask, "sample_loss_mask": torch.tensor([1.0, 0.0]),
        "advantages": torch.ones(2, 7), "generation_logprobs": -torch.arange(14.0).reshape(2, 7) / 8 * mask,
        "prev_logprobs": torch.tensor([[-0.5] * 7, [float("nan"), float("-inf"), -1.0, 0, 0, 0, 0]]),
    })  # fmt: skip
    logger = nemo_rl.logger.__new__(nemo_rl.logger)
    logger.base_log_dir = str(tmp_path)
    logger.log_batched_dict_as_jsonl(held, "train_data_step7.jsonl")
    code, rows = imported(tmp_path / "train_data_step7.jsonl", tmp_path / "run")
    assert code == 0 and not rejected(tmp_path / "run") and [row["step"] for row in rows] == [7, 7]
    assert [row["token_ids"] for row in rows] == [[2, 3, 4, 5], [8, 9]]
    assert [row["prompt_ids"] for row in rows] == [[0, 1], [7]]
    assert rows[0]["rollout_logprobs"] == [-0.25, -0.375, 0.0, -0.625] and rows[0]["mask"] == [True, True, False, True]
    assert rows[1]["old_logprobs"] == [-np.inf, -1.0] and rows[1]["loss_mask"] == [False, False]
