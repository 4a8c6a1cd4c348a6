"""Watches SkyRL's driver: notes the facts of a batch while it is made, and logs the batch's rows at each optimizer update.

A SkyRL trainer's configuration: the part that run.json keeps, and facts about the records that follow from it.
Messages about a SkyRL run, each sent once: absent policies with the reason, and values that need care.
"""

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ratioscope.kept_settings import kept

from ...batch.token_texts import decoder
from ...foreign import Trainer
from ...self_noise import readings_of
from ...watching.hooks import Call
from ...watching.recording import Recording
from .rows import Facts, Rows, appended_ends, sequence_ids, trajectories
from .sampling import Beside, Filters, Masks, Sampling, Syncs
from .second_forward import SkyrlAgain, again_begins, again_ends

SYNC_VERSIONS = "the trainer's finished steps at the engine's last weight sync"
ASYNC_VERSIONS = (
    "the trainer's finished steps at the engine's last weight sync before the prompt was scheduled: the oldest weights of its "
    "tokens; weights may change within a sequence, and extra has the newest (rollout_version_newest)"
)
NO_VERSIONS = (
    "it is not known which weights sampled some sequences, so their lag is not recorded: no weight sync came before, or a "
    "generator that does not hold the trainer's inference_engine_client sampled them; attach(..., rollout_version=...) can "
    "supply it"
)
NO_ROLLOUT = (
    "the generator returns no rollout_logprobs, so neither mismatch nor total is recorded; SkyRL's own generator returns them "
    "with generator.sampling_params.logprobs=1 (and without a custom chat template), a custom generator must return them itself"
)
NO_OLD = (
    "SkyRL skips the policy's forward pass because trainer.algorithm.policy_loss_type={loss} reads no old log-probs, so mismatch "
    "and drift are not recorded; total is. trainer.algorithm.off_policy_correction.outlier_token_is_threshold_high=1e9, a bound "
    "that no weight reaches, makes SkyRL run the pass"
)
NO_CURRENT = "the workers return no log-probs per token with forward_backward, so total and drift are not recorded"
OUT_OF_ORDER = (
    "this SkyRL returns current log-probs out of order when trainer.max_tokens_per_microbatch is set, so they are not recorded; "
    "0.4.0 returns them in order, and so does trainer.max_tokens_per_microbatch=-1"
)
CLAMPED = (
    "{tokens} rollout log-probs are -9999, which SkyRL's servers fill in if the engine gives none or no finite one; they are "
    "recorded as NaN"
)
APPENDED_ENDS = (
    "with generator.use_conversation_multi_turn=false SkyRL appends an end-of-sequence token with rollout log-prob 0, even if "
    "the engine sampled one; the token is in the loss, and is recorded as not sampled"
)
ZERO_ENDS = (
    "{} of {} sequences end with an end-of-sequence token whose rollout log-prob is exactly 0; it is not known whether the "
    "generator appended it, so it counts as sampled"
)


@dataclass
class _Step:
    """The policy's current training step."""

    step: int
    rows: Rows
    boundaries: Sequence[tuple[int, int]]
    """(start, end) rows of each mini-batch."""
    visits: int = 0
    """Mini-batches trained on so far, over all epochs."""
    again: list[Any] = field(default_factory=list)
    """The log-probs of a second forward, None for rows that were not read; empty without one."""


