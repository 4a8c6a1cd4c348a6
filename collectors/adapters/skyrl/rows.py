"""A SkyRL training batch as columns of `log`: right-aligned rows cut to their tokens, as views, without the padding rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..trl.rows import prompt_text
from .sampling import Sampling

CLAMPED = -9999.0
"""What SkyRL's servers put where the engine gave no finite log-prob (inference_servers/generate_wire.py)."""

Tensor = Any
"""A torch.Tensor. `Any`, because torch is no dependency."""
Batch = Any
"""A TrainingInputBatch: a dict of tensors (B, T) with a `metadata`, on the CPU."""


@dataclass(frozen=True)
class Facts:
    """What is known of each row before the batch is trained on. One value per row, padding rows not among them.

    masks: sampled tokens, before filtering, without end-of-sequence tokens that no engine sampled. trajectories, turns,
    last_steps: with step-wise trajectories, where a row is one turn; None elsewhere.
    """

    sequence_ids: list[str]
    uids: list[str]
    samplings: list[Sampling]
    masks: Sequence[Sequence[int]]
    rewards: Tensor
    stop_reasons: Sequence[str | None] | None
    trajectories: list[str] | None
    last_steps: Sequence[bool] | None

    def columns(self, rows: slice) -> dict[str, Any]:
        samplings = self.samplings[rows]
        texts = {uid: prompt_text(s.prompt) for uid, s in zip(self.uids[rows], samplings, strict=True)}
        return {
            "sequence_ids": self.sequence_ids[rows],
            "group_ids": self.uids[rows],
            "generation_step": [s.step for s in samplings],
            "rollout_versions": [s.version for s in samplings],
            "mask": list(self.masks[rows]),
            "rewards": self.rewards[rows],
            "finish_reasons": None if self.stop_reasons is None else list(self.stop_reasons[rows]),
            "prompt_texts": [texts[uid] for uid in self.uids[rows]],
            "extra": self._extra(rows),
        }

    def _extra(self, rows: slice) -> list[dict[str, Any] | None] | None:
        found = [self._extra_of(row) for row in range(*rows.indices(len(self.uids)))]
        return found if any(found) else None

    def _extra_of(self, row: int) -> dict[str, Any] | None:
        found: dict[str, Any] = {}
        if (sampling := self.samplings[row]).newest > sampling.version:
            found["rollout_version_newest"] = sampling.newest
        if self.trajectories is not None:
            found["trajectory"] = self.trajectories[row]
        if self.last_steps is not None:
            found["is_last_step"] = bool(self.last_steps[row])
        return found or None


class Rows:
    """The rows of a batch at the beginning of its training step, when its advantages are not scaled yet."""

    def __init__(self, data: Batch, facts: Facts | None) -> None:
        rows = len(data["response_mask"]) - data.metadata.get("pad_size", 0)
        self.lengths: list[int] = data["response_mask"].sum(1).tolist()[:rows]
        self._facts = facts
        rollout, self.clamped = data.get("rollout_logprobs"), 0
        if rollout is not None and (is_clamped := rollout == CLAMPED).any():
            rollout, self.clamped = rollout.masked_fill(is_clamped, float("nan")), int(is_clamped[:rows].sum())
        self._tokens = {
            "rollout_logprobs": rollout,
            "old_logprobs": data.get("action_log_probs"),
            "reference_logprobs": data.get("base_action_log_probs"),
            "loss_mask": data.get("loss_mask"),
            "advantages": data.get("advantages"),
            "token_ids": data.get("sequences"),
        }

    def __len__(self) -> int:
        return len(self.lengths)

    def lacks(self, column: str) -> bool:
        return self._tokens[column] is None

    def columns(self, start: int, end: int) -> dict[str, Any]:
        """Arguments of `log` for these rows."""
        rows = slice(start, min(end, len(self)))
        cut = {name: self._cut(tensor, rows) for name, tensor in self._tokens.items() if tensor is not None}
        facts = self._unknown(rows) if self._facts is None else self._facts.columns(rows)
        return cut | {name: value for name, value in facts.items() if value is not None}

    def _cut(self, tensor: Tensor, rows: slice) -> list[Tensor]:
        width = tensor.shape[1]
        return [tensor[row, width - self.lengths[row] :] for row in range(rows.start, rows.stop)]

    def _unknown(self, rows: slice) -> Mapping[str, Any]:
        return {"sequence_ids": [f"row-{row}" for row in range(rows.start, rows.stop)]}


def sequence_ids(uids: Sequence[str], samplings: Sequence[Sampling]) -> list[str]:
    """Ids unique per sampling event: a prompt's uid is the same each time the data set comes round, its step is not."""
    seen: Counter[str] = Counter()
    ids = []
    for uid, sampling in zip(uids, samplings, strict=True):
        ids.append(f"{sampling.step}-{uid}-{seen[uid]}")
        seen[uid] += 1
    return ids


def appended_ends(output: Mapping[str, Any], masks: Sequence[Sequence[int]], end: int | None) -> list[bool]:
    """Of each row whether it ends with an end-of-sequence token in the loss whose rollout log-prob is exactly 0."""
    rollout: Sequence[Sequence[float]] = output.get("rollout_logprobs") or [()] * len(masks)
    return [
        bool(len(ids) and len(mask) and len(logprobs)) and ids[-1] == end and bool(mask[-1]) and logprobs[-1] == 0.0
        for ids, mask, logprobs in zip(output["response_ids"], masks, rollout, strict=True)
    ]


def trajectories(output: Mapping[str, Any], rows: int) -> list[str] | None:
    ids = output.get("trajectory_ids")
    return [each.to_string() for each in ids] if ids is not None and len(ids) == rows else None
