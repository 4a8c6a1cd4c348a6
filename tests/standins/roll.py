"""A stand-in for ROLL (alibaba/ROLL at 8eb27cc2, 2026-08-19), which is not published as a package.

Of exact signature, each named with its file under roll: ActorWorker.train_step and get_old_log_probs_with_cache
(pipeline/base_worker.py), ActorWorker.loss_func (pipeline/rlvr/actor_worker.py), compute_train_infer_correction (utils/
train_infer_corrections.py), MegatronTrainStrategy.train_step and model_update, MegatronInferStrategy.op_compute_log_probs and
op_compute_entropy (distributed/strategy/megatron_strategy.py). DataProto has those members of distributed/scheduler/protocol.py
that workers use. The pipeline around them follows pipeline/rlvr/rlvr_pipeline.py. The model is a table of bigram logits.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import ratioscope
from standins.module_table import Table, importable

VOCABULARY, SAMPLES, PER_PROMPT, MINI_BATCH, MICRO_BATCH, WIDTH = 9, 8, 2, 4, 2, 15


class DataProto:
    def __init__(self, batch: Any = None, non_tensor_batch: Any = None, meta_info: Any = None) -> None:
        self.batch = batch if batch is not None else {}
        self.non_tensor_batch = non_tensor_batch if non_tensor_batch is not None else {}
        self.meta_info = meta_info if meta_info is not None else {}

    def __len__(self) -> int:
        return len(self.batch["input_ids"])

    def slice(self, start: int, end: int) -> DataProto:
        tensors = {name: value[start:end] for name, value in self.batch.items()}
        objects = {name: value[start:end] for name, value in self.non_tensor_batch.items()}
        return DataProto(tensors, objects, self.meta_info)


def compute_train_infer_correction(
    cfg: Any,
    response_mask: torch.Tensor,
    old_log_probs: torch.Tensor,
    infer_log_probs: torch.Tensor,
    global_valid_samples: int | None = None,
    global_valid_tokens: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    ratio = (old_log_probs - infer_log_probs).exp()
    kept = (ratio < cfg.ratio_high).float() if cfg.filters else torch.ones_like(response_mask)
    return torch.ones_like(ratio), kept, {}


class InferStrategy:
    def __init__(self, worker: Any) -> None:
        self.worker = worker

    def op_compute_log_probs(
        self, logits: torch.Tensor, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> torch.Tensor:
        every = logits[:, :-1].log_softmax(-1)
        return every.gather(-1, input_ids[:, 1:, None])[..., 0] * attention_mask[:, 1:]

    def op_compute_entropy(self, logits: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        every = logits[:, :-1].log_softmax(-1)
        return -(every.exp() * every).sum(-1) * attention_mask[:, 1:]


class TrainStrategy(InferStrategy):
    def train_step(self, batch: DataProto, loss_func: Callable[..., Any]) -> dict[str, list[float]]:
        worker, metrics = self.worker, dict[str, list[float]]()
        for start in range(0, len(batch), MICRO_BATCH):
            micro = batch.slice(start, start + MICRO_BATCH)
            loss, own = loss_func(micro, worker.logits[micro.batch["input_ids"]])
            loss.backward()
            worker.losses.append(float(loss.detach()))
            for name, value in own.items():
                metrics.setdefault(name, []).append(value)
        worker.gradients.append(worker.logits.grad.reshape(-1).tolist())
        worker.optimizer.step()
        worker.optimizer.zero_grad()
        return metrics

    def model_update(self, model_update_name: str) -> None:
        return


class ActorWorker:
    """Of pipeline/base_worker.py."""

    def __init__(self, worker_config: Any) -> None:
        self.worker_config, self.pipeline_config = worker_config, worker_config.pipeline_config
        self.rank_info, self.tokenizer = worker_config.rank_info, None
        self.logits = torch.nn.Parameter(torch.linspace(-1, 1, VOCABULARY**2).reshape(VOCABULARY, VOCABULARY).clone())
        self.optimizer = torch.optim.SGD([self.logits], lr=0.5)
        self.strategy = import_module("roll.distributed.strategy.megatron_strategy").MegatronTrainStrategy(self)
        self.losses: list[float] = []
        self.gradients: list[list[float]] = []
        self.held: list[dict[str, Any]] = []
        self._logprobs_cache: dict[str, torch.Tensor] = {}

    def train_step(self, data: DataProto) -> DataProto:
        metrics: dict[str, Any] = {}
        order = np.random.RandomState(1)
        for epoch in range(self.pipeline_config.ppo_epochs):
            rows = order.permutation(len(data))
            for start in range(0, len(data), MINI_BATCH):
                own = rows[start : start + MINI_BATCH]
                batch = DataProto(
                    {name: value[own] for name, value in data.batch.items()},
                    {name: value[own] for name, value in data.non_tensor_batch.items()},
                    dict(data.meta_info),
                )
                self.update = epoch * (len(data) // MINI_BATCH) + start // MINI_BATCH
                for name, values in self.strategy.train_step(batch=batch, loss_func=self.loss_func).items():
                    metrics.setdefault(name, []).extend(values)
        self._logprobs_cache.clear()
        return DataProto(meta_info={"metrics": metrics})

    def get_old_log_probs_with_cache(self, data: DataProto, log_probs: torch.Tensor) -> torch.Tensor:
        if self.pipeline_config.enable_old_logprobs_recompute or "sample_uuid" not in data.non_tensor_batch:
            return torch.as_tensor(data.batch["old_log_probs"])
        names = list(data.non_tensor_batch["sample_uuid"])
        if names[0] in self._logprobs_cache:
            return torch.stack([self._logprobs_cache[name] for name in names])
        for name, own in zip(names, log_probs.detach(), strict=True):
            self._logprobs_cache[name] = own
        return log_probs.detach()

    def loss_func(self, data: DataProto, output_tensor: torch.Tensor) -> Any:
        raise NotImplementedError


class RlvrActorWorker(ActorWorker):
    """ActorWorker of pipeline/rlvr/actor_worker.py; its base is the class that the modules of the table hold."""

    def loss_func(self, data: DataProto, output_tensor: torch.Tensor) -> Any:
        correction = import_module(RLVR).compute_train_infer_correction
        response_mask = data.batch["response_mask"][:, 1:].long()
        final = data.batch.get("final_response_mask", response_mask)
        log_probs = self.strategy.op_compute_log_probs(
            output_tensor, data.batch["input_ids"], data.batch["response_mask"]
        )
        old = self.get_old_log_probs_with_cache(data, log_probs)
        infer = data.batch.get("infer_logprobs", old)
        infer = infer if len(infer) > 0 else old
        if not self.pipeline_config.enable_old_logprobs_recompute:
            _, kept, _ = correction(self.pipeline_config.train_infer_correction, response_mask, old, infer)
            final = final.long() * kept.long()
        ratio = (log_probs - old).exp()
        loss = -(ratio * data.batch["advantages"] * final).sum() / 10
        entropy = None
        if self.pipeline_config.entropy_loss_coef > 0:
            entropy = self.strategy.op_compute_entropy(output_tensor, data.batch["response_mask"])
            loss = loss - self.pipeline_config.entropy_loss_coef * (entropy * final).sum()
        self.held.append(
            {"step": data.meta_info["global_step"], "update": self.update, "old": old.tolist(), "final": final.tolist(),
             "ids": list(data.non_tensor_batch.get("sample_uuid", ())), "current": log_probs.tolist(),
             "entropy": None if entropy is None else entropy.tolist()}
            | {name: value.tolist() for name, value in data.batch.items() if name != "old_log_probs"}
        )  # fmt: skip
        return loss, {"actor/pg_loss": float(loss.detach())}


RLVR = "roll.pipeline.rlvr.actor_worker"
TABLE: Table = {
    # first, because it holds the correction by name, as `from ... import` leaves it
    RLVR: {"ActorWorker": RlvrActorWorker, "compute_train_infer_correction": compute_train_infer_correction},
    "roll.utils.train_infer_corrections": {"compute_train_infer_correction": compute_train_infer_correction},
    "roll.distributed.strategy.megatron_strategy": {
        "MegatronInferStrategy": InferStrategy, "MegatronTrainStrategy": TrainStrategy,
    },
    "roll.pipeline.base_worker": {"ActorWorker": ActorWorker},
}  # fmt: skip


@dataclass
class Setting:
    """What a run is made with: part of ROLL's pipeline config, and the place of this rank."""

    enable_old_logprobs_recompute: bool = True
    enable_reference: bool = True
    ppo_epochs: int = 2
    entropy_loss_coef: float = 0.01
    async_generation_ratio: float = 0.0
    resume_from_checkpoint: bool = False
    train_infer_correction: Any = field(default_factory=lambda: SimpleNamespace(filters=True, ratio_high=1.02))
    model_update_frequency: int = 1
    updates: bool = True
    agentic: bool = False
    logprobs: bool = True
    names: bool = True
    copies: bool = False
    tp_rank: int = 0
    cp_rank: int = 0
    actor_infer: Any = None


