"""Packed sequences: those of a row or batch of tokens, one after the other, and where the loss has a log-prob for each token."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ratioscope.arrays import Booleans, Integers, Singles
from ratioscope.record import MASK_REASONS

from ..foreign import Tensor
from .sampled_spans import sampled_span


@dataclass(frozen=True)
class Packed:
    """Sequences one after the other. Arrays have a value per token."""

    names: list[Any]
    """The trainer's facts that name each sequence; None for one whose name is not known."""
    lengths: list[int]
    prompts: list[Integers]
    """The tokens in front of each sequence, those of a shared prompt first."""
    token_ids: Integers
    mask: Booleans
    places: Integers
    """In the flattened tensors of the loss, where a token's log-prob stands."""
    rollout: Singles | None = None
    """Log-probs of the sampler; None if they come with the loss."""
    old: Singles | None = None
    """None if the trainer computed none before training."""
    advantages: Singles | None = None
    left: Booleans | None = None
    """True at sampled tokens that the loss leaves out; None if that comes with the loss."""

    @property
    def missing(self) -> int:
        """Sampled tokens without a finite log-prob of the sampler."""
        return 0 if self.rollout is None else int((self.mask & ~np.isfinite(self.rollout)).sum())

    def own(self, values: Tensor) -> Tensor:
        """Values of the loss, (B, S) or flat, one per token here; on their device, without waiting."""
        places = sys.modules["torch"].from_numpy(self.places).to(values.device, non_blocking=True)
        return values.detach().flatten()[places]

    def columns(self) -> dict[str, Any]:
        """Arguments of `log` that are known before the loss; None for those that are not."""
        rollout, left = self.rollout, self.left
        return {
            "lengths": self.lengths,
            "token_ids": self.token_ids,
            "mask": self.mask,
            "prompt_ids": self.prompts,
            "rollout_logprobs": None
            if rollout is None
            else np.where(np.isfinite(rollout), rollout, np.float32(np.nan)),
            "old_logprobs": self.old,
            "advantages": self.advantages,
            "loss_mask": None if left is None else self.mask & ~left,
            "mask_reasons": None if left is None or not left.any() else left * np.int16(MASK_REASONS.index("other")),
        }


def sampled_pieces(sampled: Booleans, bounds: Sequence[int]) -> tuple[list[tuple[int, int, int]], Integers]:
    """(start, first sampled token, one past the last) of each sequence with a sampled token, and the places of all their tokens.

    bounds: where sequences begin, and the end of the last one.
    """
    spans = [(start, sampled_span(sampled[start:end])) for start, end in pairwise(bounds)]
    pieces = [(start, start + span[0], start + span[1]) for start, span in spans if span is not None]
    return pieces, np.concatenate([np.zeros(0, np.int64), *(np.arange(first, end) for _, first, end in pieces)])
