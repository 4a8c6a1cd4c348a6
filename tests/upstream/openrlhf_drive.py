"""OpenRLHF's own actor trainer on a tiny model: its real loss, replay buffer, experiences and model wrapper, on the CPU.

What its modules import and this does not run (deepspeed, vllm, peft, flash-attn, pylatexenc) is stood in for while they are
imported. The strategy is ours: one process, plain backward and optimizer, gradients accumulated as DeepSpeed does.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ratioscope

torch = pytest.importorskip("torch", reason="OpenRLHF runs on torch")
pytest.importorskip("openrlhf", reason="the openrlhf package is not importable here")

ABSENT = ("deepspeed", "vllm", "peft", "flash_attn", "pylatexenc")
SAMPLES, PER_PROMPT, EPOCHS, ACCUMULATED, MICRO_BATCH = 8, 2, 2, 2, 2
VOCABULARY = 13


class _Nothing:
    """Stands where a name is only imported or subclassed."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of the packages that are not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in ABSENT else None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__getattr__"] = _any_name
        module.__dict__["__version__"] = "0.20.0"


def _any_name(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Nothing


def actor_module() -> Any:
    """openrlhf.trainer.ray.ppo_actor, imported with what is absent stood in for, of which nothing is left after."""
    name = "openrlhf.trainer.ray.ppo_actor"
    if name not in sys.modules:
        finder = _Absent()
        sys.meta_path.append(finder)
        try:
            import_module(name)
        finally:
            sys.meta_path.remove(finder)
            for module in [module for module in sys.modules if module.split(".")[0] in ABSENT]:
                del sys.modules[module]
    return sys.modules[name]


class Strategy:
    """What the trainer asks of DeepSpeed's strategy, in one process."""

    ring_attn_group = None

    def __init__(self, args: Any, *, ring_attn_rank: int = 0) -> None:
        self.args, self.ring_attn_rank, self.ds_tensor_parallel_size = args, ring_attn_rank, 1
        self.accumulated_gradient = ACCUMULATED
        self.losses: list[float] = []
        self.gradients: list[float] = []
        self._micro_steps = 0

    def backward(self, loss: Any, model: Any, optimizer: Any, **_: Any) -> None:
        self.losses.append(float(loss.detach()))
        (loss / self.accumulated_gradient).backward()

    def optimizer_step(self, optimizer: Any, model: Any, scheduler: Any, name: str = "") -> None:
        self._micro_steps += 1
        if self.args.train.dynamic_batch_enable or self._micro_steps % self.accumulated_gradient == 0:
            self.gradients.append(float(sum(p.grad.square().sum() for p in model.parameters() if p.grad is not None)))
            optimizer.step()
            optimizer.zero_grad()

    def all_reduce(self, data: Any, op: str = "mean") -> Any:
        return data

    def is_rank_0(self) -> bool:
        return True

    def get_grad_norm(self, model: Any) -> float:
        return self.gradients[-1] if self.gradients else 0.0


def arguments(*, correction: str, entropy: bool, asynchronous: bool, dynamic: bool, freezing: int) -> Any:
    """The part of OpenRLHF's arguments that the actor reads."""
    space = SimpleNamespace
    return space(
        algo=space(
            advantage=space(
                is_correction_level=correction,
                is_correction_mode="clip" if correction == "token" else "mask",
                is_correction_gating="ratio",
                is_correction_threshold=[0.5, 5.0],
                estimator="group_norm",
            ),
            kl=space(use_loss=True, init_coef=0.01, estimator="k3", unbiased_gradient=False),
        ),
        actor=space(
            eps_clip_low_high=(0.2, 0.2),
            dual_clip=None,
            policy_loss_type="ppo",
            loss_agg_mode="token-mean",
            aux_loss_coef=0.0,
            entropy_coef=0.01 if entropy else None,
        ),
        critic=space(freezing_steps=freezing),
        train=space(
            max_epochs=EPOCHS, dynamic_batch_enable=dynamic, colocate_all=False, async_enable=asynchronous, batch_size=4
        ),
        ds=space(packing_samples=False, tensor_parallel_size=1, ring_attn_size=1),
        vllm=space(sync_backend="nccl"),
        rollout=space(temperature=0.8, n_samples_per_prompt=PER_PROMPT, batch_size=SAMPLES // PER_PROMPT),
    )


def model() -> Any:
    """OpenRLHF's wrapper around a Llama of two layers."""
    transformers = import_module("transformers")
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, attn_implementation="eager",
    )  # fmt: skip
    actor = import_module("openrlhf.models").Actor(transformers.LlamaForCausalLM(config))
    actor.packing_samples, actor.temperature = False, 0.8
    return actor


def experience(actor: Any, *, with_rollout: bool) -> Any:
    """A step's samples as the driver sends them: padded on the right, prompts of unequal length, holes of tool tokens."""
    experience_module = import_module("openrlhf.trainer.ppo_utils.experience")
    lengths = [10 + (5 * i) % 7 for i in range(SAMPLES)]
    width = max(lengths)
    sequences = torch.zeros(SAMPLES, width, dtype=torch.long)
    attention, action = torch.zeros_like(sequences), torch.zeros(SAMPLES, width - 1, dtype=torch.long)
    for row, length in enumerate(lengths):
        prompt = 3 + (row // PER_PROMPT) % 3
        sequences[row, :length] = torch.randint(1, VOCABULARY, (length,))
        attention[row, :length] = 1
        action[row, prompt - 1 : length - 1] = 1
        if row % 3 == 0:
            action[row, prompt + 1 : prompt + 3] = 0
    with torch.no_grad():
        old = actor(sequences, action, attention_mask=attention)
    rollout = ((old - 0.05 * torch.rand_like(old)) * action).clone()
    first = int(action[1].argmax())
    rollout[1, first] = 0.0  # what OpenRLHF writes where vLLM had no log-prob of the token
    rewards = torch.rand(SAMPLES)
    return experience_module.Experience(
        sequences=sequences,
        attention_mask=attention,
        action_mask=action.bool(),
        action_log_probs=old,
        base_action_log_probs=old + 0.01 * torch.randn_like(old) * action,
        rollout_log_probs=rollout if with_rollout else None,
        advantages=torch.randn_like(old) * action,
        rewards=rewards,
        truncated=torch.tensor([row % 2 == 1 for row in range(SAMPLES)]),
        response_length=action.sum(1).float(),
        total_length=torch.tensor(lengths, dtype=torch.float),
        prompts=[f"prompt {row // PER_PROMPT}" for row in range(SAMPLES)],
        info={"reward": rewards.clone()},
    )


@contextmanager
def on_the_cpu(device: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "current_device", lambda: device)
        patch.setattr(sys.modules["openrlhf.trainer.ray.ppo_actor"], "torch_dist_barrier_and_cuda_sync", lambda: None)
        patch.setattr(torch.cuda, "empty_cache", lambda: None)
        yield


def trained(strategy: Strategy, steps: int, correction: str, settle: Callable[[], object]) -> dict[str, Any]:
    """Some steps of the real actor trainer, and what they computed."""
    actor_trainer = actor_module().ActorPPOTrainer
    actor = model()
    optimizer = torch.optim.SGD(actor.parameters(), lr=0.5)
    scheduler = SimpleNamespace(get_last_lr=lambda: [0.5])
    with on_the_cpu(0):
        trainer = actor_trainer(
            strategy, actor, None, optimizer, scheduler, micro_train_batch_size=MICRO_BATCH, dataloader_pin_memory=False
        )
    batches, statuses, seen = [], [], list[dict[str, Any]]()
    trainer.actor_loss_fn.register_forward_pre_hook(
        lambda _, given, named: seen.append(held(given, named)), with_kwargs=True
    )
    for _ in range(steps):
        made = experience(actor, with_rollout=correction != "off")
        with torch.no_grad():
            trainer.replay_buffer.append(made)
        if strategy.args.train.dynamic_batch_enable:
            plan_batches(trainer.replay_buffer)
        batches.append([kept(item) for item in trainer.replay_buffer.items])
        with on_the_cpu(torch.device("cpu")):
            statuses.append({name: float(value) for name, value in trainer.ppo_train(0.1).items()})
            trainer.broadcast_to_vllm()
        settle()
        trainer.replay_buffer.clear()
    return {
        "losses": strategy.losses,
        "gradients": strategy.gradients,
        "weights": [float(parameter.detach().double().sum()) for parameter in actor.parameters()],
        "batch": batches,
        "logs": statuses,
        "seen": seen,
    }


def held(given: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    """What the loss is given, as plain lists."""
    values = {**dict(zip(("current", "old", "advantages"), given, strict=True)), **named}
    names = {"mask": "action_mask", "rollout": "rollout_log_probs", **{n: n for n in ("current", "old", "advantages")}}
    found = {name: values[of] for name, of in names.items()}
    return {name: None if value is None else value.tolist() for name, value in found.items()}


def plan_batches(buffer: Any) -> None:
    """What setup_dynamic_batch would plan, which asks other ranks: micro-batches of 1, 3, 2 and 2, two updates."""
    buffer.setup_dynamic_batch = lambda strategy: None
    buffer.dynamic_indices, buffer.sample_batch_size = [[0], [1, 2, 3], [4, 5], [6, 7]], 1
    buffer.dynamic_optimizer_step = [0, 1, 0, 1]
    buffer.dynamic_batch_num_tokens, buffer.dynamic_global_batch_size = [20.0] * 4, [4.0] * 4
    buffer.dynamic_sample_loss_scale = [0.25, 0.75, 0.5, 0.5]


def kept(item: Any) -> dict[str, Any]:
    """A sample of the replay buffer as plain lists."""
    names = ("sequences", "action_mask", "action_log_probs", "rollout_log_probs", "base_action_log_probs", "advantages")
    told = {name: getattr(item, name) for name in names}
    return {name: None if value is None else value.tolist() for name, value in told.items()} | {
        "reward": float(item.info["reward"]),
        "prompt": item.prompts[0],
        "truncated": bool(item.truncated),
    }


def drive(
    run_dir: Path | None,
    *,
    steps: int = 2,
    correction: str = "token",
    entropy: bool = True,
    asynchronous: bool = False,
    dynamic: bool = False,
    freezing: int = -1,
    ring_attn_rank: int = 0,
    **options: Any,
) -> dict[str, Any]:
    """Trains some steps, recorded into run_dir if there is one; everything that the training computed or was given.

    correction: off, token or seq. options: of `ratioscope.attach`.
    """
    actor_module()
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    args = arguments(
        correction=correction, entropy=entropy, asynchronous=asynchronous, dynamic=dynamic, freezing=freezing
    )
    before = repr(args)
    attached = None if run_dir is None else ratioscope.attach("openrlhf", run_dir, **options)

    def settle() -> None:
        if attached is not None and options.get("scalars"):
            attached.collector.flush(30)  # so that which step's scalars are ready is no matter of speed

    try:
        trace = trained(Strategy(args, ring_attn_rank=ring_attn_rank), steps, correction, settle)
    finally:
        if attached is not None:
            assert attached.detach(60)
    random_state = (random.random(), float(np.random.rand()), float(torch.rand(())))
    return {**trace, "rng": random_state, "config_unchanged": repr(args) == before}


def first_actions(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """A row of the replay buffer from its first action to its last; written apart from the adapter."""
    places = [place for place, is_action in enumerate(mask) if is_action]
    return list(values[places[0] : places[-1] + 1])


def is_close(left: Sequence[float], right: Sequence[float]) -> bool:
    return len(left) == len(right) and all(
        (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
        for a, b in zip(left, right, strict=True)
    )
