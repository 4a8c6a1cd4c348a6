"""AsyncGRPOTrainer (trl.experimental.async_grpo, written from 1.16): rollout and current log-probs of packed rows.

The trainer computes no old log-probs. `old_log_probs` of its batches are the engine's, so they are recorded as rollout.

    queue.get                     rank 0: each sample, with the version of the weights that sampled it
    the collator's torch_call     rank 0: the hook adds two keys to the batch, which all ranks get with it
    compute_loss                  every rank: its own packed row with all columns, which is recorded here

The current log-probs are in the model's output, which a forward hook gets during the loss: `log_probs`, flattened and gathered
by `token_index`. compute_loss reads its metrics back from the device before it returns, so reading the batch afterwards does
not wait for the device. Versions count updates of the trainer, not syncs: the version of a sample is the step at the sync of
its weights. Each sample is in one loss, so minibatch is 0.
Facts of AsyncGRPOTrainer's samples in two tensors with a row per rank, which the trainer dispatches with its own batch.

    ratioscope_facts     (ranks, samples, FIELDS) float64, NaN in place of missing samples
    ratioscope_tokens    (ranks, tokens) int64, the responses one after the other: token id + turn * 2**32 for a trained token,
                         -1 minus this number for any other

A response begins with the first trained token and ends with the last. The loss has values of trained tokens only; `spread` puts
them at their places in the response. A rank thus needs only its own row, and the recorder sends no message of its own.
"""

import copy
import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Integers

from ...foreign import Tensor, Trainer
from ...watching.hooks import Call, Hook, install, install_on
from ...watching.patches import Patches
from ...watching.recording import Recording
from .rows import prompt_text

NO_OLD = (
    "AsyncGRPOTrainer computes no old log-probs (its old_log_probs are the engine's), so mismatch and drift are not recorded; "
    "total, current against rollout, is"
)
BEFORE_ATTACH = "this batch was packed before attach, so it is not recorded"
NO_SECOND_FORWARD = (
    "self_noise: no trainer_again is recorded: AsyncGRPOTrainer computes log-probs only inside its loss, of packed rows"
)
VERSIONS = "model_version of each sample, as the number of updates before the sync of its weights"

HOOKS = (
    Hook("", "get_train_dataloader", after="loaded"),
    Hook("", "compute_loss", before="loss_begins", after="loss_ends"),
)
COLLATES = Hook("", "torch_call", after="collated")

Inputs = Mapping[str, Any]

FACTS, TOKENS = "ratioscope_facts", "ratioscope_tokens"
FIELDS = ("number", "group", "model_version", "rollout_version", "reward", "advantage", "stop", "tokens", "trained")
_TURN = 32
"""Bits of a token id."""


@dataclass(frozen=True)
class Sample:
    """One sample of the queue."""

    number: int
    """Its number within the run."""
    facts: tuple[float, ...]
    """In the order of FIELDS."""
    tokens: Integers
    """The tokens of the response, coded as in `ratioscope_tokens`."""
    prompt: str | None
    prompt_ids: Integers
    rewards: Mapping[str, float]
    """Reward function -> reward."""


@dataclass(frozen=True)
class RankSamples:
    """A rank's row: a list has one value per sequence, a tensor one per token of all responses, on the batch's device."""

    numbers: list[int]
    """The number of each sample within the run."""
    sequence_ids: list[str]
    groups: list[str]
    """The id of the prompt that samples share."""
    model_versions: list[int]
    """TRL's version of the weights that sampled each."""
    rollout_versions: list[int | None]
    rewards: list[float | None]
    advantages: list[float | None]
    finish_reasons: list[str | None]
    lengths: list[int]
    trained: Tensor
    """True at the tokens that the loss has."""
    token_ids: Tensor
    turns: Tensor

    def spread(self, values: Tensor) -> Tensor:
        """Values of the trained tokens at their places; 0 at the other tokens."""
        return values.new_zeros(len(self.trained)).masked_scatter(self.trained, values)


