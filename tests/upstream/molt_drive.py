"""MOLT's own policy actor on a tiny model: its real loss, replay buffer, experiences and model wrapper, on the CPU.

What its modules import and this does not run (AutoModel, vLLM, torchdata, ...) is stood in for while they are imported. The
strategy is ours: one process, plain backward and optimizer. The sampler's distribution is the model's with noisy logits.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.hollow import hollow

import ratioscope

pytest.importorskip("ray", reason="MOLT's actors are Ray's")
pytest.importorskip("molt", reason="the molt-rl package is not importable here")

ABSENT = ("nemo_automodel", "vllm", "torchdata", "transformers", "datasets", "pylatexenc", "vllm_router")
SAMPLES, PER_PROMPT, MICRO_BATCH, PER_UPDATE = 8, 2, 2, 2
VOCABULARY, TEMPERATURE = 13, 0.8


class Strategy:
    """What the actor asks of the FSDP strategy, in one process."""

    def __init__(self, args: Any, *, cp_rank: int = 0) -> None:
        self.args, self._cp_rank = args, cp_rank
        self.cp_size, self.tp_size, self.dp_size = 2 if cp_rank else 1, 1, 1
        self.accumulated_gradient = PER_UPDATE
        self.losses: list[float] = []
        self.gradients: list[float] = []

    def _get_automodel_rank(self, name: str) -> int:
        return self._cp_rank

    def backward(self, loss: Any, model: Any, optimizer: Any, **_: Any) -> None:
        self.losses.append(float(loss.detach()))
        loss.backward()

    def optimizer_step(self, optimizer: Any, model: Any, scheduler: Any, **_: Any) -> None:
        self.gradients.append(float(sum(p.grad.square().sum() for p in model.parameters() if p.grad is not None)))
        optimizer.step()
        optimizer.zero_grad()

    def global_token_count(self, count: Any) -> Any:
        return count

    def compute_perf_metrics(self, *_: Any) -> dict[str, float]:
        return {}

    def all_reduce(self, data: Any, op: str = "mean") -> Any:
        return data

    def is_rank_0(self) -> bool:
        return True

    def get_grad_norm(self, model: Any) -> float:
        return self.gradients[-1]

    def print(self, *_: Any) -> None:
        pass


def arguments(*, correction: str, entropy: bool, epochs: int, top_k: int, on_policy: bool, frozen: int) -> Any:
    """The part of MOLT's arguments that the actor reads."""
    space = SimpleNamespace
    return space(
        algo=space(
            advantage=space(
                is_correction_level=correction, is_correction_mode="trunc" if correction == "token" else "mask",
                is_correction_gating="ratio", is_correction_threshold=[0.0, 2.0], estimator="gae" if frozen else "grpo",
                score_centering_top_k=top_k,
            ),
            kl=space(use_loss=True, init_coef=0.01, estimator="k3", ref="model"),
        ),
        actor=space(
            eps_clip_low_high=(0.2, 0.2), dual_clip=None, loss_mode="ppo", loss_agg_mode="token-mean", aux_loss_coef=0.0,
            entropy_coef=0.01 if entropy else None, freezing_steps=frozen,
        ),
        train=space(max_epochs=epochs, dynamic_batch_enable=False, force_on_policy=on_policy, batch_size=4),
        fsdp=space(tp_size=1, cp_size=1),
        vllm=space(sync_backend="nccl"),
        rollout=space(temperature=TEMPERATURE, n_samples_per_prompt=PER_PROMPT, batch_size=SAMPLES // PER_PROMPT),
    )  # fmt: skip


class Bigram(torch.nn.Module):
    """A model whose logits after a token are a row of its table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY))

    def forward(self, input_ids: Any, **_: Any) -> dict[str, Any]:
        return {"logits": self.table[input_ids]}


def model() -> Any:
    """MOLT's wrapper, made without its loading of checkpoints, around a table."""
    actor = import_module("molt.models").Actor.__new__(import_module("molt.models").Actor)
    torch.nn.Module.__init__(actor)
    actor.model = Bigram()
    for name, value in {"packing_samples": False, "cp_size": 1, "is_vlm": False, "temperature": TEMPERATURE}.items():
        setattr(actor, name, value)
    actor.routing_replay, actor._cp_sharder, actor._ep_pad_group = False, None, None
    return actor


def experience(actor: Any, *, with_rollout: bool, top_k: int, on_policy: bool) -> Any:
    """A step's samples as the controller sends them: padded on the right, prompts of unequal length, holes of tool tokens."""
    lengths = [10 + (5 * i) % 7 for i in range(SAMPLES)]
    width = max(lengths)
    sequences = torch.zeros(SAMPLES, width, dtype=torch.long)
    attention, action = torch.zeros_like(sequences), torch.zeros(SAMPLES, width - 1, dtype=torch.bool)
    for row, length in enumerate(lengths):
        prompt = 3 + (row // PER_PROMPT) % 3
        sequences[row, :length] = torch.randint(1, VOCABULARY, (length,))
        attention[row, :length] = 1
        action[row, prompt - 1 : length - 1] = True
        if row % 3 == 0:
            action[row, prompt + 1 : prompt + 3] = False
    with torch.no_grad():
        logits = actor.model(sequences)["logits"][:, :-1] / TEMPERATURE
    old, sampler = logits.log_softmax(-1), (logits + 0.1 * torch.randn_like(logits)).log_softmax(-1)
    picked = [each.gather(-1, sequences[:, 1:, None])[..., 0] * action for each in (old, sampler)]
    head = sampler.topk(max(top_k, 1), -1)
    ids, head_log_probs = (each.permute(0, 2, 1) * action[:, None] for each in (head.indices, head.values))
    rewards = torch.rand(SAMPLES)
    return import_module("molt.trainer.algorithm.experience").Experience(
        sequences=sequences,
        attention_mask=attention,
        action_mask=action,
        action_log_probs=None if on_policy else picked[0],
        base_action_log_probs=picked[0] + 0.01 * torch.randn_like(picked[0]) * action,
        rollout_log_probs=picked[1] if with_rollout else None,
        rollout_top_ids=ids.contiguous() if top_k else None,
        rollout_top_log_probs=head_log_probs.contiguous() if top_k else None,
        advantages=torch.randn(SAMPLES, 1) * action,
        rewards=rewards,
        truncated=torch.tensor([row % 2 == 1 for row in range(SAMPLES)]),
        response_length=action.sum(1).float(),
        total_length=torch.tensor(lengths, dtype=torch.float),
        prompts=[f"prompt {row // PER_PROMPT}" for row in range(SAMPLES)],
        group_ids=[f"group {row // PER_PROMPT}" for row in range(SAMPLES)],
        info={"reward": rewards.clone()},
    )


@contextmanager
def on_the_cpu() -> Iterator[Any]:
    """The module of the actor, imported anew; afterwards nothing of it is left."""
    with hollow(ABSENT, "molt"), pytest.MonkeyPatch.context() as patch:
        for name in ("empty_cache", "synchronize", "reset_peak_memory_stats"):
            patch.setattr(torch.cuda, name, lambda *_: None)
        patch.setattr(torch.cuda, "current_device", lambda: torch.device("cpu"))
        patch.setattr(torch.cuda, "get_device_name", lambda: "cpu")
        patch.setattr(torch, "compile", lambda function=None, **_: function or (lambda given: given))
        module = import_module("molt.trainer.workers.policy_actor")
        patch.setattr(module, "torch_dist_barrier_and_cuda_sync", lambda: None)
        patch.setattr(module.PolicyTrainer, "broadcast_to_vllm", lambda self: None)
        yield module


def policy_trainer(module: Any, strategy: Strategy) -> Any:
    """MOLT's trainer of the actor, of this process."""
    actor = model()
    optimizer = torch.optim.SGD(actor.parameters(), lr=0.5)
    return module.PolicyTrainer(
        strategy, actor, optimizer, SimpleNamespace(get_last_lr=lambda: [0.5]), micro_train_batch_size=MICRO_BATCH,
        dataloader_pin_memory=False,
    )  # fmt: skip


def held(given: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the loss, as plain lists."""
    values = {**dict(zip(("log_probs", "old_log_probs", "advantages"), given, strict=True)), **named}
    return {name: value.tolist() for name, value in values.items() if hasattr(value, "tolist") and value.dim() > 1}


def drive(
    run_dir: Path | None,
    *,
    steps: int = 2,
    correction: str = "token",
    entropy: bool = True,
    epochs: int = 2,
    top_k: int = 0,
    on_policy: bool = False,
    frozen: int = 0,
    cp_rank: int = 0,
    **options: Any,
) -> dict[str, Any]:
    """Trains some steps, recorded into run_dir if there is one; everything that the training computed or was given.

    correction: off or token. frozen: first steps in which the actor does not train. options: of `ratioscope.attach`.
    """
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    args = arguments(
        correction=correction, entropy=entropy, epochs=epochs, top_k=top_k, on_policy=on_policy, frozen=frozen
    )
    strategy, before = Strategy(args, cp_rank=cp_rank), repr(args)
    with on_the_cpu() as module:
        attached = None if run_dir is None else ratioscope.attach("molt", run_dir, **options)
        seen, batches, statuses = list[dict[str, Any]](), list[Any](), list[dict[str, float]]()
        try:
            trainer = policy_trainer(module, strategy)
            trainer.actor_loss_fn.register_forward_pre_hook(
                lambda _, given, named: seen.append(held(given, named)), with_kwargs=True
            )
            for _ in range(steps):
                made = experience(
                    trainer.actor, with_rollout=correction != "off" or top_k > 0, top_k=top_k, on_policy=on_policy
                )
                trainer.replay_buffer.append(made)
                batches.append([kept(item) for item in trainer.replay_buffer.items])
                statuses.append({name: float(value) for name, value in trainer.policy_train(0.1).items()})
                trainer.broadcast_to_vllm()
                trainer.replay_buffer.clear()
                if attached is not None and options.get("scalars"):
                    attached.collector.flush(30)  # so that which step's scalars are ready is no matter of speed
        finally:
            if attached is not None:
                assert attached.detach(60)
    return {
        "losses": strategy.losses,
        "gradients": strategy.gradients,
        "weights": [float(parameter.detach().double().sum()) for parameter in trainer.actor.parameters()],
        "batch": batches,
        "logs": statuses,
        "seen": seen,
        "rng": (random.random(), float(np.random.rand()), float(torch.rand(()))),
        "config_unchanged": repr(args) == before,
    }


def kept(item: Any) -> dict[str, Any]:
    """A sample of the replay buffer as plain lists."""
    names = (
        "sequences", "action_mask", "action_log_probs", "rollout_log_probs", "base_action_log_probs", "advantages",
        "rollout_top_ids", "rollout_top_log_probs",
    )  # fmt: skip
    told = {name: getattr(item, name) for name in names}
    return {name: None if value is None else value.tolist() for name, value in told.items()} | {
        "reward": float(item.info["reward"]),
        "prompt": item.prompts[0],
        "group": item.group_ids[0],
        "truncated": bool(item.truncated),
    }
