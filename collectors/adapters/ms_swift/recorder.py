"""Joins ms-swift's samples with its losses: facts are noted when a micro-batch is made, tensors logged when its loss is done.

The configuration of an ms-swift trainer for run.json.
"""

import logging
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ...adapter import installed
from ...batch.token_texts import decoder
from ...foreign import Tensor, Trainer
from ...watching.hooks import Call
from ...watching.recording import Recording
from ..visits import Visits
from .rows import Row, columns, facts, note, noted, row, weighted

ROWS = "ratioscope_rows"
"""The attribute of a GRPOBatch that holds its rows. ms-swift reads fields of the batch by name and never sees it."""
IS_CHUNK = "ratioscope_is_chunk"
"""The attribute of a GRPOBatch that is a part of another. A rank with fewer parts than others computes its last one again."""
NO_ROLLOUT = (
    "ms-swift's batches have no rollout log-probs, so neither mismatch nor total is recorded; use_vllm: true with "
    "rollout_importance_sampling_mode, or log_rollout_offpolicy_metrics: true, provides them"
)
FUSED = (
    "use_liger_kernel computes the loss without the current log-probs, so total and drift are not recorded; mismatch is"
)
RAY = (
    "this is a worker of ms-swift's Ray entry point: its loss gets no samples and knows no step, so nothing is recorded; "
    "swift rlhf and megatron rlhf without Ray are recorded"
)
VERSIONS = "updates of the weights that the engine was loaded with before it sampled"
NO_VERSIONS = (
    "ms-swift does not tell which weights sampled these completions, so lag is not recorded; attach(..., rollout_version=...) "
    "can supply it"
)

Batch = Any
"""ms-swift's GRPOBatch."""

_OF_RUN = (
    "model", "model_type", "torch_dtype", "loss_type", "advantage_estimator", "num_generations", "num_iterations",
    "steps_per_generation", "gradient_accumulation_steps", "per_device_train_batch_size", "micro_batch_size",
    "global_batch_size", "beta", "epsilon", "epsilon_high", "importance_sampling_level",
    "rollout_importance_sampling_mode", "rollout_importance_sampling_threshold", "off_policy_sequence_mask_delta",
    "overlong_filter", "top_entropy_quantile", "dynamic_sample", "async_generate", "use_vllm", "vllm_mode",
    "router_replay_mode", "tuner_type", "padding_free", "tensor_model_parallel_size", "context_parallel_size",
    "pipeline_model_parallel_size", "sequence_parallel_size", "use_liger_kernel",
)  # fmt: skip
_SAMPLING = ("temperature", "top_p", "top_k", "repetition_penalty", "max_completion_length", "max_turns")


@dataclass
class _Making:
    """A generation whose samples become micro-batches."""

    trainer: Trainer
    names: dict[int, str] = field(default_factory=dict)
    """id of a sample -> its name."""
    seen: Counter[str] = field(default_factory=Counter)
    """Request -> its samples so far: conversations may have several."""

    def name(self, sample: Any) -> str:
        """The sample's name: its request, numbered from the second sample on."""
        if id(sample) not in self.names:
            self.seen[sample.request_id] += 1
            count = self.seen[sample.request_id]
            self.names[id(sample)] = sample.request_id if count == 1 else f"{sample.request_id}.{count}"
        return self.names[id(sample)]


@dataclass
class _Loss:
    """The results of one loss."""

    current: Tensor = None
    entropies: Tensor = None
    """One per token, nats."""
    weights: Tensor = None
    """Importance weights (B, T), 0 for tokens that the correction rejects."""
    kept: Tensor = None
    """(B,), false for sequences that the off-policy mask leaves out."""
    is_fused: bool = False
    """True for the loss of liger, which knows neither the truncated sequences nor the current log-probs."""


