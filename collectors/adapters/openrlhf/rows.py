"""Rows of the Record from OpenRLHF's experiences: the facts of a sample on the host, and its columns on the device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from ...foreign import Tensor
from ..sampled_spans import SampledFirst
from ..zero_fill import without_fill

Experience = Any


@dataclass(frozen=True)
class Sample:
    """The facts of one sample before the replay buffer is shuffled; None if OpenRLHF does not have them."""

    sequence_id: str
    group_id: str | None
    reward: float | None
    finish_reason: str | None
    prompt: str | None


def samples_of(items: Sequence[Experience], step: int, rank: int) -> dict[int, Sample]:
    """The samples by identity of the replay buffer's item. Samples with equal prompts are one group."""
    return {id(item): _sample(item, step, f"{step}-{rank}-{index}") for index, item in enumerate(items)}


def columns(
    experience: Experience, given: Mapping[str, Tensor], entropy: Tensor | None, *, is_first_visit: bool
) -> dict[str, Tensor]:
    """Per-token columns of a micro-batch, each row from its first action on, and the prompts at the first visit.

    given: the arguments of the loss.
    """
    mask = given["action_mask"]
    moved = SampledFirst(mask)
    width = mask.shape[1]
    rollout = given["rollout_log_probs"]
    per_token = {  # OpenRLHF writes 0.0 for a sampled token without a log-prob from vLLM
        "rollout_logprobs": None if rollout is None else without_fill(rollout, given["old_log_probs"]),
        "old_logprobs": given["old_log_probs"],
        "current_logprobs": given["log_probs"],
        "reference_logprobs": experience.base_action_log_probs,
        "advantages": given["advantages"],
        "entropy": None if entropy is None else entropy[:, -width:],
        "token_ids": experience.sequences[:, -width:],
    }
    shifted = {name: moved(values) for name, values in per_token.items() if values is not None}
    prompts = {"prompt_ids": experience.sequences, "prompt_mask": moved.before(experience.attention_mask)}
    return {"mask": moved.mask, "loss_mask": moved.mask, **shifted, **(prompts if is_first_visit else {})}


def _sample(item: Experience, step: int, sequence_id: str) -> Sample:
    prompt = item.prompts[0] if item.prompts else None
    group = None if prompt is None else f"{step}-{blake2b(prompt.encode(), digest_size=6).hexdigest()}"
    truncated = _number(item.truncated)
    finish_reason = None if truncated is None else "length" if truncated else "stop"
    reward = item.info.get("reward")
    return Sample(sequence_id, group, _number(item.rewards if reward is None else reward), finish_reason, prompt)


def _number(value: Any) -> float | None:
    """A number on the host; None for a number on a device, because reading it would wait for the device."""
    if value is None:
        return None
    is_far = hasattr(value, "device") and value.device.type != "cpu"
    return None if is_far else float(value)
