"""Columns of a micro-batch of GRPOTrainer or RLOOTrainer, from its keys and from the facts of its rows at sampling.

RLOOTrainer reduces the per-token log-probs of a batch to a sum per sequence or drops them. Its old pass, and with `beta` its
reference pass, use the same method as GRPOTrainer's passes; the loss gets only their sums. Its vLLM returns log-probs of the
sampled tokens, which the trainer drops, so RLOO itself does not measure the mismatch.
"""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ratioscope.record import MASK_REASONS

from ...foreign import Tensor, Trainer
from ...self_noise import AGAIN
from ...watching.hooks import Call, Hook, install
from ...watching.patches import Patches
from ...watching.recording import Recording
from .rows import Row, turns, turns_of

Inputs = Mapping[str, Any]


RATIO = "importance_sampling_ratio"


def left(mask: Tensor, inputs: Inputs, kept: Iterable[Tensor], trainer: Trainer) -> Tensor:
    """The mask without tokens that the loss multiplies by 0: rejected by ratio, by staleness, or for low entropy.

    kept: (B, 1) or (B, T), the results of the loss's filters, 0 for tokens or rows that are left out.
    """
    ratio = _ratio(mask, inputs, trainer)
    if ratio is not None and _rejects(trainer):
        mask = mask & (ratio != 0)
    for each in kept:
        mask = mask & (each != 0)
    return mask


def reasons(mask: Tensor, inputs: Inputs, kept: Mapping[str, Tensor], trainer: Trainer) -> Tensor | None:
    """Numbers in MASK_REASONS of the tokens that the loss leaves out, the first filter's; None if no filter is on.

    kept: reason of a filter -> its result.
    """
    ratio, numbers = _ratio(mask, inputs, trainer), mask.short() * 0
    out = [(reason, each == 0) for reason, each in kept.items()]
    if ratio is not None and _rejects(trainer):
        out = [*_by_ratio(ratio == 0, inputs, trainer), *out]
    for reason, tokens in out:
        numbers = numbers.masked_fill(tokens & mask & (numbers == 0), MASK_REASONS.index(reason))
    return numbers if out else None


def _by_ratio(rejected: Tensor, inputs: Inputs, trainer: Trainer) -> list[tuple[str, Tensor]]:
    """TRL keeps no ratio of a token that it rejects, so old and rollout log-probs tell on which side of the bounds it was."""
    old, rollout = inputs.get("old_per_token_logps"), rollout_of(inputs)
    if trainer.vllm_importance_sampling_mode.startswith("sequence"):
        return [("sequence", rejected)]
    if old is None or rollout is None:
        return [("other", rejected)]
    return [("high", rejected & (old > rollout)), ("low", rejected & (old <= rollout)), ("other", rejected)]


def _ratio(mask: Tensor, inputs: Inputs, trainer: Trainer) -> Tensor | None:
    """TRL's importance weights, 0 where it rejects; its batch has them, or they follow from both log-probs and its bounds.

    TRL#5413 moves them from the batch into the loss. None if nothing is corrected.
    """
    if RATIO in inputs:
        return inputs[RATIO]
    old, rollout = inputs.get("old_per_token_logps"), rollout_of(inputs)
    corrects = trainer.use_vllm and getattr(trainer, "vllm_importance_sampling_correction", False)
    if not corrects or not _rejects(trainer) or old is None or rollout is None:
        return None
    difference = ((old - rollout) * mask).nan_to_num(nan=0.0)
    if trainer.vllm_importance_sampling_mode.startswith("sequence"):
        difference = difference.sum(-1, keepdim=True)
    ratio, low, high = (
        difference.exp(),
        trainer.vllm_importance_sampling_clip_min,
        trainer.vllm_importance_sampling_clip_max,
    )
    is_out = (ratio < (-math.inf if low is None else low)) | (ratio > (math.inf if high is None else high))
    return ratio.masked_fill(is_out, 0.0)


def media(rows: list[Row], inputs: Inputs) -> list[int] | None:
    """Images of each row, TRL's num_images; None in training without images."""
    counts = inputs.get("num_images")
    return list(counts) if isinstance(counts, list) and len(counts) == len(rows) else None


def _rejects(trainer: Trainer) -> bool:
    mode, loss = getattr(trainer, "vllm_importance_sampling_mode", ""), getattr(trainer, "loss_type", "")
    return mode.endswith("_mask") and loss != "vespo"  # vespo uses the clamped logarithm of the ratio instead


