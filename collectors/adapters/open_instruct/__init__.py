"""open-instruct's GRPO (grpo_fast and OLMo-core): every pack of every epoch from its loss; facts from data preparation.

    CollatedBatchData.to             a step's packs, still on the host: here the places of sequences are read
    UlyssesSPSplitter                with sequence parallelism: the packs before a rank takes its slice of each
    resolve_old_logprob              old of one pack, its number and the epoch
    compute_rho_correction           the tokens that the correction leaves in the loss
    populate_sample_loss_stats       the same pack after its backward pass: current, reference, entropy
    prepare_collated_data_for_workers    in the data preparation's process: the worker of each pack. This process knows rewards,
                                     groups and model steps; workers do not. The id of a sequence is therefore its place: step,
                                     data-parallel rank, batch, row, document

Trainers are Ray actors, and their classes cannot be watched. The functions above can, because they are called through their
modules. Per-token values of a pack have T - 1 entries: index t scores token t + 1. At the query, at padding and for a NaN of vLLM
the loss's values are +1.0. The packs on the host still have the NaN, so NaN is recorded. A rank of sequence parallelism scores
all tokens of its slice but the first, in the loss too.

It follows open_instruct/{grpo_utils,grpo_fast,olmo_core_train_modules,data_loader,data_types,rl_utils,utils}.py of
allenai/open-instruct at e6c3044a (2026-08-20).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...adapter import installed
from ...batch.token_texts import decoder
from ...foreign import Tensor
from ...process.ranks import process_rank
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from .rows import Packs, Slice, pack_rows, places_in

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
    "with use_vllm_logprobs open-instruct uses vLLM's log-probs as old: old is not recorded, total (current over rollout) is; "
    "use_vllm_logprobs=false records old"
)
OLD_IS_CURRENT = (
    "with one minibatch open-instruct computes no old log-probs and uses the detached current ones of the first epoch; the "
    "record has these as old. With num_mini_batches > 1 open-instruct computes old"
)
TOOLS_IN_LOSS = (
    "mask_tool_use=false trains on tool tokens, whose rollout log-prob open-instruct sets to 0.0; they are recorded as sampled, "
    "because workers cannot tell them from sampled tokens. mask_tool_use=true leaves them out"
)
VERSIONS = (
    "model_step of the request, from the data preparation; with inflight_updates later tokens may have newer weights"
)
_SETTINGS = (
    "use_rho_correction", "rho_clamp_lower_bound", "rho_clamp_upper_bound", "rho_mask_lower_bound", "rho_mask_upper_bound",
    "rho_mask_sequence_level", "rho_mask_tv_divergence", "use_vllm_logprobs", "num_mini_batches", "num_epochs", "beta",
    "loss_denominator", "record_entropy", "sequence_parallel_size", "learning_rate",
)  # fmt: skip


@dataclass
class _Visit:
    """One pack in one epoch."""

    number: int
    """The pack's number within the step."""
    minibatch: int
    old: Tensor | None
    """None if old is vLLM's."""
    note: tuple[str, str] | None
    """(kind, text) of the message about old; None if old is the trainer's own."""
    weights: Tensor | None = None
    """The weights of the rho correction; None without it."""


class OpenInstructRecorder:
    """Watches a rank of the trainer, or the data preparation, depending on its process."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._loader: Any = None
        self._whole: tuple[Any, Slice] | None = None
        self._packs: Packs | None = None
        self._visit: _Visit | None = None
        self._has_trained = False
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
        """The step's histograms with our scalars added. The trainer logs the first rank's."""
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
        self._awaited = int(call.arguments["training_step"]) + 1  # the argument counts from 0, the trainer's log from 1

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
        """The step in training, as the trainer logs it: the number of batches that the loader has returned."""
        return int(self._loader.training_step)

    def _describe(self, config: Any) -> None:
        if self._recording.has_collector:
            return
        tokenizer = getattr(self._loader, "tokenizer", None)
        self._recording.describe(
            trainer=installed("open-instruct"),
            config={name: getattr(config, name) for name in _SETTINGS if hasattr(config, name)},
            decode=None if tokenizer is None else decoder(tokenizer),
            versions=VERSIONS,
        )


recorder = OpenInstructRecorder


Batch = Any
PackedSequences = Any
"""`Any`, because open-instruct is no dependency."""


@dataclass(frozen=True)
class Prepared:
    """The responses of a step, in the order of packing."""

    step: int
    batch: Batch
    finish_reasons: Sequence[str]

    def facts(self, index: int) -> dict[str, Any]:
        """The facts of one response by argument of `log`; None if not known."""
        batch = self.batch
        group = None if batch.indices is None else f"{self.step}-{batch.indices[index]}"
        return {
            "group_ids": group,
            "rewards": None if batch.scores is None else float(batch.scores[index]),
            "finish_reasons": str(self.finish_reasons[index]),
            "rollout_versions": int(batch.model_steps[index]) if batch.model_steps else None,
            "prompt_texts": None if batch.raw_queries is None else batch.raw_queries[index],
            "trainer_version": self.step - 1,
        }


def facts_of(prepared: Prepared, packed: PackedSequences, sent: Sequence[Any]) -> dict[str, Any]:
    """Arguments of `Collector.log`: facts, rollout and mask of all sequences that workers get; {} if there are none.

    packed: rows in the order of packing; where a response ends, `dones` has its number, from 1. sent: the batches of each worker,
    in another order; equal tokens identify a row.
    """
    numbers = {np.asarray(row).tobytes(): number for number, row in enumerate(packed.query_responses)}
    rows: list[dict[str, Any]] = []
    for worker, batch in enumerate(sent):
        for pack, tokens in enumerate(batch.query_responses):
            documents, mask = np.asarray(batch.attention_masks[pack]), np.asarray(batch.response_masks[pack])
            for place in places_in(documents, mask, f"{prepared.step}-{worker}-{pack}"):
                length = int(np.count_nonzero(documents[place.row]))
                number = numbers[np.asarray(tokens[place.row, :length]).tobytes()]
                responses = [int(done) - 1 for done in packed.dones[number] if done]
                document = int(place.sequence_id.rpartition("-")[2])
                rows.append(
                    {
                        "sequence_ids": place.sequence_id,
                        "rollout_logprobs": batch.vllm_logprobs[pack][place.row, place.tokens],
                        "token_ids": tokens[place.row, place.tokens],
                        "pack_index": place.row,
                        "pack_position": document,
                        "prompt_ids": tokens[place.row, place.first : place.tokens.start],
                        "mask": mask[place.row, place.tokens],
                        **prepared.facts(responses[document]),
                    }
                )
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}
