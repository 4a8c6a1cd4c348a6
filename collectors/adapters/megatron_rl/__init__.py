"""Megatron-RL: rollout and old log-probs of a training batch, where Megatron compares them, with the age of every token.

    compute_group_stats                   rewards, advantages, and which weights sampled each token and filled its KV cache
    prepare_trajectories                  the rows of this data-parallel rank, with the engine's log-probs as they came
    align_unpacked_inference_logprobs     old log-probs of the same rows; the record is made here

Megatron puts the old log-prob in the place of one that the engine did not tell, the appended end token's for example. The record
keeps it missing. The current policy is known only in the loss of train_rl.py, whose micro-batches carry no rows' names, so it is
not recorded; neither is packed training (--rl-use-sequence-packing), whose rows are joined before they are compared.

It follows megatron/rl/rl_utils.py of Megatron-LM d98e8a64dd (2026-08-22).
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Integers

from ...foreign import Tensor
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording

MODULE = "megatron.rl.rl_utils"
HOOKS = (
    Hook(MODULE, "compute_group_stats", after="grouped", needed=False),
    Hook(MODULE, "prepare_trajectories", after="prepared"),
    Hook(MODULE, "align_unpacked_inference_logprobs", after="aligned"),
    Hook(MODULE, "pack_inference_logprobs", before="packed", needed=False),
)
VERSIONS = "the epochs of Megatron's inference requests, per token: the iteration whose weights sampled it"
PACKED = "sequence packing is on: Megatron compares packed rows only, so nothing is recorded; leave --rl-use-sequence-packing out"
NO_CURRENT = "Megatron-RL's loss gets micro-batches without names of rows: current is not recorded, mismatch is"
MISSING = (
    "{} sampled tokens of this batch have no log-prob of the engine; Megatron takes the old one in its place. The record keeps "
    "them as missing"
)


@dataclass
class _Batch:
    """The rows of this rank."""

    rows: list[Any]
    tokens: Any
    """(B, T) on the host."""
    generated: Any
    """(B, T), true at generated tokens."""
    told: list[Any]
    """Log-probs of the generated tokens of each row."""


class recorder:
    """Watches the preparation of batches in its process."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._facts: dict[int, Facts] = {}
        self._batch: _Batch | None = None

    def grouped(self, call: Call) -> None:
        self._facts = facts_of(call.arguments["rollouts"], call.result)

    def prepared(self, call: Call) -> None:
        self._batch = _Batch(call.arguments["rows"], *call.result)

    def packed(self, call: Call) -> None:
        if _holds_the_copy():
            self._recording.say_once("packed", _iteration() + 1, PACKED, logging.WARNING)

    def aligned(self, call: Call) -> None:
        batch, self._batch = self._batch, None
        facts, self._facts = self._facts, {}
        if batch is None or not _holds_the_copy():
            return
        step = _iteration() + 1
        self._describe()
        old = call.arguments["old_logprobs_for_data"]
        rows = rows_of(batch.rows, batch.tokens, batch.generated, batch.told, old, facts)
        if not rows:
            return
        missing = sum(row.missing for row in rows)
        if missing:
            self._recording.say_once("filled_with_old", step, MISSING.format(missing), logging.WARNING)
        self._recording.say_once("no_current_logprobs", step, NO_CURRENT)
        rank = _mpu().get_data_parallel_rank()
        columns = {name: [row.columns.get(name) for row in rows] for name in rows[0].columns}
        if "group_ids" in columns:
            columns["group_ids"] = [f"{step}-{group}" for group in columns["group_ids"]]
        self._recording.log(
            step=step,
            trainer_version=step - 1,
            sequence_ids=[f"{step}-{rank}-{row.place}" for row in rows],
            **{name: values for name, values in columns.items() if not any(value is None for value in values)},
        )
        self._recording.collector.flush(0)

    def _describe(self) -> None:
        if not self._recording.has_collector:
            told = self._recording.watch(lambda: dict(vars(_arguments())))
            self._recording.describe(
                trainer=f"Megatron-RL {getattr(sys.modules.get('megatron.core'), '__version__', '(version unknown)')}",
                config=told,
                rank=_mpu().get_data_parallel_rank(),
                versions=VERSIONS,
            )


def _arguments() -> Any:
    return sys.modules[MODULE].get_args()


def _iteration() -> int:
    """Updates of the weights so far, which Megatron calls the current iteration."""
    return int(_arguments().curr_iteration)


def _mpu() -> Any:
    return sys.modules[MODULE].mpu


def _holds_the_copy() -> bool:
    """Whether this rank is the first of those with the same rows."""
    mpu = _mpu()
    ranks = (mpu.get_tensor_model_parallel_rank, mpu.get_pipeline_model_parallel_rank, mpu.get_context_parallel_rank)
    return not any(rank() for rank in ranks)


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
    """The sequences of rows that have generated tokens, from the first of these to the last.

    tokens, generated: (B, T) on the host; old: (B, T - 1).
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
