"""Rows of the Record from ROLL's batches, on the batches' own device."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ...foreign import Tensor
from ..openrlhf.rows import without_fill
from ..sampled_spans import SampledFirst
from ..trl.rows import turns

Data = Any
"""A DataProto: `batch` of tensors, `non_tensor_batch` of arrays of objects. `Any`, because ROLL is no dependency."""

GROUPS = ("traj_group_id", "group_ids", "id")
"""The columns that name a sample's prompt, in order of preference: agentic, agentic by step, RLVR's prompt id."""


@dataclass
class Names:
    """Unique ids within one update. ROLL's adjust_batch may fill a batch with copies of samples, which keep their ids."""

    _seen: Counter[str] = field(default_factory=Counter)
    """Id -> how often it has occurred in the update."""

    def of(self, given: Any) -> list[str]:
        """The ids; copies get a number behind theirs."""
        ids = []
        for name in map(str, given):
            self._seen[name] += 1
            ids.append(name if self._seen[name] == 1 else f"{name}.{self._seen[name]}")
        return ids


def columns(
    data: Data,
    *,
    old: Tensor | None,
    current: Tensor,
    kept: Tensor | None,
    entropy: Tensor | None,
    is_first_visit: bool,
) -> dict[str, Tensor]:
    """Per-token columns of a micro-batch, each row from its first sampled token on, and the prompts at the first visit."""
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
    shifted = {name: moved(values) for name, values in per_token.items() if values is not None}
    shifted |= {"mask": moved.mask, "loss_mask": moved.where(in_loss)}
    if is_first_visit and (attention := batch.get("attention_mask", None)) is not None:
        shifted |= {"prompt_ids": batch["input_ids"], "prompt_mask": moved.before(attention)}
    if any(name in data.non_tensor_batch for name in ("traj_group_id", "env_ids")):
        shifted["turns"] = turns(moved.mask)
    return shifted


def facts(data: Data, step: int, names: Names) -> dict[str, Any]:
    """Per-sequence arguments of `log`, as far as the batch has them."""
    known = data.non_tensor_batch
    group = next((known[name] for name in GROUPS if name in known), None)
    if "episode_scores" in known:
        rewards: Any = [float(score) for score in known["episode_scores"]]
    else:
        scores = data.batch.get("scores", None)  # one per token in agentic batches
        rewards = scores if scores is not None and scores.ndim == 1 else None
    values = {
        "sequence_ids": names.of(known["sample_uuid"]) if "sample_uuid" in known else None,
        "group_ids": None if group is None else [f"{step}-{one}" for one in group],
        "rewards": rewards,
    }
    return {name: value for name, value in values.items() if value is not None}


def _sampled(origin: Tensor | None, responses: Tensor, rollout: Tensor | None) -> Tensor:
    """The mask before filters: ROLL's copy, else the responses and all tokens with a rollout log-prob."""
    if origin is not None:
        return origin[:, 1:].bool()
    return responses if rollout is None else responses | (rollout != 0)