def facts(rows: list[Row], inputs: Inputs) -> dict[str, Any]:
    """The facts of the rows, by argument of `log`."""
    lengths = [row.length for row in rows]
    return {
        "token_ids": inputs["completion_ids"],
        "lengths": None if None in lengths else lengths,
        "sequence_ids": [row.sequence_id for row in rows],
        "group_ids": [row.group_id for row in rows],
        "generation_step": [row.step for row in rows],
        "rollout_versions": _if_any([row.rollout_version for row in rows]),
        "turns": turns(inputs["tool_mask"].bool()) if "tool_mask" in inputs else None,
        "replica": _if_any([row.replica for row in rows]),
        "rewards": [row.reward for row in rows],
        "finish_reasons": [row.finish_reason for row in rows],
        "prompt_texts": [row.prompt for row in rows],
        "media": media(rows, inputs),
        "extra": _if_any([row.extra for row in rows]),
    }


def _if_any(values: list[Any]) -> list[Any] | None:
    """The values; None if there is none."""
    return None if all(value is None for value in values) else values


def prompts(inputs: Inputs, visit: int) -> dict[str, Tensor]:
    """The tokens of the prompts, padded on the left, and their mask; {} at a later visit of the rows."""
    names = ("prompt_ids", "prompt_mask")
    return {name: inputs[name] for name in names} if visit == 0 and all(name in inputs for name in names) else {}


def readings(rows: list[Row], visit: int) -> dict[str, Any]:
    """The second forward of those rows that have one; {} if none has, and at a later visit of the rows."""
    has_any = visit == 0 and any(row.again is not None for row in rows)
    return {"readings": {AGAIN: [row.again for row in rows]}} if has_any else {}


def hidden_turns(rows: list[Row]) -> list[Any] | None:
    """The turns of rows whose tool mask TRL has set to 0; None without tools."""
    turns_of_rows = [turns_of(row) for row in rows]
    return None if all(turn is None for turn in turns_of_rows) else turns_of_rows


def rollout_of(inputs: Inputs) -> Tensor | None:
    """The rollout log-probs of a micro-batch; None if it has none."""
    return inputs.get("sampling_per_token_logps", inputs.get(ROLLOUT))


def chosen(inputs: Inputs, index: list[int]) -> dict[str, Any]:
    """These rows of a batch; values that are not per row are left out."""
    rows = len(inputs["completion_ids"])
    tensors = {name: value for name, value in inputs.items() if getattr(value, "ndim", 0) > 0 and len(value) == rows}
    absent = {name: None for name, value in inputs.items() if value is None}
    return absent | {name: value[index] for name, value in tensors.items()}


OLD, REFERENCE, ROLLOUT = "ratioscope_old", "ratioscope_reference", "ratioscope_rollout"
"""Keys that are added to the batch, each (B, T). TRL shuffles and splits them with its own keys, and never reads them."""


def is_rloo(trainer: Trainer) -> bool:
    """True if the trainer is an RLOOTrainer, a subclass of it, or one that unsloth generated from it."""
    return any(base.__name__ in ("RLOOTrainer", "UnslothRLOOTrainer") for base in type(trainer).__mro__)


class RlooScores:
    """Per-token log-probs of the batch that the trainer is making."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._scored: list[Tensor] = []
        self._engines: Sequence[Sequence[Sequence[float | None]]] | None = None

    def put_on(self, patches: Patches, recording: Recording) -> None:
        """Watches the engine, if the trainer has one that returns log-probs."""
        engine = getattr(self._trainer, "vllm_generation", None)
        if engine is None or not hasattr(engine, "generate"):
            return
        install(Hook("", "generate", after="sampled"), self, recording, patches, engine)

    def begin(self) -> None:
        """The trainer is about to make a batch. Log-probs of an earlier batch that failed are dropped."""
        self._scored, self._engines = [], None

    def scored(self, logprobs: Tensor) -> None:
        """Keeps the log-probs of a pass. The old pass comes first, then the reference pass."""
        self._scored.append(logprobs.detach())

    def add_to(self, batch: dict[str, Any]) -> None:
        """Adds the kept log-probs to their batch."""
        scored, self._scored = self._scored, []
        engines, self._engines = self._engines, None
        if self._trainer.model.training:
            batch.update(zip((OLD, REFERENCE), scored, strict=False))
            if engines is not None:
                values = np.full(batch["completion_ids"].shape, np.nan, np.float32)  # NaN behind the end of a row
                for row, tokens in enumerate(engines):
                    values[row, : len(tokens)] = [np.nan if token[0] is None else token[0] for token in tokens]
                batch[ROLLOUT] = sys.modules["torch"].from_numpy(values)

    def sampled(self, call: Call) -> None:
        self._engines = call.result[2]