class SwiftRecorder:
    """Watches the GRPO trainer of its process."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._making: _Making | None = None
        self._loss: _Loss | None = None
        self._launched: dict[int, int] = {}
        self._visits = Visits()
        self._loaded: int | None = None

    def making_begins(self, call: Call) -> None:
        self._making = _Making(call.target) if _is_training(call.target) else None
        self._describe(call.target)

    def making_ends(self, call: Call) -> None:
        self._making = None

    def launched(self, call: Call) -> None:
        trainer = call.target
        self._launched[id(trainer._queue)] = int(trainer._last_loaded_step)

    def inference_begins(self, call: Call) -> int | None:
        trainer = call.target
        return self._launched.get(id(trainer._queue)) if trainer.args.async_generate else None

    def inference_ends(self, call: Call) -> None:
        trainer, making = call.target, self._making
        version = call.noted if trainer.args.async_generate else int(trainer._last_loaded_step)
        if making is None:
            return
        for sample in call.result:
            note(sample, rollout_version=version)
        loaded = int(trainer._last_loaded_step)
        if loaded != self._loaded:
            self._loaded = loaded
            self._recording.event(
                "weight_sync", _updates(trainer) + 1, f"the engine samples with the weights after {loaded} updates"
            )

    def rewarded(self, call: Call) -> None:
        if self._making is None or not call.result.shape[1]:
            return
        totals = weighted(call.result, self._making.trainer.reward_weights.to(call.result.device)).tolist()
        for sample, total in zip(call.arguments["samples"], totals, strict=True):
            note(sample, reward=total)

    def collated(self, call: Call) -> None:
        if (making := self._making) is None:
            return
        updates = _updates(making.trainer)
        is_async = getattr(making.trainer.args, "async_generate", False)
        given = self._recording.rollout_version
        rows = [
            row(
                sample,
                sequence_id=making.name(sample),
                group_id=f"{updates + 1}-{sample.prompt_id}",
                step=updates + 1,
                version=updates,
                rollout_version=given(making.trainer)
                if given is not None
                else noted(sample).get("rollout_version", None if is_async else _sampled_with(making.trainer)),
                reward=noted(sample).get("reward"),
            )
            for sample in call.arguments["samples"]
        ]
        if any(row.rollout_version is None for row in rows):
            self._recording.say_once("no_rollout_versions", updates + 1, NO_VERSIONS)
        setattr(call.result[1], ROWS, rows)

    def chunked(self, call: Call) -> None:
        rows = getattr(call.arguments["grpo_batch"], ROWS, None)
        if rows is not None:
            setattr(call.result[1], ROWS, rows[call.arguments["start_idx"] : call.arguments["end_idx"]])
            setattr(call.result[1], IS_CHUNK, True)

    def loss_begins(self, call: Call) -> None:
        self._loss = _Loss()

    def scored(self, call: Call) -> None:
        if self._loss is not None:
            logprobs, entropies = call.result
            self._loss.current = logprobs.detach()
            self._loss.entropies = None if entropies is None else entropies.detach()

    def weighted(self, call: Call) -> None:
        if self._loss is not None:
            self._loss.weights = call.result.detach()

    def sequences_masked(self, call: Call) -> None:
        if self._loss is not None:
            self._loss.kept = call.result

    def loss_ends(self, call: Call) -> None:
        loss, self._loss = self._loss, None
        if loss is not None and loss.current is not None and _is_training(call.target):
            threshold = call.result[1]["entropy"].get("entropy_threshold")
            self._log(call.target, call.arguments["grpo_batch"], loss, threshold)

    def megatron_loss_ends(self, call: Call) -> None:
        loss, self._loss = self._loss, None
        if loss is None or not _is_training(call.target):
            return
        if not hasattr(call.target, "state"):  # the trainer that Ray's workers make to borrow its loss
            self._recording.say_once("ray_entry_point", 0, RAY, logging.WARNING)
            return
        if not _holds_the_copy():
            return
        data = call.arguments["data"]
        loss.current, entropies = call.arguments["output_tensor"].detach(), data.get("per_token_entropy")
        loss.entropies = None if entropies is None else entropies.detach()
        self._log(call.target, data["grpo_batch"], loss, call.result[1].get("entropy/entropy_threshold"))

    def fused_loss_ends(self, call: Call) -> None:
        loss, self._loss = self._loss, None
        if loss is not None and _is_training(call.target):
            loss.is_fused = True
            self._recording.say_once("no_current_logprobs", _updates(call.target) + 1, FUSED, logging.WARNING)
            self._log(call.target, call.arguments["grpo_batch"], loss, None)

    def _log(self, trainer: Trainer, batch: Batch, loss: _Loss, threshold: Tensor | float | None) -> None:
        rows: list[Row] | None = getattr(batch, ROWS, None)
        if rows is None or not _is_first_of_copies(trainer):  # None: a batch from before attach
            return
        if getattr(batch, IS_CHUNK, False):
            setattr(batch, ROWS, None)
        step = _updates(trainer) + 1
        if batch.rollout_per_token_logps is None:
            self._recording.say_once("no_rollout_logprobs", step, NO_ROLLOUT, logging.WARNING)
        per_token = {
            "rollout_logprobs": batch.rollout_per_token_logps,
            "old_logprobs": loss.current if batch.old_per_token_logps is None else batch.old_per_token_logps,
            "current_logprobs": loss.current,
            "reference_logprobs": batch.ref_per_token_logps,
            "entropy": loss.entropies,
            "advantages": batch.advantages,
        }
        visit = self._visits.earlier(step, rows[0].sequence_id)
        given = columns(batch, per_token, _left(trainer, batch, loss, threshold))
        self._recording.log(
            step=step,
            minibatch=visit,
            trainer_version=[row.version for row in rows],
            **given,
            **facts(rows, given["mask"], is_first_visit=visit == 0),
        )

    def _describe(self, trainer: Trainer) -> None:
        if self._recording.has_collector:
            return
        tokenizer = getattr(trainer.template, "tokenizer", None)
        accelerator = getattr(trainer, "accelerator", None)
        self._recording.describe(
            trainer=installed("ms-swift"),
            config=self._recording.watch(lambda: settings(trainer)),
            rank=int(accelerator.process_index if accelerator is not None else trainer.process_index),
            decode=None if tokenizer is None else self._recording.watch(lambda: decoder(tokenizer)),
            versions=VERSIONS,
        )


def _left(trainer: Trainer, batch: Batch, loss: _Loss, threshold: Tensor | float | None) -> dict[str, Tensor]:
    """Reason -> (B, T), true for tokens that the loss leaves out for it; {} if no filter is on."""
    out: dict[str, Tensor] = {}
    mode, mask = getattr(trainer, "rollout_importance_sampling_mode", None) or "", batch.completion_mask
    if trainer.args.overlong_filter and not loss.is_fused:
        out["length"] = batch.truncated_mask[:, None].expand_as(mask)
    if loss.weights is not None and mode.endswith("_mask"):  # both modes reject ratios above the threshold only
        out["sequence" if mode.startswith("sequence") else "high"] = loss.weights == 0
    if loss.kept is not None:
        out["off_policy"] = ~loss.kept[:, None].expand_as(mask)
    if threshold is not None:
        out["other"] = loss.entropies < threshold
    return out


def _is_training(trainer: Trainer) -> bool:
    models = getattr(trainer, "unwrapped_models", None)
    return bool(models[0].training if models else trainer.model.training)


def _updates(trainer: Trainer) -> int:
    """Updates of the trainer's weights so far."""
    state = trainer.state
    return int(state.global_step if hasattr(state, "global_step") else state.iteration)


