"""Megatron-RL's rows as sequences, from the first generated token to the last."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Integers

from ...foreign import Tensor


@dataclass(frozen=True)
class Facts:
    """The facts of a rollout."""

    group: str
    """The id of the prompt that rollouts share."""
    reward: float
    advantage: float
    policy: Sequence[tuple[int, int]]
    """(epoch, tokens) runs over its tokens, whose weights sampled them."""
    cache: Sequence[tuple[int, int]]
    """(epoch, tokens) runs over its tokens, whose weights filled their KV cache."""


@dataclass(frozen=True)
class Row:
    """A sequence of the record."""

    place: int
    """The place of the row among those of its rank."""
    missing: int
    """Generated tokens that the engine told no log-prob of."""
    columns: Mapping[str, Any]
    """Arguments of `log`, each with the value of this sequence."""


def facts_of(groups: Sequence[Sequence[Any]], stats: Any) -> dict[int, Facts]:
    """id of a rollout -> its facts. groups: rollouts; stats: Megatron's RolloutStats of them."""
    advantages, found = iter(stats.advantages), dict[int, Facts]()
    for number, group in enumerate(groups):
        for place, rollout in enumerate(group):
            found[id(rollout)] = Facts(
                group=str(number),
                reward=float(stats.rewards[number][place]),
                advantage=float(next(advantages)),
                policy=[tuple(run) for run in stats.policy_epoch_segments[number][place]],
                cache=[tuple(run) for run in stats.kv_cache_epoch_segments[number][place]],
            )
    return found


def rows_of(
    rows: Sequence[Any], tokens: Tensor, generated: Tensor, told: Sequence[Any], old: Tensor, facts: Mapping[int, Facts]
) -> list[Row]:
    """The sequences of rows that have generated tokens. tokens, generated: (B, T) on the host; old: (B, T - 1).

    told: the engine's log-probs of the generated tokens of each row, in their order. It may have fewer.
    """
    runs = []
    for place, row in enumerate(rows):
        places = np.flatnonzero(np.asarray(generated[place]))
        places = places[places > 0]  # no position predicts the first token
        if row is None or told[place] is None or not len(places):
            continue
        first, end = int(places[0]), int(places[-1]) + 1
        rollout = np.full(end - first, np.nan, np.float32)
        known = np.asarray(told[place], np.float32)[: len(places)]
        rollout[places[: len(known)] - first] = known
        columns: dict[str, Any] = {
            "rollout_logprobs": rollout,
            "old_logprobs": old[place, first - 1 : end - 1].detach(),
            "mask": np.isin(np.arange(first, end), places),
            "token_ids": np.asarray(tokens[place, first:end]),
            "prompt_ids": np.asarray(tokens[place, :first]),
        }
        whole = row[0] if isinstance(row, tuple) else row  # (rollout, turn) if its turns could not be joined
        if (its := facts.get(id(whole))) is not None:
            columns |= {"group_ids": its.group, "rewards": its.reward, "advantages": its.advantage}
            if not isinstance(row, tuple):
                length = len(whole.trajectory[-1])
                columns["rollout_versions"] = _per_token(its.policy, length, first, end)
                columns["kv_versions"] = _per_token(its.cache, length, first, end)
        missing = int(np.isnan(rollout[places - first]).sum())
        runs.append(Row(place, missing, columns))
    return runs


def _per_token(runs: Sequence[tuple[int, int]], length: int, first: int, end: int) -> Integers | None:
    """The epoch of each token from `first` to `end`; None if the runs do not cover the `length` tokens once, as in turns."""
    epochs = np.repeat([epoch for epoch, _ in runs], [count for _, count in runs]).astype(np.int64)
    return epochs[first:end] if len(epochs) == length >= end else None