def sampled(worker: Any, setting: Setting, step: int) -> DataProto:
    """A batch of the pipeline, of one step: prompts of unequal length, padded on the right; agentic ones with tool tokens."""
    logits = worker.logits.detach()
    tokens = torch.zeros(SAMPLES, WIDTH, dtype=torch.long)
    mask, attention = torch.zeros_like(tokens), torch.zeros_like(tokens)
    for row in range(SAMPLES):
        prompt, length = 2 + (row // PER_PROMPT) % 3, 8 + row % 5
        tokens[row, 0] = 1 + row % 4
        for place in range(1, length):
            tokens[row, place] = int(torch.multinomial(logits[tokens[row, place - 1]].softmax(0), 1))
        mask[row, prompt:length] = 1
        attention[row, :length] = 1
        if setting.agentic and row % 2:
            mask[row, prompt + 2 : prompt + 4] = 0
    strategy = InferStrategy(worker)
    with torch.no_grad():
        old = strategy.op_compute_log_probs(logits[tokens], tokens, mask)
    infer = (old - 0.05 * torch.rand_like(old)).clamp(max=-1e-6) * mask[:, 1:]
    infer[0, int(mask[0, 1:].int().argmax())] = 0.0  # no log-prob of this token
    batch = {"input_ids": tokens, "attention_mask": attention, "response_mask": mask.clone()}
    batch |= {"advantages": torch.randn_like(old), "ref_log_probs": old * 1.01}
    scores = torch.rand(SAMPLES)
    if setting.logprobs:
        batch["infer_logprobs"] = infer
    batch["old_log_probs"] = old if setting.enable_old_logprobs_recompute else torch.zeros_like(mask[:, 1:])
    uuids = np.array([f"{step}-uuid-{row % 7 if setting.copies else row}" for row in range(SAMPLES)], dtype=object)
    objects: dict[str, Any] = {"sample_uuid": uuids} if setting.names else {}
    if setting.agentic:
        objects |= {
            "traj_group_id": np.array([f"group{row // PER_PROMPT}" for row in range(SAMPLES)], dtype=object),
            "episode_scores": np.array([float(score) for score in scores], dtype=object),
        }
    else:
        objects["id"] = np.array([str(row // PER_PROMPT) for row in range(SAMPLES)], dtype=object)
        batch |= {"origin_response_mask": mask.clone(), "scores": scores, "final_response_mask": mask[:, 1:].clone()}
        batch["final_response_mask"][3] = 0  # a sample that a mask strategy takes out
    if setting.enable_old_logprobs_recompute and setting.logprobs:
        filtered = ((old - infer).exp() < 1.02).long()  # apply_train_infer_correction_to_batch of the pipeline
        batch["response_mask"][:, 1:] *= filtered
        if "final_response_mask" in batch:
            batch["final_response_mask"] *= filtered
    return DataProto(batch, objects, {"global_step": step})


def drive(
    run_dir: Path | None,
    *,
    steps: int = 2,
    setting: Setting | None = None,
    first_step: int = 0,
    during: Callable[[], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Trains one actor worker for some steps, recorded into run_dir if there is one; everything that it computed or held.

    during: called when the modules have been imported. options: of `ratioscope.attach`.
    """
    torch.manual_seed(13)
    random.seed(13)
    np.random.seed(13)
    own = setting or Setting()
    before = repr(own)
    attached = None if run_dir is None else ratioscope.attach("roll", run_dir, **options)
    try:
        with importable(TABLE):
            for name in TABLE:
                import_module(name)
            actor = import_module(RLVR).ActorWorker
            if during is not None:
                during()
            place = SimpleNamespace(rank=0, dp_rank=0, tp_rank=own.tp_rank, cp_rank=own.cp_rank)
            config = SimpleNamespace(
                pipeline_config=own, rank_info=place, model_update_frequency=own.model_update_frequency
            )
            worker = actor(config)
            results, batches = [], []
            for step in range(first_step, first_step + steps):
                if own.updates and step % own.model_update_frequency == 0:  # as ModelUpdateGroup does
                    worker.strategy.model_update("actor_train")
                data = sampled(worker, own, step)
                batches.append(
                    {name: value.tolist() for name, value in {**data.batch, **data.non_tensor_batch}.items()}
                )
                results.append(worker.train_step(data).meta_info["metrics"])
                if attached is not None and options.get("scalars"):
                    attached.collector.flush(30)  # so that which step's scalars are ready is no matter of speed
    finally:
        if attached is not None:
            assert attached.detach(60)
    return {
        "losses": worker.losses,
        "gradients": worker.gradients,
        "weights": worker.logits.detach().reshape(-1).tolist(),
        "batch": batches,
        "held": worker.held,
        "logs": results,
        "config_unchanged": repr(own) == before,
        "rng": (random.random(), float(np.random.rand()), float(torch.rand(()))),
    }
