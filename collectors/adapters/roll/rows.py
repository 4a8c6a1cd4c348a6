"""Rows of the Record from ROLL's batches, on the device that they are on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ..sampled_spans import SampledFirst
from ..zero_fill import without_fill

Data = Any
"""A DataProto: `batch` of tensors, `non_tensor_batch` of arrays of objects. `Any`, because ROLL is no dependency."""
Tensor = Any

GROUPS = ("traj_group_id", "group_ids", "id")
"""What tells samples of one prompt: agentic, agentic by step, and the prompt's id in RLVR's data."""


@dataclass
class Names:
    """Ids within one update. adjust_batch may copy samples with their ids to fill a batch: the copies are numbered."""

    _seen: Counter[str] = field(default_factory=Counter)

    def of(self, given: Any) -> list[str]:
        found = []
        for name in map(str, given):
            self._seen[name] += 1
            found.append(name if self._seen[name] == 1 else f"{name}.{self._seen[name]}")
        return found


def columns(
    data: Data, *, old: Tensor | None, current: Tensor, kept: Tensor | None, entropy: Tensor | None
) -> dict[str, Tensor]:
    """Per-token columns of a micro-batch, each row from its first sampled token on."""
    batch = data.batch
    rollout = batch.get("infer_logprobs", None)
    rollout = None if rollout is None or len(rollout) == 0 else rollout
    responses = batch["response_mask"][:, 1:].bool()
    in_loss = batch.get("final_response_mask", batch["response_mask"][:, 1:]).bool()
    in_loss = in_loss if kept is None else in_loss & (kept != 0)
    moved = SampledFirst(_sampled(batch.get("origin_response_mask", None), responses, rollout))
    per_token = {
        "rollout_logprobs": None if rollout is None else without_fill(rollout, current if old is None else old),
        "old_logprobs": old,
        "current_logprobs": current,
        "reference_logprobs": batch.get("ref_log_probs", None),
        "advantages": batch.get("advantages", None),
        "entropy": entropy,
        "token_ids": batch["input_ids"][:, 1:],
    }
    told = {name: moved(values) for name, values in per_token.items() if values is not None}
    told |= {"mask": moved.mask, "loss_mask": moved.where(in_loss)}
    if any(name in data.non_tensor_batch for name in ("traj_group_id", "env_ids")):
        told["turns"] = turns(moved.mask)
    return told


def turns(mask: Tensor) -> Tensor:
    """Which turn each token is of, from 0: a turn is an uninterrupted run of sampled tokens."""
    begins = mask.clone()
    begins[:, 1:] &= ~mask[:, :-1]
    return (begins.cumsum(1) - 1).clamp(min=0)


def facts(data: Data, step: int, names: Names) -> dict[str, Any]:
    """Per-sequence values, as far as the batch has them."""
    known = data.non_tensor_batch
    group = next((known[name] for name in GROUPS if name in known), None)
    if "episode_scores" in known:
        rewards: Any = [float(score) for score in known["episode_scores"]]
    else:
        scores = data.batch.get("scores", None)  # one per token in agentic batches
        rewards = scores if scores is not None and scores.ndim == 1 else None
    told = {
        "sequence_ids": names.of(known["sample_uuid"]) if "sample_uuid" in known else None,
        "group_ids": None if group is None else [f"{step}-{one}" for one in group],
        "rewards": rewards,
    }
    return {name: value for name, value in told.items() if value is not None}


def _sampled(origin: Tensor | None, responses: Tensor, rollout: Tensor | None) -> Tensor:
    """The mask from before filtering: as it was kept, else with the tokens that have a rollout log-prob."""
    if origin is not None:
        return origin[:, 1:].bool()
    return responses if rollout is None else responses | (rollout != 0)
