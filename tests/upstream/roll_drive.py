"""ROLL's own modules on a CPU: DataProto, generation's batches, rewards, advantages, corrections, actor workers and FSDP2's step.

Needs a checkout of alibaba/ROLL in a folder of SOURCES. Stood in for: Ray, vLLM and further packages that are imported and not
used; the engine (rounded weights, a temperature); FSDP's sharded model (a bigram table with SGD); offloading, which asks for a
device (utils/context_managers.py:161); and the run loop of RLVRPipeline: its calls between generation and training are made
here, in its order. ROLL's own CPU platform is used.

Not run: RLVRPipeline.run, whose clusters are Ray actors (pipeline/rlvr/rlvr_pipeline.py:518); Megatron's strategy, which imports
mcore_adapter (distributed/strategy/megatron_strategy.py); context parallelism; the agentic pipeline's environments.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from support.hollow import hollow
from support.sources import on_path

import ratioscope
from ratioscope.collectors.watching.recording import AttachOptions

VOCABULARY, PAD, EOS, TEMPERATURE, PROMPT, LENGTH, SAMPLES = 13, 0, 1, 0.9, 4, 12, 2
ABSENT = (
    "ray", "vllm", "deepspeed", "megatron", "mcore_adapter", "sglang", "peft", "roll.utils.telemetry", "dacite", "transfer_queue",
    "imageio", "gem", "more_itertools", "roll.models.model_providers", "roll.third_party",
    "roll.distributed.strategy.factory", "roll.utils.checkpoint_manager", "roll.utils.collective",
)  # fmt: skip
Module = Callable[[str], Any]


@contextmanager
def importable() -> Iterator[Module]:
    """ROLL's modules, by their names within it; afterwards everything is as before."""
    with on_path("roll"), hollow(ABSENT, "roll") as imports:
        profiling = SimpleNamespace(profile=lambda name: contextlib.nullcontext())
        imports.put("ray", remote=_remote)
        imports.put("roll.utils.logging", reset_file_logger_handler=lambda *_: None)
        imports.put("roll.utils.logging", get_logger=lambda: logging.getLogger("roll"))
        imports.put("ray._private", profiling=profiling)
        for name in ("get_tracer", "inject_trace_context", "attach_trace_context"):
            imports.put("roll.utils.telemetry", **{name: mock.MagicMock()})
        imports.put("roll.pipeline.base_worker", state_offload_manger=lambda **_: contextlib.nullcontext())
        store = importlib.import_module("torch.distributed").HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            yield lambda name: importlib.import_module(f"roll.{name}")
        finally:
            torch.distributed.destroy_process_group()


def _remote(*given: Any, **_: Any) -> Any:
    return given[0] if given else lambda owner: owner


class Bigram(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(3)))

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
        return SimpleNamespace(logits=self.table[input_ids])


class Descent(torch.optim.SGD):
    """SGD that keeps gradients and weights."""

    def __init__(self, table: torch.nn.Parameter) -> None:
        super().__init__([table], lr=0.1)
        self.table = table
        self.gradients: list[torch.Tensor] = []

    def step(self, *_: Any) -> None:  # type: ignore[override]
        assert self.table.grad is not None
        self.gradients.append(self.table.grad.clone())
        super().step()


class Tokenizer:
    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(chr(97 + int(i)) for i in ([ids] if isinstance(ids, int) else ids))

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [chr(97 + i) for i in ids]


