"""A small training by AReaL itself on one CPU: its PPOTrainer.train, its FSDP engine, its PPOActor, its StatsLogger.

Of our making are only what stands around: a model of two layers, the engine that samples (random tokens, with the log-probs
of the model plus noise), and a trainer object put together without its servers.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import distributed

from ratioscope.collectors.attach import Attachment, attach

_REASON = "AReaL itself is not importable here"
transformers: Any = pytest.importorskip("transformers", reason=_REASON)
actor_module: Any = pytest.importorskip("areal.trainer.ppo.actor", reason=_REASON)
api: Any = pytest.importorskip("areal.api", reason=_REASON)
cli_args: Any = pytest.importorskip("areal.api.cli_args", reason=_REASON)
fsdp_engine: Any = pytest.importorskip("areal.engine.fsdp_engine", reason=_REASON)
rl_trainer: Any = pytest.importorskip("areal.trainer.rl_trainer", reason=_REASON)
stats_module: Any = pytest.importorskip("areal.utils.stats_logger", reason=_REASON)

VOCABULARY = 64
PROMPT = 4
LENGTHS = [(9, 14), (12, 11), (20, PROMPT + 2)]
SPEC = api.FinetuneSpec(total_train_epochs=1, dataset_size=24, train_batch_size=6)
Tensors = dict[str, Any]


@dataclass
class Visit:
    """What the loss was given and gave. left: the mask that remained of it. update: optimizer steps before it, of all steps."""

    update: int
    arguments: dict[str, Any]
    data: Tensors
    loss: torch.Tensor
    left: torch.Tensor


@dataclass
class Watched:
    """What training did, seen by spies that are not ours to test."""

    visits: list[Visit] = field(default_factory=list)
    batches: list[list[Tensors]] = field(default_factory=list)
    gradients: list[list[torch.Tensor]] = field(default_factory=list)
    logs: list[dict[str, Any]] = field(default_factory=list)
    left: torch.Tensor | None = None
    engine: Any = None

    def reference(self, batch: list[Tensors]) -> list[torch.Tensor]:
        """Log-probs of a reference model that is the trainer's, half as sure."""
        return [logprobs.detach() / 2 for logprobs in self.engine.compute_logp(batch)]


def drive(run_dir: Path | None, **options: Any) -> dict[str, Any]:
    """Trains two steps with the adapter on (a run folder) or off (None); all that training computed.

    options: folder (for what AReaL writes; else a temporary one), steps, resume (after which global step), by ("name",
    "object", "actor", "engine", or "environment": somebody else attached), attach (options of it), reference (whether there is
    a reference model), rank and ranks (of several processes that meet in the folder), and settings of PPOActorConfig.
    """
    steps, resumed = options.pop("steps", 2), options.pop("resume", None)
    by, asked = options.pop("by", "name"), options.pop("attach", {})
    given, has_reference = options.pop("folder", None), options.pop("reference", False)
    rank, ranks = options.pop("rank", 0), options.pop("ranks", 1)
    watched = Watched()
    with ExitStack() as stack:
        folder = Path(given or stack.enter_context(TemporaryDirectory()))
        stack.enter_context(_process(folder, rank, ranks))
        seed()
        engine = _engine(folder, options)
        stack.enter_context(spies(engine, watched))
        watched.engine = engine
        trainer = trainer_of(engine, folder, watched, steps, resumed)
        trainer.ref = mock.MagicMock(compute_logp=watched.reference) if has_reference else None
        stack.callback(trainer.stats_logger.close)
        attachment = _attached(run_dir, by, trainer, engine, asked)
        try:
            trainer.train(workflow=no_workflow())
        finally:
            if attachment is not None:
                attachment.detach(30)
        parameters = [local(parameter) for parameter in engine.model.parameters()]
        rng = (random.getstate(), np.random.get_state(), torch.get_rng_state())
        return {
            "losses": [visit.loss for visit in watched.visits],
            "gradients": watched.gradients,
            "parameters": parameters,
            "rng": rng,
            "batch": [visit.data for visit in watched.visits],
            "logs": watched.logs,
            "visits": watched.visits,
            "batches": watched.batches,
            "minibatches": engine.config.ppo_n_minibatches,
            "config": engine.config,
            "watched": watched,
            "engine": engine,
            "trainer": trainer,
            "attachment": attachment,
        }


