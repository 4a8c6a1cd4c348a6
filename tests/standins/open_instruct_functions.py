"""Functions and classes of open-instruct, of exact signature, bodies our own (allenai/open-instruct at e6c3044a, 2026-08-20).

Each with its file under open_instruct: resolve_old_logprob, compute_rho_correction, mask_logprobs, populate_sample_loss_stats,
finalize_rho_histograms (grpo_utils.py), CollatedBatchData (data_types.py), UlyssesSPSplitter (utils.py), pack_sequences
(rl_utils.py), StreamingDataLoader, accumulate_inference_batches, maybe_mask_truncated_completions,
prepare_collated_data_for_workers (data_loader.py), broadcast_weights_to_vllm (vllm_utils.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from standins.module_table import Table

INVALID_LOGPROB = 1.0
Tensors = list[torch.Tensor]


@dataclass
class CollatedBatchData:
    query_responses: Tensors
    attention_masks: Tensors
    position_ids: Tensors
    advantages: Tensors
    response_masks: Tensors
    vllm_logprobs: Tensors

    def __getitem__(self, idx: slice) -> CollatedBatchData:
        return CollatedBatchData(**{one.name: getattr(self, one.name)[idx] for one in fields(self)})

    def __len__(self) -> int:
        return len(self.query_responses)

    def to(self, device: torch.device, non_blocking: bool = True) -> CollatedBatchData:
        moved = {one.name: [t.to(device).clone() for t in getattr(self, one.name)] for one in fields(self)}
        return replace(self, **moved)


class UlyssesSPSplitter:
    def __init__(self, sp_rank: int, sp_world_size: int) -> None:
        self.sp_rank, self.sp_world_size = sp_rank, sp_world_size

    def split_collated_batch(self, data: CollatedBatchData) -> CollatedBatchData:
        longest = max(tensor.shape[-1] for tensor in data.query_responses)
        chunk = math.ceil(longest / self.sp_world_size)
        own = slice(chunk * self.sp_rank, chunk * (self.sp_rank + 1))

        def part(name: str, tensor: torch.Tensor) -> torch.Tensor:
            fill = INVALID_LOGPROB if name == "vllm_logprobs" else 0
            width = chunk * self.sp_world_size - tensor.shape[-1]
            return torch.nn.functional.pad(tensor, (0, width), value=fill)[:, own]

        return CollatedBatchData(**{f.name: [part(f.name, t) for t in getattr(data, f.name)] for f in fields(data)})


@dataclass
class RhoCorrection:
    weights: torch.Tensor
    metrics: dict[str, torch.Tensor]
    histogram_metrics: dict[str, torch.Tensor] = field(default_factory=dict)


def mask_logprobs(vllm_logprobs: torch.Tensor, response_mask: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(vllm_logprobs.masked_fill(~response_mask, INVALID_LOGPROB), nan=INVALID_LOGPROB)


def resolve_old_logprob(
    old_logprobs_cache: list[torch.Tensor | None],
    sample_idx: int,
    epoch_idx: int,
    num_mini_batches: int,
    use_vllm_logprobs: bool,
    vllm_logprobs: torch.Tensor,
    new_logprobs: torch.Tensor,
) -> torch.Tensor:
    if num_mini_batches == 1 and epoch_idx == 0:
        old_logprobs_cache[sample_idx] = vllm_logprobs if use_vllm_logprobs else new_logprobs.detach()
    found = old_logprobs_cache[sample_idx]
    assert found is not None
    return found


def compute_rho_correction(
    old_logprob: torch.Tensor,
    vllm_logprobs: torch.Tensor,
    response_mask: torch.Tensor,
    advantages: torch.Tensor,
    config: Any,
) -> RhoCorrection:
    ratio = torch.where(response_mask, old_logprob - vllm_logprobs, 0.0).clamp(-10, 10).exp()
    if not config.use_rho_correction:
        return RhoCorrection(torch.ones_like(ratio), {}, {"val/rho_hist": ratio[response_mask]})
    kept = response_mask & (ratio < config.rho_mask_upper_bound)
    return RhoCorrection(torch.where(kept, ratio, 0.0), {}, {"val/rho_hist": ratio[response_mask]})


def populate_sample_loss_stats(
    loss_stats_B: dict[str, torch.Tensor],
    sample_idx: int,
    pg_loss: torch.Tensor,
    clipfrac: torch.Tensor,
    ratio: torch.Tensor,
    loss: torch.Tensor,
    response_mask: torch.Tensor,
    new_logprobs: torch.Tensor,
    ref_logprobs: torch.Tensor | None,
    entropy: torch.Tensor | None,
    config: Any,
    rho_metrics: dict[str, torch.Tensor] | None = None,
) -> None:
    loss_stats_B["loss/total"][sample_idx] = loss.detach()


def finalize_rho_histograms(acc: dict[str, Tensors]) -> dict[str, Any]:
    return {key: torch.cat(chunks).numpy() for key, chunks in acc.items()}


class StreamingDataLoader:
    def __init__(
        self, *, tokenizer: Any, num_training_steps: int = 0, dp_world_size: int = 1, dp_rank: int = 0
    ) -> None:
        self.tokenizer, self.dp_rank, self.num_training_steps, self.training_step = (
            tokenizer,
            dp_rank,
            num_training_steps,
            0,
        )


@dataclass
class Batch:
    queries: list[list[int]]
    raw_queries: list[str] | None
    indices: list[int] | None
    scores: list[float] | None
    model_steps: list[int] = field(default_factory=list)

    def __getitem__(self, key: list[int]) -> Batch:
        return Batch(**{one.name: [getattr(self, one.name)[i] for i in key] for one in fields(self)})


@dataclass
class GenerationResult:
    responses: list[list[int]]
    finish_reasons: list[str]
    masks: list[list[int]]
    logprobs: list[list[float]]


def accumulate_inference_batches(
    inference_results_Q: Any, generation_config: Any, num_prompts: int, training_step: int
) -> tuple[GenerationResult, Batch]:
    made: tuple[GenerationResult, Batch] = inference_results_Q(training_step)
    return made


def maybe_mask_truncated_completions(result: GenerationResult, batch: Batch, enabled: bool) -> Batch:
    if not enabled:
        return batch
    kept = [index for index, reason in enumerate(result.finish_reasons) if reason == "stop"]
    for name in ("responses", "finish_reasons", "masks", "logprobs"):
        setattr(result, name, [getattr(result, name)[index] for index in kept])
    return batch[kept]


def pack_sequences(
    queries: list[list[int]],
    responses: list[list[int]],
    masks: list[list[int]],
    pack_length: int,
    pad_token_id: int,
    vllm_logprobs: list[list[float]],
    min_num_batches: int = 1,
    mask_tool_use: bool = False,
) -> Any:
    names = ("query_responses", "attention_masks", "response_masks", "position_ids", "dones", "vllm_logprobs")
    packs: list[dict[str, list[Any]]] = []
    for index, (query, response) in enumerate(zip(queries, responses, strict=True)):
        size = len(query) + len(response)
        if not packs or len(packs[-1]["dones"]) + size > pack_length:
            packs.append({name: [] for name in names} | {"documents": [0]})
        pack = packs[-1]
        pack["documents"][0] += 1
        pack["query_responses"] += query + response
        pack["attention_masks"] += [pack["documents"][0]] * size
        pack["position_ids"] += range(size)
        sampled = masks[index] if mask_tool_use else [1] * len(response)
        pack["response_masks"] += [0] * len(query) + [index + 1 if one else 0 for one in sampled]
        pack["dones"] += [0] * (size - 1) + [index + 1]
        pack["vllm_logprobs"] += [math.nan] * len(query) + vllm_logprobs[index]
    return SimpleNamespace(**{name: [torch.tensor(pack[name]) for pack in packs] for name in names}, advantages=None)


def prepare_collated_data_for_workers(
    packed_sequences: Any,
    dp_world_size: int,
    per_device_train_batch_size: int,
    pad_token_id: int,
    pin_memory: bool = True,
) -> list[CollatedBatchData]:
    count = len(packed_sequences.query_responses) // dp_world_size
    made = []
    for worker in range(dp_world_size):
        order = np.random.permutation(range(count * worker, count * (worker + 1)))
        groups = [order[at : at + per_device_train_batch_size] for at in range(0, count, per_device_train_batch_size)]
        columns = {}
        for one in fields(CollatedBatchData):
            rows = getattr(packed_sequences, one.name)
            columns[one.name] = [
                torch.nn.utils.rnn.pad_sequence([rows[index] for index in group], batch_first=True, padding_value=0)
                for group in groups
            ]
        made.append(CollatedBatchData(**columns))
    return made


def broadcast_weights_to_vllm(
    model: Any, vllm_engines: list[Any], model_update_group: Any | None, model_step: int, name_mapper: Any = None,
    gather_whole_model: bool = True,
) -> list[Any]:  # fmt: skip
    return []


TABLE: Table = {
    "open_instruct.grpo_utils": {
        "mask_logprobs": mask_logprobs, "resolve_old_logprob": resolve_old_logprob,
        "compute_rho_correction": compute_rho_correction, "populate_sample_loss_stats": populate_sample_loss_stats,
        "finalize_rho_histograms": finalize_rho_histograms,
    },
    "open_instruct.data_types": {"CollatedBatchData": CollatedBatchData},
    "open_instruct.utils": {"UlyssesSPSplitter": UlyssesSPSplitter},
    "open_instruct.data_loader": {
        "StreamingDataLoader": StreamingDataLoader, "accumulate_inference_batches": accumulate_inference_batches,
        "maybe_mask_truncated_completions": maybe_mask_truncated_completions,
        "prepare_collated_data_for_workers": prepare_collated_data_for_workers, "pack_sequences": pack_sequences,
    },
    "open_instruct.rl_utils": {"pack_sequences": pack_sequences},
    "open_instruct.vllm_utils": {"broadcast_weights_to_vllm": broadcast_weights_to_vllm},
}  # fmt: skip
