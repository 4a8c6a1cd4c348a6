"""open-instruct's GRPO (grpo_fast and OLMo-core): every pack of every epoch, as its loss sees it; facts from data preparation.

    CollatedBatchData.to             a step's packs, on the host still: where sequences lie is told here
    UlyssesSPSplitter                with sequence parallelism: the packs before a rank takes its slice of each
    resolve_old_logprob              old of one pack, its number and the epoch
    compute_rho_correction           what the correction leaves in the loss
    populate_sample_loss_stats       the same pack after its backward pass: current, reference, entropy
    prepare_collated_data_for_workers    in the data preparation's process: which pack goes where; there rewards, groups and
                                     model steps are known. Workers are not told, so a sequence's id is its place: step,
                                     data-parallel rank, batch, row, document

Trainers are Ray actors whose classes cannot be watched; these functions are called through their modules. Lists of a pack have
T - 1 values: index t scores token t + 1. Query and padding are +1.0 there, and so is a NaN of vLLM; the packs of the host still
have the NaN, which is recorded. Ranks of sequence parallelism score all of their slice but its first token, in the loss too.

Written from open_instruct/{grpo_utils,grpo_fast,olmo_core_train_modules,data_loader,data_types,rl_utils,utils}.py of
allenai/open-instruct at e6c3044a (2026-08-20).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...batch.tokenizer_copy import decoder
from ...process.ranks import process_rank
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from ..installed_name import installed
from .facts import Prepared, facts_of
from .rows import Packs, Slice, pack_rows

_LOSS, _DATA = "open_instruct.grpo_utils", "open_instruct.data_loader"
HOOKS = (
    Hook(_DATA, "StreamingDataLoader.__init__", after="loader_made"),
    Hook("open_instruct.data_types", "CollatedBatchData.to", before="batch_arrives"),
    Hook("open_instruct.utils", "UlyssesSPSplitter.split_collated_batch", after="batch_split", needed=False),
    Hook(_LOSS, "resolve_old_logprob", after="old_resolved"),
    Hook(_LOSS, "compute_rho_correction", after="corrected", needed=False),
    Hook(_LOSS, "populate_sample_loss_stats", before="pack_done"),
    Hook(_LOSS, "finalize_rho_histograms", replace="with_scalars", needed=False),
    Hook("open_instruct.vllm_utils", "broadcast_weights_to_vllm", after="weights_sent", needed=False),
    Hook(_DATA, "accumulate_inference_batches", before="generation_awaited", needed=False),
    Hook(_DATA, "maybe_mask_truncated_completions", after="generated", needed=False),
    Hook("open_instruct.rl_utils", "pack_sequences", before="packing", needed=False),
    Hook(_DATA, "prepare_collated_data_for_workers", after="distributed", needed=False),
)
OLD_IS_ROLLOUT = (
    "with use_vllm_logprobs open-instruct takes vLLM's log-probs as old, so old is not recorded and current over rollout is "
    "total; use_vllm_logprobs=false computes old"
)
OLD_IS_CURRENT = (
    "with one minibatch open-instruct computes no old log-probs and takes the detached current ones of the first epoch; old is "
    "recorded as that. num_mini_batches > 1 computes them"
)
TOOLS_IN_LOSS = (
    "mask_tool_use=false trains on tool tokens, for which open-instruct writes a rollout log-prob of 0.0; they are recorded as "
    "sampled, because workers cannot tell them apart. mask_tool_use=true leaves them out"
)
VERSIONS = (
    "model_step of the request, from the data preparation; with inflight_updates later tokens may be of newer weights"
)
_SETTINGS = (
    "use_rho_correction", "rho_clamp_lower_bound", "rho_clamp_upper_bound", "rho_mask_lower_bound", "rho_mask_upper_bound",
    "rho_mask_sequence_level", "rho_mask_tv_divergence", "use_vllm_logprobs", "num_mini_batches", "num_epochs", "beta",
    "loss_denominator", "record_entropy", "sequence_parallel_size", "learning_rate",
)  # fmt: skip

Tensor = Any


@dataclass
class _Visit:
    """One pack in one epoch. old: None where it is vLLM's. note: what is to be said of old."""

    number: int
    minibatch: int
    old: Tensor | None
    note: tuple[str, str] | None
    weights: Tensor | None = None