def no_workflow() -> Any:
    """A workflow that is never asked: the batches come from sampled()."""
    return type("NoWorkflow", (api.RolloutWorkflow,), {"arun_episode": None})()


def _attached(run_dir: Path | None, by: str, trainer: Any, engine: Any, asked: dict[str, Any]) -> Attachment | None:
    if run_dir is None or by == "environment":
        return None
    target = {"name": "areal", "object": trainer, "actor": engine.actor, "engine": engine}[by]
    return attach(target, run_dir, **asked)


@contextmanager
def _process(folder: Path, rank: int, ranks: int) -> Iterator[None]:
    """torch.distributed without a port, and AReaL without its controller."""
    environment = {"AREAL_SPMD_MODE": "1", "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks)}
    stores: Any = distributed
    store = stores.HashStore() if ranks == 1 else stores.FileStore(str(folder / "store"), ranks)
    with mock.patch.dict(os.environ, {**environment, "WANDB_MODE": "disabled"}):
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
        try:
            yield
        finally:
            distributed.destroy_process_group()


def seed() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)


def _engine(folder: Path, options: dict[str, Any]) -> Any:
    if distributed.get_rank() == 0:
        save_model(folder / "model")
    distributed.barrier()
    engine = fsdp_engine.FSDPPPOActor(actor_config(folder, options))
    engine.create_process_group()
    engine.initialize(addr=None, ft_spec=SPEC)
    return engine


def save_model(model: Path) -> None:
    if not model.exists():
        config = transformers.Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
        )
        transformers.Qwen2ForCausalLM(config).save_pretrained(model)


def actor_config(folder: Path, options: dict[str, Any]) -> Any:
    settings = {
        "ppo_n_minibatches": 2,
        "use_decoupled_loss": True,
        "prox_logp_method": "recompute",
        "kl_ctl": 0.0,
        "adv_norm": cli_args.NormConfig(mean_level="batch", std_level="batch"),
        "mb_spec": cli_args.MicroBatchSpec(max_tokens_per_mb=24),
    }
    return cli_args.PPOActorConfig(
        experiment_name="e",
        trial_name="t",
        path=str(folder / "model"),
        backend=options.pop("backend", "fsdp:d1"),
        dtype="float32",
        attn_impl="sdpa",
        gradient_checkpointing=False,
        optimizer=cli_args.OptimizerConfig(lr=1e-2, warmup_steps_proportion=0.0),
        **settings | options,
    )


def trainer_of(engine: Any, folder: Path, watched: Watched, steps: int, resumed: int | None) -> Any:
    """PPOTrainer as its constructor leaves it on one rank, its servers and savers replaced by what does nothing."""
    config = cli_args.GRPOConfig(
        experiment_name="e", trial_name="t", tokenizer_path="", total_train_steps=steps, actor=engine.config
    )
    config.stats_logger = stats_module.StatsLoggerConfig(experiment_name="e", trial_name="t", fileroot=str(folder))
    config.critic = config.memory_profiler = None
    trainer = rl_trainer.PPOTrainer.__new__(rl_trainer.PPOTrainer)
    nothing = mock.MagicMock()
    nothing.is_async = True
    nothing.export_stats.return_value = {"rollout/reward": 0.5}
    recovered = None if resumed is None else recovered_after(resumed, steps)
    for name in ("saver", "recover_handler", "evaluator", "rollout", "weight_update_meta"):
        setattr(trainer, name, nothing)
    for name in ("critic", "ref", "teacher", "eval_rollout", "scheduler", "data_controller", "tokenizer", "processor"):
        setattr(trainer, name, None)
    for name in ("rollout", "actor", "critic", "ref", "teacher"):
        setattr(trainer, f"_should_offload_{name}", False)
    trainer.config, trainer.actor, trainer.train_dataloader = config, engine, range(8)
    trainer.recover_info = recovered
    trainer.stats_logger = stats_module.StatsLogger(config, SPEC)
    if resumed is not None:
        engine.set_version(resumed + 1)
    engine.prepare_batch = lambda *_, **__: sampled(engine, watched)
    engine.update_weights = lambda meta: None
    return trainer