class AsyncRecorder:
    """Watches one trainer. It passes a sample's facts from the queue to the loss, in the trainer's own objects."""

    WRAPPED = tuple(hook.name for hook in HOOKS)

    def __init__(self, trainer: Trainer, recording: Recording) -> None:
        self._trainer, self._recording = trainer, recording
        self._patches = Patches()
        self._number = 0
        self._synced = {trainer.model_version: trainer.state.global_step}
        self._samples: dict[int, Sample] = {}
        self._output: Any = None
        recording.describe(versions=VERSIONS)
        if recording.options.get("self_noise"):
            recording.say_once("self_noise", trainer.state.global_step + 1, NO_SECOND_FORWARD, logging.WARNING)

    def put_on(self, patches: Patches) -> None:
        """Wraps the trainer's methods."""
        self._patches = patches
        install_on(self._trainer, HOOKS, self, self._recording, patches)

    def loaded(self, call: Call) -> None:
        """Watches the queue and the collator of a data loader."""
        source = self._trainer._rollout_dataset
        if source is None:  # only the main process has the queue
            return
        self._samples.clear()
        self._patches.put(source, "queue", lambda queue: _Queue(queue, self._recording, self.carried))
        install(COLLATES, self, self._recording, self._patches, call.result.collate_fn)

    def loss_begins(self, call: Call) -> None:
        """Has the model's first output kept."""
        self._output = None

        def keep(*seen: Any) -> None:
            self._output = seen[-1]
            handle.remove()

        handle = call.given[0].register_forward_hook(keep)

    def loss_ends(self, call: Call) -> None:
        output, self._output = self._output, None
        self._record(call.given[1], output)

    def carried(self, sample: Any) -> Any:
        """A copy of the sample whose metrics also have the sample itself. The trainer passes metrics on to the collator."""
        version, updates = self._trainer.model_version, self._trainer.state.global_step
        # the first sample after a sync, on the trainer's thread: the step is the sync's
        if version not in self._synced:
            self._synced[version] = updates
            self._recording.event("weight_sync", updates + 1, f"version {version}: the weights after {updates} updates")
        made = copy.copy(sample)
        made.metrics = _Metrics(sample.metrics)
        made.metrics.sample = sample
        made.metrics.updates = self._synced.get(sample.model_version)
        return made

    def collated(self, call: Call) -> None:
        """Adds the facts of all samples to the batch."""
        (rows,) = call.given[0]
        samples = [[self._numbered(example) for example in row.samples] for row in rows]
        call.result.update(sample_tensors(samples))
        own = samples[self._trainer.accelerator.process_index]
        self._samples |= {sample.number: sample for sample in own}

    def _numbered(self, example: Mapping[str, Any]) -> Sample:
        self._number += 1
        metrics = example["metrics"]
        return sample_of(metrics.sample, self._number, metrics.updates, self._trainer.eos_token_ids)

    def _record(self, inputs: Inputs, scores: Any) -> None:
        step = self._trainer.state.global_step + 1
        if FACTS not in inputs:
            self._recording.say_once("before_attach", step, BEFORE_ATTACH)
            return
        self._recording.say_once("no_old_logprobs", step, NO_OLD)
        selected = inputs["token_index"] >= 0
        index = inputs["token_index"][selected]
        row = rank_samples(inputs[FACTS], inputs[TOKENS], len(index))
        samples = [self._samples.pop(number, None) for number in row.numbers]
        self._recording.log(
            step=step,
            minibatch=0,
            rollout_logprobs=row.spread(inputs["old_log_probs"][selected]),
            current_logprobs=row.spread(scores.log_probs.detach().flatten()[index]),
            entropy=None if scores.entropy is None else row.spread(scores.entropy.detach().flatten()[index]),
            trainer_version=step - 1,
            prompt_texts=None if None in samples else [sample.prompt for sample in samples if sample is not None],
            prompt_ids=[None if sample is None else sample.prompt_ids for sample in samples],
            extra=[_extra(version, sample) for version, sample in zip(row.model_versions, samples, strict=True)],
            **_columns(row),
        )


class _Metrics(dict[str, float]):
    """A sample's metrics, unchanged, with the sample as an attribute."""

    sample: Any = None
    updates: int | None = None
    """The trainer's updates at the sync of the sample's weights; None if not known."""


class _Queue:
    """The trainer's queue; `get` returns samples changed by `carried`."""

    def __init__(self, queue: Any, recording: Recording, carried: Callable[[Any], Any]) -> None:
        self._queue, self._recording, self._carried = queue, recording, carried

    def get(self, *arguments: Any, **named: Any) -> Any:
        sample = self._queue.get(*arguments, **named)
        made = self._recording.watch(lambda: self._carried(sample))
        return sample if made is None else made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def _columns(row: RankSamples) -> dict[str, Any]:
    return {
        "lengths": row.lengths,
        "mask": row.trained,
        "loss_mask": row.trained,
        "token_ids": row.token_ids,
        "turns": row.turns,
        "pack_position": list(range(len(row.lengths))),
        "sequence_ids": row.sequence_ids,
        "group_ids": row.groups,
        "rollout_versions": row.rollout_versions,
        "rewards": row.rewards,
        "advantages": row.advantages,
        "finish_reasons": row.finish_reasons,
    }


