"""What TRL's trainer knows of a completion when it has been sampled, before the rows are shuffled. Host values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Trainer = Any


@dataclass(frozen=True)
class Row:
    """What is known of a completion when it has been sampled; None: the trainer does not tell.

    step, version: of the trainer at that time, its next logged step and the updates its weights have had. sampled: 1 at
    sampled tokens, 0 at tool tokens; None where all are sampled. is_hidden: the trainer will not score it.
    """

    sequence_id: str
    group_id: str
    step: int
    version: int
    rollout_version: int
    replica: str | None
    length: int | None
    sampled: Sequence[int] | None
    finish_reason: str | None
    is_hidden: bool
    reward: float | None
    extra: Mapping[str, Any] | None
    prompt: str | None


@dataclass(frozen=True)
class Completions:
    """As the engine gave them; `sampled` is the tool mask, None without tools."""

    ids: Sequence[Sequence[int]]
    sampled: Sequence[Sequence[int]] | None


@dataclass(frozen=True)
class _Rewards:
    total: list[float | None]
    parts: list[dict[str, float | None]]


def sampled_rows(
    trainer: Trainer, examples: Sequence[Mapping[str, Any]], completions: Completions | None, *, first: int, loaded: int
) -> list[Row]:
    """One Row per example, in its order.

    first: how many rows of this rank the trainer sampled earlier with the same weights. loaded: version of the weights that
    sampled; a rollout_func may say it of each row under `rollout_version`, and the engine's name under `replica`.
    """
    version, rank, count = trainer.state.global_step, trainer.accelerator.process_index, len(examples)
    first_of_all = first * trainer.accelerator.num_processes + rank * count  # as TRL gathers them: rank by rank
    rewards = _rewards(trainer, count)
    return [
        Row(
            sequence_id=f"{version + 1}-{rank}-{first + index}",
            group_id=f"{version + 1}-{(first_of_all + index) // trainer.num_generations}",
            step=version + 1,
            version=version,
            rollout_version=int(example.get("rollout_version", loaded)),
            replica=example.get("replica"),
            reward=rewards.total[index],
            extra={"rewards": rewards.parts[index]} if len(trainer.reward_func_names) > 1 else None,
            prompt=prompt_text(example.get("prompt")),
            **_completion_facts(trainer, completions, index),
        )
        for index, example in enumerate(examples)
    ]


def _completion_facts(trainer: Trainer, completions: Completions | None, index: int) -> dict[str, Any]:
    if completions is None:
        return {"length": None, "sampled": None, "finish_reason": None, "is_hidden": False}
    ids = completions.ids[index]
    ends = (*trainer.eos_token_ids, trainer._tokenizer.pad_token_id)
    finish_reason = None if not ids else "stop" if ids[-1] in ends else "length"
    return {
        "length": len(ids),
        "sampled": None if completions.sampled is None else list(completions.sampled[index]),
        "finish_reason": finish_reason,
        "is_hidden": trainer.mask_truncated_completions and finish_reason == "length",
    }


def _rewards(trainer: Trainer, count: int) -> _Rewards:
    """Rewards of this rank's rows, as TRL keeps them for its table of completions; the total is what it logs as `reward`."""
    names = list(trainer.reward_func_names)
    kept = [list(trainer._logs["rewards"][name]) for name in names]
    total_rows = count * trainer.accelerator.num_processes
    first = trainer.accelerator.process_index * count
    values = np.array([column[len(column) - total_rows :][first : first + count] for column in kept], np.float32)
    weighted = np.nansum(values * np.array(trainer.reward_weights.tolist(), np.float32)[:, None], axis=0)
    unscored = [bool(row.all()) for row in np.isnan(values).T]
    parts = [
        {name: None if np.isnan(value) else float(value) for name, value in zip(names, row, strict=True)}
        for row in values.T
    ]
    return _Rewards([None if none else float(value) for value, none in zip(weighted, unscored, strict=True)], parts)


def turns(sampled: Any) -> Any:
    """(..., T): how many stretches of tool tokens came before, from the first sampled token on; of a (..., T) boolean mask.

    sampled: a tensor or an array, which stays as it is.
    """
    begins = sampled & True  # a copy, of either
    begins[..., 1:] &= ~sampled[..., :-1]
    return (begins.cumsum(-1) - 1).clip(min=0)


def turns_of(row: Row) -> Any:
    """The turns of one row, from what is known of it on the host; None where there are no tools."""
    return None if row.sampled is None else turns(np.array(row.sampled, bool))


def prompt_text(prompt: Any) -> str | None:
    """The prompt as given: text, or one line per message of a conversation."""
    if prompt is None or isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message.get('role')}: {_content(message.get('content'))}" for message in prompt)


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", f"[{part.get('type')}]") for part in content)
    return str(content)
