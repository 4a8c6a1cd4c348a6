"""The facts of a completion at sampling, before TRL shuffles the rows. All values are on the host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.conversation import conversation_text

from ...foreign import Trainer


@dataclass(frozen=True)
class Row:
    """The facts of a completion at sampling; None if the trainer does not have them."""

    sequence_id: str
    group_id: str
    step: int
    """The trainer's next logged step."""
    version: int
    """The updates of the trainer's weights so far."""
    rollout_version: int | None
    replica: str | None
    length: int | None
    sampled: Sequence[int] | None
    """1 at sampled tokens, 0 at tool tokens; None if all tokens are sampled."""
    finish_reason: str | None
    is_hidden: bool
    """True if the trainer will not score it."""
    reward: float | None
    extra: Mapping[str, Any] | None
    prompt: str | None
    again: Any = None
    """The log-probs of a second forward, (T,); None if the row was not read again."""


@dataclass(frozen=True)
class Completions:
    """The completions from the engine."""

    ids: Sequence[Sequence[int]]
    """Token ids."""
    sampled: Sequence[Sequence[int]] | None
    """The tool masks; None without tools."""


def sampled_rows(
    trainer: Trainer,
    examples: Sequence[Mapping[str, Any]],
    completions: Completions | None,
    *,
    first: int,
    loaded: int | None,
) -> list[Row]:
    """One Row per example, in the order of the examples.

    first: number of rows that this rank sampled earlier with the same weights. loaded: version of the weights that sampled,
    None if not known. A rollout_func may give each row its own version as `rollout_version`, and the
    engine's name as `replica`.
    """
    version, rank, count = trainer.state.global_step, trainer.accelerator.process_index, len(examples)
    first_of_all = first * trainer.accelerator.num_processes + rank * count  # TRL gathers rows rank by rank
    totals, parts = _rewards(trainer, count)
    return [
        Row(
            sequence_id=f"{version + 1}-{rank}-{first + index}",
            group_id=f"{version + 1}-{(first_of_all + index) // trainer.num_generations}",
            step=version + 1,
            version=version,
            rollout_version=loaded if example.get("rollout_version") is None else int(example["rollout_version"]),
            replica=example.get("replica"),
            reward=totals[index],
            extra={"rewards": parts[index]} if len(trainer.reward_func_names) > 1 else None,
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


def _rewards(trainer: Trainer, count: int) -> tuple[list[float | None], list[dict[str, float | None]]]:
    """(weighted sum, None if no function gave a reward; reward function -> reward) of this rank's rows, from TRL's table.

    TRL logs the mean of the sums as `reward`.
    """
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
    return [None if none else float(value) for value, none in zip(weighted, unscored, strict=True)], parts


def turns(sampled: Any) -> Any:
    """The turn of each token, (..., T), from 0: a turn begins with each run of sampled tokens.

    sampled: a boolean mask (..., T), a tensor or an array, which does not change.
    """
    begins = sampled & True  # a copy, for tensors and arrays alike
    begins[..., 1:] &= ~sampled[..., :-1]
    return (begins.cumsum(-1) - 1).clip(min=0)


def turns_of(row: Row) -> Any:
    """The turns of one row; None without tools."""
    return None if row.sampled is None else turns(np.array(row.sampled, bool))


def prompt_text(prompt: Any) -> str | None:
    """The prompt as text: unchanged if it is text, else one line per message of the conversation."""
    if prompt is None or isinstance(prompt, str):
        return prompt
    return conversation_text(prompt)
