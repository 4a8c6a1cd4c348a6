"""Rows of the Record from OpenRLHF's experiences: the facts of a sample on the host, and its columns on the device.

Its arguments and ranks are here as far as they affect a recording, with the messages about columns that it lacks. Samples are
followed from the replay buffer to the loss of their micro-batch, in MOLT too.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib import metadata
from typing import Any

from ...foreign import Tensor
from ...watching.hooks import Call
from ...watching.recording import Recording
from ..sampled_spans import SampledFirst
from ..visits import FirstVisits

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


def facts(samples: Sequence[Sample] | None) -> dict[str, Any]:
    """Arguments of `log`, one value per sample; a fact that no sample has is left out. {} if the samples are not known."""
    names = {
        "sequence_ids": "sequence_id",
        "group_ids": "group_id",
        "rewards": "reward",
        "finish_reasons": "finish_reason",
        "prompt_texts": "prompt",
    }
    columns = {argument: [getattr(sample, name) for sample in samples or ()] for argument, name in names.items()}
    return {argument: values for argument, values in columns.items() if any(value is not None for value in values)}


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


VERSIONS = (
    "training steps at the last broadcast of weights to vLLM, with whose weights synchronous training samples; unknown with "
    "--train.async_enable"
)
NO_BROADCAST = (
    "no broadcast of weights to vLLM was seen since the run was resumed, so lag is not recorded. "
    "attach(..., rollout_version=...) can supply the version"
)
NO_ROLLOUT = (
    "OpenRLHF asks vLLM for log-probs only if it corrects with them, so neither mismatch nor total is recorded; "
    "--algo.advantage.is_correction_level token (before 0.11.2: --algo.advantage.is_correction_enable) records them"
)
NO_VERSIONS = (
    "with --train.async_enable it is not known which weights sampled a sequence; they are at most async_queue_size + 1 steps "
    "old. attach(..., rollout_version=...) can supply the version"
)
NO_ENTROPY = (
    "before 0.11.2 OpenRLHF computes entropy at temperature 1, not at the temperature of its log-probs; at another temperature "
    "it is not recorded"
)
_SETTINGS = {
    "algo.advantage": "estimator is_correction_level is_correction_mode is_correction_gating is_correction_threshold "
    "is_correction_enable is_correction_type",
    "rollout": "temperature top_p n_samples_per_prompt batch_size",
    "train": "async_enable partial_rollout_enable batch_size micro_batch_size max_epochs dynamic_batch_enable",
    "actor": "model_name_or_path policy_loss_type eps_clip_low_high entropy_coef",
    "ds": "param_dtype",
    "vllm": "num_engines tensor_parallel_size enable_prefix_caching",
}


def frozen_steps(args: Any) -> int:
    """The number of first steps in which only the critic trains."""
    return max(0, int(getattr(args.critic, "freezing_steps", -1)) + 1)


def holds_the_copy(strategy: Any) -> bool:
    """True if this rank is the first of the ranks with the same tokens."""
    if getattr(strategy, "ring_attn_rank", 0):
        return False
    sharded = getattr(strategy, "ds_tensor_parallel_size", 1) > 1
    return not sharded or strategy.ds_device_mesh["tp"].get_local_rank() == 0


def release() -> tuple[int, ...]:
    """OpenRLHF's version as numbers; () if not known."""
    try:
        return tuple(int(part) for part in metadata.version("openrlhf").split(".") if part.isdecimal())
    except metadata.PackageNotFoundError:
        return ()


def settings(args: Any, kept: Mapping[str, str] = _SETTINGS) -> dict[str, Any]:
    """The settings that run.json keeps, by their names on the command line. kept: section -> names, between spaces."""
    values: dict[str, Any] = {}
    for section, names in kept.items():
        holder = args
        for part in section.split("."):
            holder = getattr(holder, part, None)
        values |= {
            f"{section}.{name}": getattr(holder, name)
            for name in names.split()
            if getattr(holder, name, None) is not None
        }
    return values


CERTAIN_BUT_UNLIKELY = -1.0
"""nats. A real 0.0 means that the engine was certain of the token. A 0.0 counts as a filler if the trainer gives the token less
than 37%, because no rounding explains so large a difference. Convention; certain tokens keep their 0.0."""


def without_fill(rollout: Tensor, trainer: Tensor) -> Tensor:
    """rollout, with NaN in place of fillers; the trainer's log-probs decide. It stays on their device."""
    fill = (rollout == 0) & (trainer.detach() < CERTAIN_BUT_UNLIKELY)
    return sys.modules["torch"].where(fill, float("nan"), rollout)


@dataclass
class Step:
    """One call of the method that trains on the replay buffer."""

    number: int
    """The step."""
    samples: dict[int, Sample]
    """The samples of the replay buffer, by identity of the buffer's item."""
    first_micro_step: int = 0
    """Micro-steps before this call."""
    updates: int = 0
    """Updates of the weights in this call so far."""
    batches: dict[int, tuple[Experience, list[Sample]]] = field(default_factory=dict)
    """Micro-batches that are not trained on yet and their samples, by identity of the micro-batch."""


@dataclass
class Batch:
    """The micro-batch in training."""

    experience: Experience
    samples: list[Sample] | None
    """None if not known."""
    given: dict[str, Any] = field(default_factory=dict)
    """Arguments of the loss; empty before its call."""
    entropy: Any = None


class MicroBatches:
    """Follows the samples of `step` to the loss of their micro-batch. step: None on ranks that do not record."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._visits = FirstVisits()
        self.step: Step | None = None
        self.batch: Batch | None = None

    def batch_made(self, call: Call) -> None:
        if self.step is not None:
            found = [self.step.samples.get(id(item)) for item in call.arguments["items"]]
            known = [sample for sample in found if sample is not None]
            if len(known) == len(found):  # the reference keeps the id from being reused
                self.step.batches[id(call.result)] = (call.result, known)

    def batch_begins(self, call: Call) -> None:
        if self.step is not None:
            experience = call.arguments["experience"]
            _, samples = self.step.batches.pop(id(experience), (None, None))
            self.batch = Batch(experience, samples)

    def loss_begins(self, call: Call) -> None:
        if self.batch is not None:
            self.batch.given = dict(call.arguments)

    def taken(self) -> tuple[Step, Batch] | None:
        """The step, and its micro-batch whose training has ended; None on ranks that do not record."""
        batch, self.batch = self.batch, None
        return None if batch is None or self.step is None else (self.step, batch)

    def is_first_visit(self, step: Step, batch: Batch) -> bool:
        """True if the step has not trained on these samples before, or if they are not known."""
        ids = None if batch.samples is None else [sample.sequence_id for sample in batch.samples]
        return self._visits.is_one(step.number, ids)

    def with_scalars(self, call: Call) -> dict[str, Any] | None:
        """The status of the step with our scalars added; the driver logs the status."""
        step, self.step = self.step, None
        if step is None or not self._recording.has_collector:
            return None
        self._recording.collector.flush(0)
        added = self._recording.scalars(step.number, call.result)
        return {**call.result, **added} if added else None
