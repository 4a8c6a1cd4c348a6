"""The places of sequences in open-instruct's packs, read on the host, and slices of the trainer's tensors at these places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Array

from ...foreign import Tensor
from ..sampled_spans import sampled_span

Batch = Any
"""A CollatedBatchData, of lists of `(rows, T)` tensors. `Any`, because open-instruct is no dependency."""


@dataclass(frozen=True)
class Slice:
    """The part of every row that a rank of sequence parallelism has."""

    start: int
    """First token."""
    length: int


@dataclass(frozen=True)
class Place:
    """The place of a sequence in its pack."""

    sequence_id: str
    row: int
    tokens: slice
    """From the first sampled token to the last."""
    first: int
    """The first token of its document."""


@dataclass(frozen=True)
class Packs:
    """The packs of a step, whole and on the host."""

    batch: Batch
    own: Slice | None
    """The rank's slice of each pack; None: the whole pack."""
    places: Sequence[Sequence[Place]]
    """The sequences of each pack."""

    @classmethod
    def of_batch(cls, batch: Batch, own: Slice | None, *, prefix: str) -> Packs:
        """The packs of a batch. prefix: of all sequence ids."""
        pairs = zip(batch.attention_masks, batch.response_masks, strict=True)
        places = [
            list(places_in(np.asarray(documents), np.asarray(mask), f"{prefix}-{number}"))
            for number, (documents, mask) in enumerate(pairs)
        ]
        return cls(batch, own, places)


def places_in(documents: Array, mask: Array, prefix: str) -> Iterator[Place]:
    """The sequences of a pack. documents, `(rows, T)`: each token's document, from 1. mask, `(rows, T)`: response tokens."""
    for row, (of_row, sampled) in enumerate(zip(documents, mask != 0, strict=True)):
        for document in range(1, int(of_row.max(initial=0)) + 1):
            own = np.flatnonzero(of_row == document)
            span = sampled_span(sampled[own[0] : own[-1] + 1]) if len(own) else None
            if span is not None:
                first = int(own[0])
                yield Place(
                    f"{prefix}-{row}-{document - 1}", row, slice(first + max(span[0], 1), first + span[1]), first
                )


def pack_rows(packs: Packs, number: int, scored: Mapping[str, Tensor | None]) -> dict[str, Any]:
    """Arguments of `Collector.log` for one pack; {} if the rank's slice has no sampled token of it.

    scored: argument name -> values `(rows, T - 1)` of the whole pack, or those of the rank's slice.
    """
    batch, own = packs.batch, packs.own or Slice(0, 1 << 62)
    held = {
        "rollout_logprobs": batch.vllm_logprobs[number],
        "advantages": batch.advantages[number],
        "token_ids": batch.query_responses[number],
        "mask": batch.response_masks[number],
    }
    rows: dict[str, list[Any]] = {name: [] for name in ("sequence_ids", "positions", *held, *scored)}
    for place in packs.places[number]:
        first = max(place.tokens.start, own.start + 1)
        end = min(place.tokens.stop, own.start + own.length)
        if first >= end:
            continue
        rows["sequence_ids"].append(place.sequence_id)
        rows["positions"].append(np.arange(first, end, dtype=np.int32) - place.tokens.start)
        for name, values in held.items():
            rows[name].append(values[place.row, first:end])
        for name, tensor in scored.items():
            shift = own.start + 1
            rows[name].append(None if tensor is None else tensor[place.row, first - shift : end - shift])
    if not rows["sequence_ids"]:
        return {}
    if packs.own is None:
        del rows["positions"]
    return {name: values for name, values in rows.items() if any(value is not None for value in values)}