def _sampled_with(trainer: Trainer) -> int | None:
    """Updates of the weights that have just sampled without a call of `_fast_infer`; None if the trainer does not tell."""
    if hasattr(trainer.state, "global_step"):
        return None if trainer.use_fast_infer else _updates(trainer)  # without vLLM its own model samples
    loaded = getattr(trainer, "_last_loaded_step", None)  # Megatron's counts the calls of a training step
    return _updates(trainer) if loaded == trainer._step else None


def _is_first_of_copies(trainer: Trainer) -> bool:
    """False for the further ranks that split sequences among them: each of them gathers all log-probs of all of them."""
    if trainer.template.sequence_parallel_size == 1 or "swift.sequence_parallel" not in sys.modules:
        return True
    ranks = sys.modules["swift.sequence_parallel"].sequence_parallel
    return bool(ranks.sp_rank == 0 and ranks.rp_rank <= 0)  # -1: no ring


def _holds_the_copy() -> bool:
    """True if this rank is the first of Megatron's ranks with the same tokens."""
    mpu = sys.modules["megatron.core"].mpu
    return bool(mpu.get_tensor_model_parallel_rank() == 0 and mpu.get_context_parallel_rank() == 0)


def settings(trainer: Trainer) -> dict[str, Any]:
    """The settings that decide the gap between engine and trainer; without those that this version lacks."""
    args = trainer.args
    settings = {name: getattr(args, name) for name in _OF_RUN if getattr(args, name, None) is not None}
    sampling = {name: getattr(args, name) for name in _SAMPLING if getattr(args, name, None) is not None}
    return {
        "trainer_class": f"{type(trainer).__module__}.{type(trainer).__qualname__}",
        **settings,
        "sampling": sampling,
    }
