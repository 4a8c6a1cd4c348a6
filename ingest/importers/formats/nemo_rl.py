"""NeMo-RL: `train_data_step{N}.jsonl` of its logger, and the replay buffer that an asynchronous run keeps in a checkpoint.

Lists of the logger span prompt and response, padded, each in a list of one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ratioscope.errors import UnsafeFile

from ..restricted.inert import Instance, opened
from ..restricted.names import classes
from ..row import Unreadable, flat
from ..table import FileKind, Format, columns

_TRAIN = FileKind(
    what="training rows of a step",
    file=r"train_data_step(?P<step>\d+)\.jsonl",
    container="json lines",
    marks=("generation_logprobs", "token_loss_mask"),
    unwrapped=True,
    columns=columns("""
        step = @step
        sequence_ids = idx or @row | named(@step)
        rollout_logprobs = generation_logprobs | span(token_loss_mask) !
        old_logprobs = prev_logprobs | absent_if_zero | span(token_loss_mask)
        mask = token_loss_mask | span(token_loss_mask) | nonzero
        loss_mask = token_loss_mask | span(token_loss_mask) | zero_if_zero(sample_loss_mask) | nonzero
        token_ids = token_ids | span(token_loss_mask)
        prompt_ids = token_ids | before(token_loss_mask)
        advantages = advantages | span(token_loss_mask)
        rewards = filtered_rewards or rewards
        extra.content = content
        extra.agent_ref = agent_ref
        extra.unfiltered_reward = rewards | number
    """),
    lacks="current log-probs and versions; old log-probs where all are 0, a placeholder of what was not computed",
)
_OF_SAMPLES = ("total_reward", "loss_multiplier", "truncated", "idx")
_LISTS = ("trajectories", "trajectory_versions", "target_weight_versions")


def _buffer(value: Any) -> Any:
    """The groups of a buffer, each with the version that sampled it and the version that it was kept for."""
    if isinstance(value, Mapping) and "groups" in value and "partition_id" in value:
        raise UnsafeFile(
            "it is the buffer of NeMo-RL's SingleController, whose samples lie packed for its data plane and are not read; the"
            " files train_data_step{N}.jsonl hold both sides"
        )
    held: list[Any] = [value.get(name) for name in _LISTS] if isinstance(value, Mapping) else [None]
    if not all(isinstance(each, list) for each in held) or len({len(each) for each in held}) != 1:
        raise UnsafeFile(f"it is no replay buffer of NeMo-RL: wanted the lists {', '.join(_LISTS)}, all of one length")
    return {
        "groups": [
            {"group": group, "sampled_by": version, "kept_for": target, "place": place}
            for place, (group, version, target) in enumerate(zip(*held, strict=True))
        ]
    }


def _samples(row: Mapping[str, Any]) -> Iterator[Any]:
    """A row for each sample of a group: its messages, one after the other."""
    group = row["group"]
    batch = group["batch"]
    state = batch.state if isinstance(batch, Instance) else batch
    held = state["data"] if "data" in state else state
    when = row["place"] if group.get("timestamp") is None else group["timestamp"]
    for place, messages in enumerate(held["message_log"]):
        try:
            own = {name: _entry(held.get(name), place) for name in _OF_SAMPLES}
            yield {**row, **own, **_conversation(messages), "when": when, "sample": place}
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            yield Unreadable(
                f"its sample {place} is not of the form that is expected ({type(error).__name__}: {error})"
            )


def _entry(column: Any, place: int) -> Any:
    column = opened(column)
    if not isinstance(column, (list, tuple, np.ndarray)):
        return None
    if len(column) <= place:
        raise ValueError(f"a column has {len(column)} entries, and there is a sample {place}")
    return column[place]


def _conversation(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The tokens of a conversation. A message of the assistant that has log-probs was sampled; of others they are filler."""
    parts: list[tuple[Any, Any, bool]] = []
    turns: list[int] = []
    for message in messages:
        ids = flat(opened(message["token_ids"]), "token_ids")
        logprobs = message.get("generation_logprobs") if message.get("role") == "assistant" else None
        values = np.full(len(ids), np.nan) if logprobs is None else flat(opened(logprobs), "generation_logprobs")
        if len(values) != len(ids):
            raise ValueError(f"a message has {len(ids)} tokens and {len(values)} log-probs")
        turns.append(sum(is_sampled for _, _, is_sampled in parts))
        parts.append((ids, values, logprobs is not None))
    return {
        "token_ids": np.concatenate([ids for ids, _, _ in parts]),
        "logprobs": np.concatenate([values for _, values, _ in parts]),
        "mask": np.concatenate([np.full(len(ids), is_sampled) for ids, _, is_sampled in parts]),
        "turns": np.concatenate([np.full(len(ids), turn) for turn, (ids, _, _) in zip(turns, parts, strict=True)]),
    }


_BUFFER = FileKind(
    what="groups of a replay buffer that no step has trained on yet",
    file=r"(?:step_(?P<step>\d+)/(?:.*/)?)?[^/]*replay_buffer[^/]*\.pt",
    container="torch",
    marks=("^groups",),
    rows="groups",
    prepared=_buffer,
    split=_samples,
    side="rollout",
    columns=columns("""
        step = kept_for !
        sequence_ids = sample | named(kept_for, when)
        group_ids = when | named(kept_for)
        rollout_logprobs = logprobs | span(mask) !
        mask = mask | span(mask)
        loss_mask = mask | span(mask) | zero_if_zero(loss_multiplier) | nonzero
        token_ids = token_ids | span(mask)
        turns = turns | span(mask)
        prompt_ids = token_ids | before(mask)
        rewards = total_reward
        rollout_versions = sampled_by
        trainer_version = kept_for
        extra.truncated = truncated
        extra.prompt = idx
    """),
    lacks="the trainer's side; the step is the version of the weights that a group is kept for",
)
FORMATS = (
    Format(
        name="nemo-rl",
        title="NeMo-RL train_data_step{N}.jsonl and replay_buffer.pt",
        trainer="nemo_rl",
        parts=(_TRAIN, _BUFFER),
        names=classes(("nemo_rl.distributed.batched_data_dict.BatchedDataDict",)),
    ),
)