def _extra(model_version: int, sample: Sample | None) -> dict[str, Any]:
    parts = {} if sample is None or len(sample.rewards) < 2 else {"rewards": dict(sample.rewards)}
    return {"model_version": model_version, **parts}


def sample_of(sample: Any, number: int, updates: int | None, ends: Sequence[int]) -> Sample:
    """The Sample of a RolloutSample. updates: the version of its weights; None if not known. ends: end-of-sequence tokens."""
    trained = np.asarray(sample.completion_mask).astype(bool)
    trained[0] = False  # no position predicts the first token, so TRL leaves it out of the loss
    places = np.flatnonzero(trained)
    response = slice(places[0], places[-1] + 1) if len(places) else slice(0)
    every = np.asarray(sample.input_ids).astype(np.int64)
    ids, trained = every[response], trained[response]
    begins = trained & ~np.concatenate(([False], trained[:-1]))
    coded = ids + (np.maximum(np.cumsum(begins) - 1, 0) << _TURN)
    facts = (
        number, int(sample.group_id), sample.model_version, math.nan if updates is None else updates,
        sample.metrics.get("reward", math.nan), sample.advantage, float(len(ids) > 0 and int(ids[-1]) in ends),
        len(ids), trained.sum(),
    )  # fmt: skip
    parts = {name.removeprefix("rewards/"): v for name, v in sample.metrics.items() if name.startswith("rewards/")}
    before = every[: places[0]] if len(places) else every
    coded = np.where(trained, coded, -1 - coded)
    return Sample(number, tuple(map(float, facts)), coded, prompt_text(sample.prompt), before, parts)


def sample_tensors(rows: Sequence[Sequence[Sample]]) -> dict[str, Tensor]:
    """The two tensors, by their names. rows: the samples of each rank."""
    facts = np.full((len(rows), max(map(len, rows)), len(FIELDS)), np.nan)
    tokens = np.zeros((len(rows), max(sum(len(sample.tokens) for sample in row) for row in rows)), np.int64)
    for index, row in enumerate(rows):
        flat = np.concatenate([np.zeros(0, np.int64), *(sample.tokens for sample in row)])
        facts[index, : len(row)] = [sample.facts for sample in row]
        tokens[index, : len(flat)] = flat
    from_numpy = sys.modules["torch"].from_numpy
    return {FACTS: from_numpy(facts), TOKENS: from_numpy(tokens)}


def rank_samples(facts: Tensor, tokens: Tensor, trained: int) -> RankSamples:
    """One rank's row from tensors of shapes (1, samples, FIELDS) and (1, tokens).

    trained: number of tokens in the rank's loss. ValueError if the row has another number.
    """
    (row,) = facts.tolist()
    column = dict(zip(FIELDS, zip(*(fact for fact in row if not math.isnan(fact[0])), strict=True), strict=True))
    if sum(column["trained"]) != trained:
        raise ValueError(f"the loss has {trained} tokens, the packed row has {sum(column['trained']):.0f}")
    lengths = [int(length) for length in column["tokens"]]
    coded = tokens[0, : sum(lengths)]
    is_trained = coded >= 0
    coded = coded.where(is_trained, -1 - coded)
    return RankSamples(
        numbers=[int(number) for number in column["number"]],
        sequence_ids=[
            f"{group:.0f}-{number:.0f}" for group, number in zip(column["group"], column["number"], strict=True)
        ],
        groups=[f"{group:.0f}" for group in column["group"]],
        model_versions=[int(version) for version in column["model_version"]],
        rollout_versions=[None if math.isnan(version) else int(version) for version in column["rollout_version"]],
        rewards=[None if math.isnan(reward) else reward for reward in column["reward"]],
        advantages=list(column["advantage"]),
        finish_reasons=["stop" if stop else "length" for stop in column["stop"]],
        lengths=lengths,
        trained=is_trained,
        token_ids=coded & ((1 << _TURN) - 1),
        turns=coded >> _TURN,
    )