def drive(
    module: Module,
    run_dir: Path | None,
    *,
    steps: int = 3,
    worker: str = "actor_worker.ActorWorker",
    options: AttachOptions | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Trains a bigram table with ROLL's own code, recorded into run_dir or not; all that it computed and was given.

    module: from `importable`. worker: module and class in pipeline/rlvr. settings: of RLVRConfig, and logprobs (False: the
    engine sends none).
    """
    for name in (
        "pipeline.rlvr.actor_worker",
        "pipeline.rlvr.actor_pg_worker",
        "distributed.strategy.fsdp2_strategy",
    ):
        module(name)
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    attachment = None if run_dir is None else ratioscope.attach("roll", run_dir, **(options or AttachOptions()))
    has_logprobs = settings.pop("logprobs", True)
    config = _config(module, settings)
    actor = _actor(module, config, worker)
    table = actor.strategy.model.table
    logs, calls = [], list[dict[str, Any]]()
    with _spied(module, calls):
        for step in range(steps):
            actor.strategy.model_update("actor_train")
            batch = _batch(module, config, table.detach(), step, has_logprobs=has_logprobs)
            batch, metrics = _prepared(module, config, actor, batch)
            result = actor.train_step(batch)
            logs.append(metrics | result.meta_info["metrics"])
    finished = attachment is None or attachment.detach(60)
    return {
        "logs": [{k: v for k, v in row.items() if k.startswith(("actor/", "critic/"))} for row in logs],
        "calls": calls,
        "gradients": actor.strategy.optimizer.gradients,
        "table": table.detach(),
        "finished": finished,
        "refused": None if attachment is None else attachment.refused,
        "rng": (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()),  # type: ignore[index]
    }


def _spied(module: Module, calls: list[dict[str, Any]]) -> Any:
    """Keeps what each call of a worker's loss was given and computed; no call is changed."""
    worker = module("pipeline.base_worker").ActorWorker
    fsdp2 = module("distributed.strategy.fsdp2_strategy")
    modules = [module(f"pipeline.rlvr.{name}") for name in ("actor_worker", "actor_pg_worker")]
    scored, stepped = worker.get_old_log_probs_with_cache, fsdp2.FSDP2TrainStrategy.train_step
    spread, corrected = fsdp2.FSDP2InferStrategy.op_compute_entropy, modules[0].compute_train_infer_correction
    updates: list[int] = []
    trains: list[bool] = [False]

    def spied_step(self: Any, batch: Any, loss_func: Any, no_sync: bool = False) -> Any:
        updates.append(int(batch.meta_info["global_step"]))
        trains[0] = True
        result = stepped(self, batch, loss_func, no_sync)
        trains[0] = False
        return result

    def spied_old(self: Any, data: Any, log_probs: torch.Tensor) -> torch.Tensor:
        old: torch.Tensor = scored(self, data, log_probs)
        calls.append({
            "step": updates[-1], "minibatch": updates.count(updates[-1]) - 1, "old": old.detach().clone(), "kept": None,
            "current": log_probs.detach().clone(), "entropy": None, "uuids": list(data.non_tensor_batch["sample_uuid"]),
            "batch": {name: value.clone() for name, value in data.batch.items()}, "ids": list(data.non_tensor_batch["id"]),
        })  # fmt: skip
        return old

    def spied_correction(**given: Any) -> Any:
        result = corrected(**given)
        calls[-1]["kept"] = result[1].clone()
        return result

    def spied_entropy(self: Any, logits: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = spread(self, logits, attention_mask)
        if trains[0]:
            calls[-1]["entropy"] = result.detach().clone()
        return result

    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(worker, "get_old_log_probs_with_cache", spied_old))
    stack.enter_context(mock.patch.object(fsdp2.FSDP2TrainStrategy, "train_step", spied_step))
    stack.enter_context(mock.patch.object(fsdp2.FSDP2InferStrategy, "op_compute_entropy", spied_entropy))
    for one in modules:
        stack.enter_context(mock.patch.object(one, "compute_train_infer_correction", spied_correction))
    return stack


def _config(module: Module, settings: dict[str, Any]) -> Any:
    """RLVRConfig's defaults, without what its __post_init__ asks of files and devices."""
    own = module("pipeline.rlvr.rlvr_config").RLVRConfig
    values = {
        f.name: f.default_factory() if callable(f.default_factory) else f.default
        for f in dataclasses.fields(own)
        if f.name not in ("actor_train", "actor_infer", "critic", "reference", "reward")
    }
    base = module("configs.base_config")
    correction = settings.pop("train_infer_correction", {})
    values["train_infer_correction"] = base.TrainInferCorrectionConfig(
        is_weight=base.TrainInferISWeightConfig(**correction.get("is_weight", {})),
        filters=[base.TrainInferFilterConfig(**given) for given in correction.get("filters", ())],
    )
    training = SimpleNamespace(per_device_train_batch_size=2, gradient_accumulation_steps=2)
    generating = SimpleNamespace(num_return_sequences=SAMPLES, temperature=TEMPERATURE)
    values |= {
        "actor_train": SimpleNamespace(training_args=training), "actor_infer": SimpleNamespace(generating_args=generating),
        "adv_estimator": "grpo", "enable_reference": True, "seed": 7, "async_generation_ratio": 0.0,
    }  # fmt: skip
    return SimpleNamespace(**{**values, **settings})


def _actor(module: Module, config: Any, worker: str) -> Any:
    """An actor worker with FSDP2's strategy, whose `initialize`, which asks for devices, is stood in for."""
    at, _, name = worker.partition(".")
    actor = object.__new__(getattr(module(f"pipeline.rlvr.{at}"), name))
    vars(actor).update({
        "pipeline_config": config, "cluster_name": "actor_train", "worker_name": "actor_train-0", "tokenizer": Tokenizer(),
        "_logprobs_cache": {}, "_logger": None, "_pg_config_cache": {}, "_pg_variant_logged": True,
        "rank_info": module("distributed.executor.worker").RankInfo(world_size=1, rank=0, dp_rank=0, dp_size=1),
    })  # fmt: skip
    actor.worker_config = SimpleNamespace(
        training_args=config.actor_train.training_args, use_dynamic_batching_in_train=False, use_sequence_packing=False,
        apply_loss_scale=True, name="actor_train", infer_batch_size=2,
    )  # fmt: skip
    strategy = object.__new__(module("distributed.strategy.fsdp2_strategy").FSDP2TrainStrategy)
    model = Bigram()
    vars(strategy).update({
        "worker": actor, "worker_config": actor.worker_config, "model": model, "optimizer": Descent(model.table),
        "scheduler": SimpleNamespace(step=lambda: None, get_last_lr=lambda: [0.1]), "scaler": None, "offload_nccl": False,
        "param_dtype": torch.float32, "reduce_scatter_during_grad_accumulation": True, "cpu_offload_enabled": False,
        "weight_updaters": {"actor_train": SimpleNamespace(model_update=lambda: None)},
        "ep_enabled": False, "load_states": lambda **_: None, "offload_states": lambda **_: None,
    })  # fmt: skip
    actor.strategy = strategy
    return actor


def _batch(module: Module, config: Any, table: torch.Tensor, step: int, *, has_logprobs: bool) -> Any:
    """Prompts answered by the engine, in ROLL's own form of generation's output, with what its scheduler puts beside them."""
    proto, draw = module("distributed.scheduler.protocol").DataProto, random.Random(step)
    logprobs = (((table * 16).round() / 16) / TEMPERATURE).log_softmax(1)
    prompts = [[2 + (step + i) % 9, 3 + i, 4][: 2 + i % 2] for i in range(4)]
    ids = torch.tensor([[PAD] * (PROMPT - len(one)) + one for one in prompts])
    attention = (ids != PAD).long()
    given = proto.from_single_dict(
        {"input_ids": ids, "attention_mask": attention, "position_ids": attention.cumsum(1) - 1}
    )
    rows, scores = [], []
    for number, prompt in enumerate(prompts):
        for sample in range(SAMPLES):
            tokens = [2 + draw.randrange(VOCABULARY - 2) for _ in range(2 + (number + sample) % 5)]
            tokens = [*tokens, EOS] if sample else tokens
            before = [prompt[-1], *tokens[:-1]]
            rows.append(ids[number].tolist() + tokens + [PAD] * (LENGTH - PROMPT - len(tokens)))
            scores.append([float(logprobs[last, token]) for last, token in zip(before, tokens, strict=True)])
    output = module("utils.functionals").postprocess_generate(
        given, torch.tensor(rows), SAMPLES, LENGTH, EOS, PAD, output_logprobs=scores if has_logprobs else None
    )
    rewards = torch.tensor([float((i + step) % 3 == 0) for i in range(len(rows))])
    output.batch["response_level_rewards"], output.batch["scores"] = rewards.clone(), rewards.clone()
    output.batch["token_level_rewards"] = torch.zeros_like(output.batch["responses"], dtype=torch.float32)
    output.non_tensor_batch["domain"] = np.array(["math"] * len(rows), dtype=object)
    output.non_tensor_batch["id"] = np.array([str(i // SAMPLES) for i in range(len(rows))], dtype=object)
    output.meta_info |= {"global_step": step, "_broadcast_non_tensor_batch": True, "is_offload_states": False,
                         "loss_mask_keys": ["response_mask", "final_response_mask"]}  # fmt: skip
    names = [f"{step}-{i}" for i in range(len(rows))]
    output.non_tensor_batch["sample_uuid"] = np.array(names, dtype=object)
    return output


def _prepared(module: Module, config: Any, actor: Any, batch: Any) -> tuple[Any, dict[str, float]]:
    """What RLVRPipeline.run does with a batch between generation and train_step."""
    own, metrics = module("utils.functionals"), dict[str, float]()
    if config.enable_reference:
        scored = actor.compute_log_probs(batch)
        batch.batch["ref_log_probs"] = scored.batch["log_probs"] - 0.01 * batch.batch["response_mask"][:, 1:]
    if config.enable_old_logprobs_recompute:
        batch.batch["old_log_probs"] = actor.compute_log_probs(batch).batch["log_probs"]
    else:
        batch.batch["old_log_probs"] = torch.zeros_like(batch.batch["attention_mask"][:, 1:])
    if not config.enable_reference:
        batch.batch["ref_log_probs"] = batch.batch["old_log_probs"].clone()
    batch, more = own.get_sample_level_mask(batch, config)
    metrics |= more
    batch, more = own.reward_postprocess(batch, config, SimpleNamespace())
    metrics |= more
    control = SimpleNamespace(value=0.0, update=lambda **_: None)
    batch, more = own.compute_token_reward(batch, config, control)
    metrics |= more
    batch = own.compute_advantage(
        data=batch, gamma=config.gamma, lambd=config.lambd, adv_estimator=config.adv_estimator,
        advantage_clip=config.advantage_clip, whiten_advantages=config.whiten_advantages, whiten_rewards=config.whiten_rewards,
        response_mask=batch.batch["final_response_mask"].clone(), pipeline_config=config,
    )  # fmt: skip
    if config.enable_old_logprobs_recompute:
        batch, more = module("utils.train_infer_corrections").apply_train_infer_correction_to_batch(
            config, batch, update_mask_keys=batch.meta_info["loss_mask_keys"]
        )
        metrics |= more
    own.batch_balance(batch, dp_size=1, minibatch_size=4)
    return batch, metrics
