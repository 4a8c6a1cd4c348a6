"""ART's packed rows as sequences: one per id in a row that has sampled tokens, from its first sampled token to its last."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Booleans, Integers, Singles
from ratioscope.record import MASK_REASONS

from ...foreign import Tensor


@dataclass(frozen=True)
class PackedSequences:
    """Sequences one after the other. Arrays have a value per token."""

    names: list[str]
    """Row and id of each sequence."""
    groups: list[str]
    """Row and id of the prompt that sequences share."""
    lengths: list[int]
    prompts: list[Integers]
    """The tokens in front of each sequence, those of its shared prompt first."""
    token_ids: Integers
    mask: Booleans
    rollout: Singles
    old: Singles | None
    """None if ART computed none before training."""
    advantages: Singles
    weights: Singles
    """The loss leaves tokens of weight 0 out."""
    places: Integers
    """In the flattened (B, S) of the loss, where a token's log-prob stands at the token before it."""

    @property
    def missing(self) -> int:
        """Sampled tokens without a log-prob of the sampler."""
        return int((self.mask & ~np.isfinite(self.rollout)).sum())

    def own(self, values: Tensor) -> Tensor:
        """Values (B, S) of the loss, one per token here; on their device, without waiting."""
        places = sys.modules["torch"].from_numpy(self.places).to(values.device, non_blocking=True)
        return values.detach().flatten()[places]

    def columns(self) -> dict[str, Any]:
        """Arguments of `log` that are known before the loss."""
        left = self.mask & (self.weights == 0)
        columns = {
            "lengths": self.lengths,
            "token_ids": self.token_ids,
            "mask": self.mask,
            "loss_mask": self.mask & ~left,
            "rollout_logprobs": np.where(np.isfinite(self.rollout), self.rollout, np.float32(np.nan)),
            "old_logprobs": self.old,
            "advantages": self.advantages,
            "prompt_ids": self.prompts,
            "mask_reasons": left * np.int16(MASK_REASONS.index("other")) if left.any() else None,
        }
        return {name: value for name, value in columns.items() if value is not None}


def unpacked(inputs: Mapping[str, Any]) -> PackedSequences:
    """The sequences of a call of the loss. inputs: ART's TrainInputs, (B, S) tensors on the host."""
    names = ("tokens", "group_ids", "parent_ids", "assistant_mask", "logprobs", "advantages", "weights")
    rows = {name: np.asarray(inputs[name].detach().cpu()) for name in names}
    original = inputs.get("original_logprobs")
    rollout, old = (rows["logprobs"], None) if original is None else (np.asarray(original.cpu()), rows["logprobs"])
    found, prompts = list[tuple[str, str, Integers]](), list[Integers]()
    width = rows["tokens"].shape[1]
    for row in range(len(rows["tokens"])):
        sampled = rows["assistant_mask"][row].astype(bool)
        sampled[0] = False  # no position predicts the first token
        ids, parents = rows["group_ids"][row], rows["parent_ids"][row]
        for name in dict.fromkeys(ids[sampled].tolist()):
            own = np.flatnonzero(ids == name)
            first, last = np.flatnonzero(sampled[own])[[0, -1]]
            parent = int(parents[own[0]])
            shared = np.flatnonzero(ids == parent) if parent != name else own[:0]
            prompts.append(rows["tokens"][row][np.concatenate([shared, own[:first]])])
            found.append((f"{row}-{name}", f"{row}-{parent}", row * width + own[first : last + 1]))
    places = np.concatenate([np.zeros(0, np.int64), *(place for _, _, place in found)])
    flat = {name: values.reshape(-1)[places] for name, values in rows.items()}
    return PackedSequences(
        names=[name for name, _, _ in found],
        groups=[group for _, group, _ in found],
        lengths=[len(place) for _, _, place in found],
        prompts=prompts,
        token_ids=flat["tokens"],
        mask=flat["assistant_mask"].astype(bool),
        rollout=rollout.reshape(-1)[places],
        old=None if old is None else old.reshape(-1)[places],
        advantages=flat["advantages"],
        weights=flat["weights"],
        places=places - 1,
    )
