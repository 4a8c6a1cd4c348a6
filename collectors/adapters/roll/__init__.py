"""ROLL's actor workers: every micro-batch of every update, from the call of its loss for old log-probs.

    *TrainStrategy.train_step               one optimizer update; its batch has the step
    ActorWorker.get_old_log_probs_with_cache    called by every actor's loss (RLVR, agentic) with the data and current; returns
    old compute_train_infer_correction          in the loss, if old is not recomputed: the tokens that its filters leave
    op_compute_entropy                      in the loss, if it has an entropy term

Tensors are (B, T-1) over prompt and response: index t scores token t+1. response_mask[:, 1:] marks the response; elsewhere
log-probs are 0.0. Rows are shifted to begin with their first sampled token. Without enable_old_logprobs_recompute the batch's
old_log_probs are integer zeros, and old is the first forward pass of the step. With it, the pipeline has already applied filters.
RLVR keeps the mask before filters; elsewhere a token counts as sampled if it has a rollout log-prob. The loss runs on the last
pipeline stage. Tensor- and context-parallel ranks have gathered copies; the first of them writes.

It follows roll/pipeline/base_worker.py, pipeline/{rlvr,agentic}/*actor*_worker.py, utils/train_infer_corrections.py and
distributed/strategy/{megatron,fsdp2}_strategy.py of alibaba/ROLL at 8eb27cc2 (2026-08-19).
"""

import copy
import logging
from dataclasses import dataclass
from typing import Any

from ...adapter import installed
from ...batch.token_texts import decoder
from ...foreign import Tensor
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from ..visits import FirstVisits
from .rows import Data, Names, columns, facts

_STRATEGIES = {"megatron_strategy": "Megatron", "fsdp2_strategy": "FSDP2"}
_WORKER = "roll.pipeline.base_worker"


def _strategy_hooks(module: str, name: str) -> tuple[Hook, ...]:
    at = f"roll.distributed.strategy.{module}"
    return (
        Hook(at, f"{name}TrainStrategy.train_step", before="update_begins", after="update_ends"),
        Hook(at, f"{name}InferStrategy.op_compute_entropy", after="entropy_computed", needed=False),
        Hook(at, f"{name}TrainStrategy.model_update", after="weights_sent", needed=False),
    )


HOOKS = (
    *(hook for module, name in _STRATEGIES.items() for hook in _strategy_hooks(module, name)),
    Hook(_WORKER, "ActorWorker.get_old_log_probs_with_cache", after="scored"),
    Hook(_WORKER, "ActorWorker.train_step", replace="with_scalars", needed=False),
    Hook("roll.utils.train_infer_corrections", "compute_train_infer_correction", after="corrected", needed=False),
)
NO_ROLLOUT = (
    "ROLL's batches have no infer_logprobs, so neither mismatch nor total is recorded; actor_infer.generating_args.logprobs: 0 "
    "records them, null does not"
)
NO_OLD = (
    "ROLL's batches have no sample_uuid and no recomputed old log-probs, only zeros in their place; "
    "enable_old_logprobs_recompute: true computes them"
)
OLD_IS_CURRENT = (
    "without enable_old_logprobs_recompute ROLL uses the detached log-probs of a step's first forward pass as old; the record "
    "has these as old"
)
NO_UPDATE = (
    "no model update was seen before this step, so it is not known which weights sampled, and lag is not recorded. "
    "attach(..., rollout_version=...) can supply the version"
)
NO_VERSIONS = (
    "with async_generation_ratio > 0 ROLL's workers do not know which weights sampled a sequence; they are at most that many "
    "steps old, rounded up. attach(..., rollout_version=...) can supply the version"
)
VERSIONS = (
    "steps: synchronous training samples with the weights of the last model update; unknown with async_generation_ratio"
)
_SETTINGS = (
    "exp_name", "adv_estimator", "ppo_epochs", "importance_sampling", "enable_old_logprobs_recompute", "train_infer_correction",
    "async_generation_ratio", "rollout_batch_size", "pg_clip", "dual_clip_loss", "use_kl_loss", "entropy_loss_coef",
)  # fmt: skip
_OF_WORKERS = {
    "generating_args": ("temperature", "top_p", "top_k", "repetition_penalty"),
    "strategy_args": ("strategy_name",),
    "model_args": ("model_name_or_path", "dtype"),
    "router_replay": ("mode",),
}
"""Part of a worker's configuration -> its settings that decide the gap between engine and trainer."""


@dataclass
class _MicroBatch:
    """A micro-batch during the computation of its loss."""

    worker: Any
    """ROLL's worker, whose loss runs."""
    data: Data
    old: Tensor | None
    """None if ROLL computed none."""
    current: Tensor
    kept: Tensor | None = None
    """1 for tokens that the correction's filters leave, else 0; None without a correction."""
    entropy: Tensor | None = None