class SkyrlRecorder:
    """One trainer at a time. It reads results and changes none of them."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._trainer: Trainer = None
        self._syncs, self._filters, self._masks = Syncs(), Filters(), Masks()
        self._batches, self._groups = Beside(), Beside()
        self._samplings: dict[str, Sampling] = {}
        self._going: _Step | None = None
        self._again = SkyrlAgain(recording)
        self.again_begins, self.again_ends = again_begins, again_ends

    def trainer_begins(self, call: Call) -> None:
        """The trainer is about to begin."""
        self._note_trainer(call.target)

    def resumed(self, call: Call) -> None:
        self._note_trainer(call.target)
        if (step := call.result[0]) > 0:
            self._recording.event("resume", step + 1, f"training goes on after {step} steps")

    def synced(self, call: Call) -> None:
        """The engine has the weights of the last finished step. SkyRL calls twice, before and after generation resumes."""
        if self._trainer is None or call.target is not self._trainer.dispatch:
            return
        if (version := self._trainer.global_step) == self._syncs.newest:
            return
        self._syncs.add(version)
        self._recording.event("weight_sync", version + 1, f"the engine samples with the weights after {version} steps")

    def filtered(self, call: Call) -> None:
        self._filters.add(call.arguments["loss_masks"], call.result)

    def sampling(self, call: Call) -> None:
        """The sync trainer is about to sample prompts."""
        self._note_trainer(call.target)
        asked, step = call.arguments["input_batch"], call.target.global_step
        version = self._engine_version()
        for prompt, trajectory in zip(asked["prompts"], asked.get("trajectory_ids") or (), strict=False):
            self._samplings[trajectory.instance_id] = Sampling(step, version, version, prompt)

    def group_sampled(self, call: Call) -> None:
        """The fully async trainer has all sequences of a prompt. The call comes in the task that got them, at that moment."""
        group = call.target
        step, seconds = group.global_step_when_scheduled, group.group_completion_time_s
        scheduled = None if seconds is None else self._syncs.before(time.monotonic() - seconds)
        newest = self._engine_version()
        version = newest if self._recording.rollout_version or newest is None else scheduled
        masks = self._filters.unfiltered(group.generator_output["loss_masks"])
        prompt = group.prompts[0] if group.prompts else None
        self._groups.put(group, Sampling(step, version, newest, prompt, masks))

    def groups_taken(self, call: Call) -> None:
        """The groups that the fully async trainer is about to train on."""
        self._note_trainer(call.target)
        for group in call.arguments["cur_generation_group_mini_batch"]:
            step = group.global_step_when_scheduled
            sampling = self._groups.note(group) or Sampling(step)
            self._samplings[group.uid] = sampling
            output = group.generator_output
            self._masks.add(call.target.global_step, output["response_ids"], sampling.masks or output["loss_masks"])

    def sampled(self, call: Call) -> None:
        """Rewards and masks are about to be filtered."""
        output = call.arguments["generator_output"]
        if not self._masks.knows(output["response_ids"][0]):  # groups_taken has noted the fully async trainer's masks
            masks = self._filters.unfiltered(output["loss_masks"])
            self._masks.add(call.target.global_step, output["response_ids"], masks)

    def converted(self, call: Call) -> None:
        """The batch has been made from the generator's lists."""
        self._note_trainer(call.target)
        output, uids = call.arguments["generator_output"], [str(uid) for uid in call.arguments["uids"]]
        step = call.target.global_step
        samplings = [self._samplings.get(uid) or Sampling(step) for uid in uids]
        waiting = {uid: sampling for uid, sampling in self._samplings.items() if uid not in set(uids)}
        self._samplings = {uid: sampling for uid, sampling in waiting.items() if sampling.step >= step}
        stop_reasons = output.get("stop_reasons")
        facts = Facts(
            sequence_ids=sequence_ids(uids, samplings),
            uids=uids,
            samplings=samplings,
            masks=self._sampled_masks(call.target, output, step),
            rewards=call.result["rewards"][: len(uids)].sum(1),
            stop_reasons=stop_reasons if stop_reasons is not None and len(stop_reasons) == len(uids) else None,
            trajectories=trajectories(output, len(uids)),
            last_steps=output.get("is_last_step"),
        )
        self._batches.put(call.result, facts)

    def forwarded(self, call: Call) -> None:
        """A model has scored a batch without gradient."""
        if call.arguments["model"] == "policy" and self._recording.options.get("self_noise"):
            self._note_trainer(call.target)
            self._again.read(call.target, call.arguments["data_fwd_pass"], call.result)

    def training(self, call: Call) -> None:
        """A training step begins. Next the policy's step writes the scaled advantages into another tensor."""
        self._going = None
        if call.arguments["model"] != "policy":
            return
        self._note_trainer(call.target)
        data, step = call.arguments["data"], call.target.global_step
        rows = Rows(data, self._batches.note(data))
        again = self._again.rows(step, data.get("action_log_probs"), rows.lengths)
        self._going = _Step(step, rows, data.metadata["policy_mini_batch_boundaries"], again=again)
        if rows.lacks("rollout_logprobs"):
            self._recording.say_once("no_rollout_logprobs", step, NO_ROLLOUT, logging.WARNING)
        if rows.lacks("old_logprobs"):
            loss = self._trainer.cfg.trainer.algorithm.policy_loss_type
            self._recording.say_once("no_old_logprobs", step, NO_OLD.format(loss=loss))
        if rows.lacks_versions:
            self._recording.say_once("no_rollout_versions", step, NO_VERSIONS)
        if rows.clamped:
            self._recording.say_once("clamped_logprobs", step, CLAMPED.format(tokens=rows.clamped))

    def visited(self, call: Call) -> None:
        """A mini-batch has been through forward and backward; the optimizer's step comes next."""
        going = self._going
        if going is None or call.arguments["model"] != "policy" or call.target is not self._trainer.dispatch:
            return
        minibatch, going.visits = going.visits, going.visits + 1
        start, end = going.boundaries[minibatch % len(going.boundaries)]
        columns = going.rows.columns(start, end)
        if (current := self._current(going.step, call.result, len(columns["sequence_ids"]))) is not None:
            columns["current_logprobs"] = current
        if minibatch < len(going.boundaries):  # the first epoch
            columns |= going.rows.topk(start, end)
            columns |= going.rows.prompts(start, end) | readings_of(going.again[start : min(end, len(going.rows))])
        self._recording.log(step=going.step, minibatch=minibatch, trainer_version=going.step - 1, **columns)

    def trained(self, call: Call) -> None:
        if self._going is not None:
            self._going = None
            self._recording.collector.flush(0)

    def with_scalars(self, call: Call) -> dict[str, Any] | None:
        """Adds our scalars to the trainer's metrics. SkyRL logs other dicts in a step too; those do not change."""
        data = call.arguments["data"]
        if "trainer/global_step" not in data:
            return None
        scalars = self._recording.scalars(call.arguments["step"], data)
        return {"data": {**data, **scalars}} if scalars else None

    def _note_trainer(self, trainer: Trainer) -> None:
        if trainer is self._trainer:
            return
        self._trainer, self._syncs = trainer, Syncs()
        self._recording.describe(
            trainer=f"skyrl {getattr(sys.modules.get('skyrl'), '__version__', 'unknown')}",
            config=described(trainer),
            rank=0,
            decode=decoder(trainer.tokenizer),
            versions=None if self._recording.rollout_version is not None else versions_of(trainer),
        )

    def _engine_version(self) -> int | None:
        """The version of the weights that sample now: the user's `rollout_version`, else the last sync's; None if not known."""
        if self._recording.rollout_version is not None and self._trainer is not None:
            return self._recording.rollout_version(self._trainer)
        return self._syncs.newest if samples_with_the_engine(self._trainer) else None

    def _sampled_masks(self, trainer: Trainer, output: Mapping[str, Any], step: int) -> Sequence[Sequence[int]]:
        """The mask of sampled tokens of each row, without end-of-sequence tokens that SkyRL appended."""
        masks = self._masks.take(step, output["response_ids"], output["loss_masks"])
        ends = appended_ends(output, masks, getattr(trainer.tokenizer, "eos_token_id", None))
        if not any(ends):
            return masks
        if appends_ends(trainer):
            self._recording.say_once("appended_eos", step, APPENDED_ENDS)
            return [[*mask[:-1], 0] if end else mask for mask, end in zip(masks, ends, strict=True)]
        if not is_gym_generator(trainer.generator) and sum(ends) > 1:
            self._recording.say_once("zero_logprob_eos", step, ZERO_ENDS.format(sum(ends), len(ends)))
        return masks

    def _current(self, step: int, result: Any, rows: int) -> list[Any] | None:
        if is_out_of_order(self._trainer):
            self._recording.say_once("no_current_logprobs", step, OUT_OF_ORDER, logging.WARNING)
            return None
        outputs = result.loss_fn_outputs[:rows]
        if len(outputs) < rows or any("logprobs" not in output for output in outputs):
            self._recording.say_once("no_current_logprobs", step, NO_CURRENT, logging.WARNING)
            return None
        return [output["logprobs"] for output in outputs]


