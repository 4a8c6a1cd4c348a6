"""torchtitan's packed micro-batches as sequences: one per sample, from its first sampled token to its last."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ratioscope.arrays import Booleans, Integers, Singles
from ratioscope.record import MASK_REASONS

from ..sampled_spans import sampled_span

NAMES = "ratioscope_names"
"""The attribute of a tensor of positions: where a sample begins -> its name."""
Name: TypeAlias = tuple[str, int, int, int]
"""A sample: torchtitan's text of its id, its group, and the oldest and newest version that sampled it. Plain values."""


@dataclass(frozen=True)
class PackedSequences:
    """Sequences one after the other. Arrays have a value per token."""

    names: list[Name | None]
    lengths: list[int]
    prompts: list[Integers]
    token_ids: Integers
    mask: Booleans
    rollout: Singles
    advantages: Singles
    places: Integers
    """In the flattened batch."""

    @property
    def missing(self) -> int:
        """Sampled tokens without a finite log-prob of the generator."""
        return int((self.mask & ~np.isfinite(self.rollout)).sum())

    def ids(self, prefix: str) -> list[str]:
        return [f"{prefix}-{place}" if name is None else name[0] for place, name in enumerate(self.names)]

    def columns(self) -> dict[str, Any]:
        """Arguments of `log` that are known before the loss."""
        left = self.mask & ~np.isfinite(self.rollout)
        columns: dict[str, Any] = {
            "lengths": self.lengths,
            "token_ids": self.token_ids,
            "mask": self.mask,
            "loss_mask": self.mask & ~left,
            "rollout_logprobs": np.where(np.isfinite(self.rollout), self.rollout, np.float32(np.nan)),
            "advantages": self.advantages,
            "prompt_ids": self.prompts,
        }
        if left.any():
            columns["mask_reasons"] = left * np.int16(MASK_REASONS.index("other"))
        known = [name for name in self.names if name is not None]
        if len(known) == len(self.names):
            columns["group_ids"] = [str(group) for _, group, _, _ in known]
            columns["rollout_versions"] = {
                "min": [oldest for _, _, oldest, _ in known],
                "max": [newest for _, _, _, newest in known],
            }
        return columns


def named(samples: Sequence[Any], lengths: Sequence[int]) -> dict[int, Name]:
    """The first token of each sample of a row -> the sample's name. lengths: tokens that each has in the row."""
    starts = np.cumsum([0, *lengths])[:-1].tolist()
    return {start: _name(sample) for start, sample in zip(starts, samples, strict=True)}


def _name(sample: Any) -> Name:
    own = sample.rollout_id
    return own.to_string(), int(own.group_id), int(sample.min_policy_version), int(sample.max_policy_version)


def unpacked(batch: Any) -> PackedSequences:
    """The samples of a TrainingMicrobatch, whose tensors lie on the host. One without a sampled token is left out."""
    names = ("token_ids", "labels", "positions", "generator_logprobs", "loss_mask", "advantages")
    flat = {name: np.asarray(getattr(batch, name).detach().cpu()).reshape(-1) for name in names}
    given: dict[int, Name] = getattr(batch.positions, NAMES, {})
    starts = np.flatnonzero(flat["positions"] == 0)
    pieces = list[tuple[int, int, int]]()
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(flat["positions"])], strict=True):
        if (span := sampled_span(flat["loss_mask"][start:end])) is not None:
            pieces.append((start, start + span[0], start + span[1]))
    places = np.concatenate([np.zeros(0, np.int64), *(np.arange(first, end) for _, first, end in pieces)])
    return PackedSequences(
        names=[given.get(start) for start, _, _ in pieces],
        lengths=[end - first for _, first, end in pieces],
        prompts=[flat["token_ids"][start : first + 1] for start, first, _ in pieces],
        token_ids=flat["labels"][places],
        mask=flat["loss_mask"][places].astype(bool),
        rollout=flat["generator_logprobs"][places],
        advantages=flat["advantages"][places],
        places=places,
    )
