"""xtuner's packs as sequences: from the first trained token of each to its last."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Booleans, Integers

from ...foreign import Tensor
from ..sampled_spans import sampled_span

IGNORED = -100
"""The label of a token that is not trained."""


@dataclass(frozen=True)
class Pack:
    """Sequences one after the other. Arrays have a value per token."""

    place: int
    """The place of the pack among those of its rank."""
    lengths: list[int]
    prompts: list[Integers]
    token_ids: Integers
    mask: Booleans
    """True at sampled tokens, as it was before xtuner's rollout correction."""
    places: Integers
    """In the pack."""

    def own(self, values: Tensor) -> Tensor:
        """Values (1, L) of the loss, one per token here; on their device, without waiting."""
        places = sys.modules["torch"].from_numpy(self.places).to(values.device, non_blocking=True)
        return values.detach().flatten()[places]

    def columns(self) -> dict[str, Any]:
        """Arguments of `log` that are known before the loss."""
        return {
            "lengths": self.lengths,
            "token_ids": self.token_ids,
            "mask": self.mask,
            "prompt_ids": self.prompts,
        }


def unpacked(data: Mapping[str, Any], place: int) -> Pack:
    """The sequences of a WorkerInputItem, whose tensors lie on the host. Padding is a sequence without a trained token."""
    held = data["seq_ctx"]
    tokens = np.array(held.input_ids.detach().cpu(), np.int64).reshape(-1)
    labels = np.array(data["shifted_labels"].detach().cpu(), np.int64).reshape(-1)
    bounds = np.asarray(held.cu_seq_lens_q.detach().cpu()).tolist()
    pieces = list[tuple[int, int, int]]()
    for start, end in zip(bounds[:-1], bounds[1:], strict=True):
        if (span := sampled_span(labels[start:end] != IGNORED)) is not None:
            pieces.append((start, start + span[0], start + span[1]))
    places = np.concatenate([np.zeros(0, np.int64), *(np.arange(first, end) for _, first, end in pieces)])
    mask = labels[places] != IGNORED
    following = np.append(tokens[1:], 0)[places]  # the token of a label that is not trained, as that of a tool's reply
    return Pack(
        place=place,
        lengths=[end - first for _, first, end in pieces],
        prompts=[tokens[start : first + 1] for start, first, _ in pieces],
        token_ids=np.where(mask, labels[places], following),
        mask=mask,
        places=places,
    )
