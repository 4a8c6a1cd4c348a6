"""Rows of the Record from prime-rl's packed micro-batches: the places of sequences, and slices of the trainer's tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Array, Booleans

from ...foreign import Tensor
from ..sampled_spans import sampled_span

MicroBatch = Mapping[str, Any]


@dataclass(frozen=True)
class PackedSequences:
    """The sequences of a micro-batch on the host, one after the other."""

    lengths: tuple[int, ...]
    sampled: Booleans
    """Tokens that the policy sampled. Tokens of a frozen model are in the cross-entropy loss and have no rollout log-prob."""
    in_loss: Booleans
    """Sampled tokens in the policy loss or in the reference KL."""

    @classmethod
    def of_tensors(cls, batch: MicroBatch, lengths: Sequence[int]) -> PackedSequences:
        """The sequences of the trainer's batch, `(1, T)` tensors on the host."""
        trained = _flat(batch["loss_mask"]).astype(bool)
        rl, cross, reference = (_weights(batch.get(name)) for name in ("rl_weights", "ce_weights", "ref_kl_weights"))
        sampled = trained if cross is None else trained & (cross == 0)
        in_loss = sampled if rl is None else sampled & ((rl != 0) | (False if reference is None else reference != 0))
        return cls(tuple(lengths), sampled, in_loss)

    def spans(self) -> list[tuple[int, slice]]:
        """(place in the row, tokens from the first sampled to the last) of each sequence with a sampled token."""
        spans, start = [], 0
        for place, length in enumerate(self.lengths):
            span = sampled_span(self.sampled[start : start + length])
            if span is not None:
                first = max(span[0], 1)  # the first token of a sequence is not scored by the trainer
                if first < span[1]:
                    spans.append((place, slice(start + first, start + span[1])))
            start += length
        return spans


def packed_rows(
    packed: PackedSequences,
    batch: MicroBatch,
    output: Mapping[str, Tensor],
    prefix: str,
    heads: Mapping[str, Tensor] | None = None,
) -> dict[str, Any]:
    """Arguments of `Collector.log` for a micro-batch; {} if the policy sampled none of its tokens.

    heads: log-probs of both sides at the ids of the batch's sampling mask, which lie at the place of the sampled token.
    """
    spans = packed.spans()
    if not spans:
        return {}
    cuts = [cut for _, cut in spans]

    def slices(values: Tensor | None) -> list[Tensor] | None:
        if values is None:
            return None
        flat = values.reshape(-1)
        return [flat[cut] for cut in cuts]

    flat = batch["input_ids"].reshape(-1)
    starts = [sum(packed.lengths[:place]) for place, _ in spans]
    columns = {
        "prompt_ids": [flat[start : cut.start] for start, cut in zip(starts, cuts, strict=True)],
        "rollout_logprobs": slices(batch["inference_logprobs"]),
        "current_logprobs": slices(output["logprobs"]),
        "entropy": slices(output.get("entropy")),
        "reference_logprobs": slices(batch.get("ref_logprobs")),
        "token_ids": slices(batch["input_ids"]),
        "advantages": slices(batch["advantages"]),
    }
    return {
        **{name: values for name, values in columns.items() if values is not None},
        **_topk(batch.get("sampling_mask"), heads or {}, cuts),
        "mask": [packed.sampled[cut] for cut in cuts],
        "pack_position": [place for place, _ in spans],
        "loss_mask": [packed.in_loss[cut] for cut in cuts],
        "sequence_ids": [f"{prefix}-{place}" for place, _ in spans],
        "extra": [{"environment": batch["env_names"][cut.start]} for cut in cuts],
    }


def _topk(ids: Tensor | None, heads: Mapping[str, Tensor], cuts: Sequence[slice]) -> dict[str, Any]:
    """The ids of the sampling mask with the log-probs of both sides; {} where the batch has not all three of one shape."""
    if ids is None or len(heads) < 2 or any(ids.shape[1:] != values.shape for values in heads.values()):
        return {}
    return {name: [values[cut] for cut in cuts] for name, values in {"topk_ids": ids[0], **heads}.items()}


def _flat(values: Tensor) -> Array:
    return np.asarray(values).reshape(-1)


def _weights(values: Tensor | None) -> Array | None:
    return None if values is None else _flat(values)