class RollRecorder:
    """Watches the actor of its process."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._step: int | None = None
        self._update = -1
        self._sent: int | None = None
        self._has_sent = False
        self._names = Names()
        self._now: _MicroBatch | None = None
        self._visits = FirstVisits()

    def update_begins(self, call: Call) -> None:
        step = int(call.arguments["batch"].meta_info.get("global_step", 0))
        if self._has_sent:
            self._sent, self._has_sent = step, False
        self._update = 0 if step != self._step else self._update + 1
        self._step, self._names, self._now = step, Names(), None

    def scored(self, call: Call) -> None:
        self._log()  # the micro-batch before
        worker, old = call.target, call.result
        place = worker.rank_info
        # the first rank records: the others hold the same tokens
        if self._step is None or place.tp_rank or place.cp_rank:
            return
        current = call.arguments["log_probs"].detach()
        old = old.detach() if old.dtype.is_floating_point else None  # ROLL fills in integers if it computed no old
        self._now = _MicroBatch(worker, call.arguments["data"], old, current)

    def corrected(self, call: Call) -> None:
        if self._now is not None:
            self._now.kept = call.result[1]

    def entropy_computed(self, call: Call) -> None:
        if self._now is not None:
            self._now.entropy = call.result.detach()

    def update_ends(self, call: Call) -> None:
        self._log()

    def with_scalars(self, call: Call) -> Any:
        """The step's result with our scalars among its metrics. The pipeline averages and logs the metrics."""
        if not self._recording.has_collector or self._step is None:
            return None
        self._recording.collector.flush(0)
        metrics = call.result.meta_info["metrics"]
        if not (added := self._recording.scalars(self._step, metrics)):
            return None
        result = copy.copy(call.result)
        result.meta_info = {**call.result.meta_info, "metrics": {**metrics, **added}}
        return result

    def weights_sent(self, call: Call) -> None:
        self._has_sent = True
        if self._recording.has_collector and self._step is not None and call.target.worker.rank_info.dp_rank == 0:
            self._recording.event(
                "weight_sync", self._step + 1, f"the engines have the weights after step {self._step}"
            )

    def _log(self) -> None:
        now, self._now = self._now, None
        if now is None or self._step is None:
            return
        config, step = now.worker.pipeline_config, self._step
        self._describe(now.worker, step)
        known = facts(now.data, step, self._names)
        per_token = columns(
            now.data, old=now.old, current=now.current, kept=now.kept, entropy=now.entropy,
            is_first_visit=self._visits.is_one(step, known.get("sequence_ids")),
        )  # fmt: skip
        if not config.enable_reference:
            per_token.pop("reference_logprobs", None)  # without a reference model ROLL puts a copy of old there
        if "rollout_logprobs" not in per_token:
            self._recording.say_once("no_rollout_logprobs", step, NO_ROLLOUT, logging.WARNING)
        if now.old is None:
            self._recording.say_once("no_old_logprobs", step, NO_OLD, logging.WARNING)
        elif not config.enable_old_logprobs_recompute:
            self._recording.say_once("old_is_current", step, OLD_IS_CURRENT)
        self._recording.log(
            step=step,
            minibatch=self._update,
            trainer_version=step,
            rollout_versions=self._rollout_version(now.worker, step),
            **per_token,
            **known,
        )

    def _rollout_version(self, worker: Any, step: int) -> int | None:
        if (given := self._recording.rollout_version) is not None:
            return given(worker)
        if worker.pipeline_config.async_generation_ratio > 0:
            self._recording.say_once("no_rollout_versions", step, NO_VERSIONS)
            return None
        if self._sent is None:
            self._recording.say_once("no_rollout_versions", step, NO_UPDATE)
        return self._sent

    def _describe(self, worker: Any, step: int) -> None:
        if self._recording.has_collector:
            return
        config = worker.pipeline_config
        settings = {name: getattr(config, name) for name in _SETTINGS if hasattr(config, name)}
        settings |= {
            name: _of_worker(getattr(config, name)) for name in ("actor_infer", "actor_train") if hasattr(config, name)
        }
        self._recording.describe(
            trainer=installed("roll"),
            config=settings,
            rank=int(worker.rank_info.rank),
            decode=None if worker.tokenizer is None else decoder(worker.tokenizer),
            versions=VERSIONS,
        )
        if getattr(config, "resume_from_checkpoint", None) and step > 0 and worker.rank_info.dp_rank == 0:
            self._recording.event("resume", step, f"training goes on with step {step}")


recorder = RollRecorder


def _of_worker(config: Any) -> dict[str, dict[str, Any]]:
    """The settings of a worker that decide the gap; without those that it lacks."""
    parts = {part: getattr(config, part, None) for part in _OF_WORKERS}
    known = {
        part: {name: getattr(own, name) for name in _OF_WORKERS[part] if getattr(own, name, None) is not None}
        for part, own in parts.items()
    }
    return {part: found for part, found in known.items() if found}