def recovered_after(last: int, steps: int) -> Any:
    """What RecoverHandler.load returns, as far as the trainer reads it."""
    step = api.StepInfo(epoch=0, epoch_step=last, global_step=last, steps_per_epoch=steps)
    return SimpleNamespace(last_step_info=step)


def sampled(engine: Any, watched: Watched) -> list[Tensors]:
    """Groups of two answers: log-probs of the model plus noise, versions that change within an answer."""
    version = engine.get_version()
    generator = torch.Generator().manual_seed(100 + version)
    batch = [_group(generator, version, lengths) for lengths in LENGTHS]
    batch[2]["loss_mask"][1] = 0  # an answer that the workflow takes out of training
    for group, logprobs in zip(batch, engine.compute_logp(batch), strict=True):
        noise = 0.3 * torch.randn(logprobs.shape, generator=generator)
        group["logprobs"] = torch.roll(logprobs.detach(), 1, -1) + noise
        group["logprobs"] *= group["loss_mask"]
    watched.batches.append([{name: value.clone() for name, value in group.items()} for group in batch])
    return batch


def _group(generator: torch.Generator, version: int, lengths: tuple[int, int]) -> Tensors:
    width = max(lengths)
    shape = (len(lengths), width)
    ids = torch.randint(0, VOCABULARY, shape, generator=generator, dtype=torch.int32)
    attention, mask = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.int32)
    versions = torch.full(shape, -1, dtype=torch.int32)
    for row, length in enumerate(lengths):
        attention[row, :length] = True
        mask[row, PROMPT:length] = 1
        if length > 16:
            mask[row, 8:11] = 0  # a tool's answer, between two turns
        versions[row, PROMPT:length] = max(0, version - 1)
        versions[row, length - 3 : length] = version  # resumed with new weights
    return {
        "input_ids": ids * attention,
        "loss_mask": mask,
        "versions": torch.where(mask.bool(), versions, -1),
        "attention_mask": attention,
        "rewards": torch.rand(len(lengths), generator=generator),
    }


@contextmanager
def spies(engine: Any, watched: Watched) -> Iterator[None]:
    """Around AReaL's own functions, under whatever is attached later."""
    loss_fn, surrogate, optimizer_step = (
        actor_module.grpo_loss_fn,
        actor_module.ppo_actor_loss_fn,
        engine.optimizer_step,
    )
    commit = stats_module.StatsLogger.commit

    @functools.wraps(loss_fn)
    def grpo_loss_fn(logprobs: Any, entropy: Any, input_data: Any, **named: Any) -> Any:
        data = {name: _copied(value) for name, value in input_data.items()}
        loss = loss_fn(logprobs, entropy, input_data, **named)
        arguments = {**named, "logprobs": logprobs.detach().clone(), "entropy": entropy.detach().clone()}
        assert watched.left is not None
        watched.visits.append(Visit(len(watched.gradients), arguments, data, loss.detach().clone(), watched.left))
        return loss

    @functools.wraps(surrogate)
    def ppo_actor_loss_fn(*arguments: Any, **named: Any) -> Any:
        result = surrogate(*arguments, **named)
        watched.left = result[1].get("behave_mask", named["loss_mask"]).clone()
        return result

    def optimizer_steps() -> Any:
        watched.gradients.append([local(parameter.grad) for parameter in engine.model.parameters()])
        return optimizer_step()

    @functools.wraps(commit)
    def commits(self: Any, epoch: int, step: int, global_step: int, data: Any) -> Any:
        watched.logs.append({"global_step": global_step, **data})
        return commit(self, epoch, step, global_step, data)

    engine.optimizer_step = optimizer_steps
    with (
        mock.patch.object(actor_module, "grpo_loss_fn", grpo_loss_fn),
        mock.patch.object(actor_module, "ppo_actor_loss_fn", ppo_actor_loss_fn),
        mock.patch.object(stats_module.StatsLogger, "commit", commits),
    ):
        yield


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def local(tensor: Any) -> torch.Tensor:
    whole: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole.detach().clone()
