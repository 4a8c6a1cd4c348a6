"""A SkyRL training batch as columns of `log`: views of right-aligned rows, cut to their tokens, without the padding rows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ...foreign import Tensor
from ..trl.rows import prompt_text
from .sampling import Sampling

CLAMPED = -9999.0
"""SkyRL's servers fill in this number if the engine gives no finite log-prob (inference_servers/generate_wire.py)."""

SUPPORT = "rollout_sample_support"
"""The column of the sampler's likeliest tokens, and with _logprobs of their log-probs, which score centering reads (0.5.0)."""
Batch = Any
"""A TrainingInputBatch: a dict of tensors (B, T) with a `metadata`, on the CPU."""


@dataclass(frozen=True)
class Facts:
    """The facts of a batch before training, one value per row; padding rows are left out."""

    sequence_ids: list[str]
    uids: list[str]
    """The prompt's uid of each row."""
    samplings: list[Sampling]
    masks: Sequence[Sequence[int]]
    """Sampled tokens, before filters, without end-of-sequence tokens that no engine sampled."""
    rewards: Tensor
    stop_reasons: Sequence[str | None] | None
    """The reason of each response's end; None if the batch has none."""
    trajectories: list[str] | None
    """The trajectory of each row with step-wise trajectories, where a row is one turn; else None."""
    last_steps: Sequence[bool] | None
    """True if each row is its trajectory's last turn; None without step-wise trajectories."""

    def columns(self, rows: slice) -> dict[str, Any]:
        """The facts of these rows, by argument of `log`."""
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
        extras = [self._extra_of(row) for row in range(*rows.indices(len(self.uids)))]
        return extras if any(extras) else None

    def _extra_of(self, row: int) -> dict[str, Any] | None:
        extra: dict[str, Any] = {}
        sampling = self.samplings[row]
        if sampling.newest is not None and sampling.version is not None and sampling.newest > sampling.version:
            extra["rollout_version_newest"] = sampling.newest
        if self.trajectories is not None:
            extra["trajectory"] = self.trajectories[row]
        if self.last_steps is not None:
            extra["is_last_step"] = bool(self.last_steps[row])
        return extra or None


class Rows:
    """The rows of a batch at the beginning of its training step, before the advantages are scaled."""

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
        self._attention = data.get("attention_mask")
        self._likeliest = [data.get(name) for name in (SUPPORT, f"{SUPPORT}_logprobs")]

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def lacks_versions(self) -> bool:
        """True if it is not known of a row which weights sampled it."""
        return self._facts is None or any(sampling.version is None for sampling in self._facts.samplings)

    def lacks(self, column: str) -> bool:
        """True if the batch has no such column."""
        return self._tokens[column] is None

    def columns(self, start: int, end: int) -> dict[str, Any]:
        """Arguments of `log` for these rows."""
        rows = slice(start, min(end, len(self)))
        cut = {name: self._cut(tensor, rows) for name, tensor in self._tokens.items() if tensor is not None}
        facts = self._unknown(rows) if self._facts is None else self._facts.columns(rows)
        return cut | {name: value for name, value in facts.items() if value is not None}

    def prompts(self, start: int, end: int) -> dict[str, Any]:
        """The argument `prompt_ids` of `log` for these rows; {} if the batch does not say which tokens are padding."""
        ids, attention, rows = self._tokens["token_ids"], self._attention, range(start, min(end, len(self)))
        if ids is None or attention is None:
            return {}
        before = [slice(ids.shape[1] - self.lengths[row]) for row in rows]
        return {"prompt_ids": [ids[r, cut][attention[r, cut] != 0] for r, cut in zip(rows, before, strict=True)]}

    def topk(self, start: int, end: int) -> dict[str, Any]:
        """The sampler's likeliest tokens of these rows, as arguments of `log`; {} if the batch has none with log-probs."""
        if not all(hasattr(packed, "sequence_lengths") for packed in self._likeliest):
            return {}
        names, rows = ("topk_ids", "rollout_topk_logprobs"), range(start, min(end, len(self)))
        return {name: _segments(packed, rows) for name, packed in zip(names, self._likeliest, strict=True)}

    def _cut(self, tensor: Tensor, rows: slice) -> list[Tensor]:
        width = tensor.shape[1]
        return [tensor[row, width - self.lengths[row] :] for row in range(rows.start, rows.stop)]

    def _unknown(self, rows: slice) -> Mapping[str, Any]:
        return {"sequence_ids": [f"row-{row}" for row in range(rows.start, rows.stop)]}


def _segments(packed: Any, rows: range) -> list[Tensor]:
    """The rows of a PackedTensor: `values` of all sequences one after the other, cut by `sequence_lengths`."""
    ends = list(accumulate(packed.sequence_lengths.tolist(), initial=0))
    return [packed.values[ends[row] : ends[row + 1]] for row in rows]


def sequence_ids(uids: Sequence[str], samplings: Sequence[Sampling]) -> list[str]:
    """Ids that are unique in the run. They contain the step, because a prompt's uid is the same in each epoch of the data set."""
    seen: Counter[str] = Counter()
    ids = []
    for uid, sampling in zip(uids, samplings, strict=True):
        ids.append(f"{sampling.step}-{uid}-{seen[uid]}")
        seen[uid] += 1
    return ids


def appended_ends(output: Mapping[str, Any], masks: Sequence[Sequence[int]], end: int | None) -> list[bool]:
    """True if each row ends with an end-of-sequence token that is in the loss and has rollout log-prob exactly 0."""
    rollout: Sequence[Sequence[float]] = output.get("rollout_logprobs") or [()] * len(masks)
    return [
        bool(len(ids) and len(mask) and len(logprobs)) and ids[-1] == end and bool(mask[-1]) and logprobs[-1] == 0.0
        for ids, mask, logprobs in zip(output["response_ids"], masks, rollout, strict=True)
    ]


def trajectories(output: Mapping[str, Any], rows: int) -> list[str] | None:
    """The trajectory id of each row; None if the output has no id for each."""
    ids = output.get("trajectory_ids")
    return [each.to_string() for each in ids] if ids is not None and len(ids) == rows else None
