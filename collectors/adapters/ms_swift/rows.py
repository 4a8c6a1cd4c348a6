"""The facts of ms-swift's samples when they are put into a micro-batch, and the columns of a micro-batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratioscope.record import MASK_REASONS

from ...foreign import Tensor
from ..sampled_spans import SampledFirst
from ..trl.rows import prompt_text, turns

Sample = Any
"""ms-swift's OnPolicySample."""

NOTED = "ratioscope_facts"
"""The attribute of a sample that holds what was noted on it. It travels with the sample to other ranks, which get a copy."""
NOT_SAMPLED = -100
"""The label of tokens that were not sampled, prompts and tool results for example."""


@dataclass(frozen=True)
class Row:
    """The facts of a sample; None if ms-swift does not have them."""

    sequence_id: str
    group_id: str
    step: int
    """The trainer's next logged step at sampling."""
    version: int
    """Updates of the trainer's weights at sampling."""
    rollout_version: int | None
    reward: float | None
    """The weighted sum of the rewards; NaN if no function gave one."""
    ids: Sequence[int]
    """Prompt and completion."""
    start: int
    """The place of the first sampled token in `ids`."""
    finish_reason: str | None
    media: int
    turns: int
    prompt: str | None


def note(sample: Sample, **known: Any) -> None:
    """Keeps facts of a sample on it."""
    sample.__dict__.setdefault(NOTED, {}).update(known)


def noted(sample: Sample) -> dict[str, Any]:
    """The facts that were kept on a sample."""
    noted: dict[str, Any] = vars(sample).get(NOTED, {})
    return noted


def row(sample: Sample, **known: Any) -> Row:
    """The facts of a sample that has been encoded. known: those that it does not hold itself."""
    ids, labels = sample.encoded["input_ids"], sample.encoded["labels"]
    return Row(
        ids=ids,
        start=next((place for place, label in enumerate(labels) if label != NOT_SAMPLED), len(labels)),
        finish_reason=sample.finish_reason,
        media=sum(len(getattr(sample, kind, None) or ()) for kind in ("images", "videos", "audios")),
        turns=len(sample.rollout_logprobs) or 1,
        prompt=prompt_text([message for message in sample.messages if message.get("role") != "assistant"]),
        **known,
    )


def columns(batch: Any, per_token: Mapping[str, Tensor | None], left: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Per-token columns, each row from its first sampled token on.

    per_token: column -> (B, T). left: reason in MASK_REASONS -> (B, T), true for tokens that the loss leaves out for it.
    """
    mask = batch.completion_mask.bool()
    numbers = mask.short() * 0
    for reason, tokens in left.items():
        numbers = numbers.masked_fill(tokens & mask & (numbers == 0), MASK_REASONS.index(reason))
    moved = SampledFirst(mask)
    arrays = {name: moved(values) for name, values in per_token.items() if values is not None}
    arrays |= {"mask": moved.mask, "loss_mask": moved.where(mask & (numbers == 0))}
    return arrays | ({"mask_reasons": moved(numbers)} if left else {})


def facts(rows: list[Row], mask: Tensor, *, is_first_visit: bool) -> dict[str, Any]:
    """Per-sequence arguments of `log`. mask: of the sampled tokens, each row from its first one on."""
    rewards = [row.reward for row in rows]
    versions = [row.rollout_version for row in rows]
    columns: dict[str, Any] = {
        "sequence_ids": [row.sequence_id for row in rows],
        "group_ids": [row.group_id for row in rows],
        "generation_step": [row.step for row in rows],
        "rollout_versions": None if None in versions else versions,
        "finish_reasons": [row.finish_reason for row in rows],
        "media": [row.media for row in rows] if any(row.media for row in rows) else None,
        "token_ids": [row.ids[row.start :] for row in rows],
        "prompt_texts": [row.prompt for row in rows],
        "turns": turns(mask) if any(row.turns > 1 for row in rows) else None,
        "rewards": None if None in rewards else rewards,
    }
    if is_first_visit:
        columns["prompt_ids"] = [row.ids[: row.start] for row in rows]
    return {name: value for name, value in columns.items() if value is not None}


def weighted(rewards: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of each row's rewards, (N,); NaN if no function gave one. rewards: (N, functions), NaN where none."""
    none = rewards.isnan().all(1)
    return (rewards.nan_to_num(0.0) * weights[None, :]).sum(1).masked_fill(none, float("nan"))