class OpenInstructRecorder:
    """Watches a rank of the trainer, or the data preparation, whichever its process is."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._loader: Any = None
        self._whole: tuple[Any, Slice] | None = None
        self._packs: Packs | None = None
        self._visit: _Visit | None = None
        self._is_described, self._has_trained = False, False
        self._prepared: Prepared | None = None
        self._awaited: int | None = None

    def loader_made(self, call: Call) -> None:
        self._loader = call.target

    def batch_split(self, call: Call) -> None:
        chunk = call.result.query_responses[0].shape[-1]
        self._whole = (call.arguments["data"], Slice(chunk * call.target.sp_rank, chunk))

    def batch_arrives(self, call: Call) -> None:
        whole, own = self._whole or (call.target, None)
        self._whole = None
        self._packs = Packs.of_batch(whole, own, prefix=f"{self._step}-{self._loader.dp_rank}")

    def old_resolved(self, call: Call) -> None:
        given = call.arguments
        packs, number = len(given["old_logprobs_cache"]), int(given["sample_idx"])
        each_update = math.ceil(packs / given["num_mini_batches"])
        minibatch = (int(given["epoch_idx"]) * packs + number) // each_update
        note = ("old_is_current", OLD_IS_CURRENT) if given["num_mini_batches"] == 1 else None
        if given["use_vllm_logprobs"]:
            self._visit = _Visit(number, minibatch, None, ("old_is_rollout", OLD_IS_ROLLOUT))
        else:
            self._visit = _Visit(number, minibatch, call.result, note)

    def corrected(self, call: Call) -> None:
        if self._visit is not None:
            self._visit.weights = call.result.weights

    def pack_done(self, call: Call) -> None:
        visit, self._visit = self._visit, None
        given = call.arguments
        if visit is None or self._packs is None or visit.number != int(given["sample_idx"]):
            return
        self._describe(given["config"])
        if not self._has_trained and self._step > 1:
            self._recording.event("resume", self._step, f"training goes on with step {self._step}")
        self._has_trained = True
        if visit.note is not None:
            self._recording.say_once(visit.note[0], self._step, visit.note[1])
        scored = {
            "old_logprobs": visit.old,
            "current_logprobs": given["new_logprobs"],
            "reference_logprobs": given["ref_logprobs"],
            "entropy": given["entropy"],
            "loss_mask": given["response_mask"]
            if visit.weights is None
            else given["response_mask"] & (visit.weights != 0),
        }
        if rows := pack_rows(self._packs, visit.number, scored):
            versions = [self._step - 1] * len(rows["sequence_ids"])
            self._recording.log(step=self._step, minibatch=visit.minibatch, trainer_version=versions, **rows)

    def with_scalars(self, call: Call) -> dict[str, Any] | None:
        """Histograms of the step, beside which the first rank's go to the trainer's log as they are."""
        if not self._recording.has_collector:
            return None
        self._recording.collector.flush(0)
        added = self._recording.scalars(self._step, call.result)
        return {**call.result, **added} if added else None

    def weights_sent(self, call: Call) -> None:
        if self._recording.has_collector and process_rank() == 0:
            version = int(call.arguments["model_step"])
            self._recording.event("weight_sync", version, f"the engines are sent the weights after {version} steps")

    def generation_awaited(self, call: Call) -> None:
        self._awaited = int(call.arguments["training_step"]) + 1  # it counts from 0, the trainer's log from 1

    def generated(self, call: Call) -> None:
        if self._awaited is not None:
            self._prepared = Prepared(self._awaited, call.result, list(call.arguments["result"].finish_reasons))

    def packing(self, call: Call) -> None:
        if self._prepared is not None and not call.arguments["mask_tool_use"]:
            self._describe(None)
            self._recording.say_once("tools_in_loss", self._prepared.step, TOOLS_IN_LOSS)

    def distributed(self, call: Call) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return
        if rows := facts_of(prepared, call.arguments["packed_sequences"], call.result):
            self._describe(None)
            self._recording.log(step=prepared.step, **rows)
            self._recording.collector.flush(0)

    @property
    def _step(self) -> int:
        """The step being trained, as it is logged: the loader counts what it has handed out."""
        return int(self._loader.training_step)

    def _describe(self, config: Any) -> None:
        if self._is_described:
            return
        self._is_described = True
        tokenizer = getattr(self._loader, "tokenizer", None)
        self._recording.describe(
            trainer=installed("open-instruct"),
            config={name: getattr(config, name) for name in _SETTINGS if hasattr(config, name)},
            decode=None if tokenizer is None else decoder(tokenizer),
            versions=VERSIONS,
        )


recorder = OpenInstructRecorder