def described(trainer: Trainer) -> dict[str, Any]:
    """SkyRL's configuration in its own shape, so that its users find `trainer.algorithm` in its usual place."""
    return {"trainer_class": f"{type(trainer).__module__}.{type(trainer).__qualname__}", **kept(trainer.cfg).settings}


def versions_of(trainer: Trainer) -> str:
    """The description of versions for run.json."""
    return ASYNC_VERSIONS if trainer.cfg.trainer.fully_async.enabled else SYNC_VERSIONS


def appends_ends(trainer: Trainer) -> bool:
    """True if SkyRL appends an end-of-sequence token with log-prob 0 to every sequence, even if the engine sampled one."""
    generator = trainer.cfg.generator
    return is_gym_generator(trainer.generator) and not generator.use_conversation_multi_turn and not generator.batched


def is_gym_generator(generator: Any) -> bool:
    """True if the generator is SkyRL's own or a subclass of it."""
    return any(base.__name__ == "SkyRLGymGenerator" for base in type(generator).__mro__)


def samples_with_the_engine(trainer: Trainer) -> bool:
    """True if the generator is SkyRL's own, or holds the engine that SkyRL syncs. Any other may sample with what it likes."""
    engine = getattr(trainer, "inference_engine_client", None)
    generator = getattr(trainer, "generator", None)
    held = getattr(generator, "__dict__", {}).values()
    return is_gym_generator(generator) or (engine is not None and any(value is engine for value in held))


def is_out_of_order(trainer: Trainer) -> bool:
    """True if workers return current in the order of packed micro-batches, as before 0.4.0, and not in the batch's order."""
    if trainer.cfg.trainer.max_tokens_per_microbatch <= 0:
        return False
    workers = sys.modules.get("skyrl.backends.skyrl_train.workers.worker_utils")
    packed = getattr(workers, "TokenBasedBatchIterator", None)
    return packed is not None and not hasattr(packed, "reorder_and_combine_items")
