"""OpenRLHF's PPO actor: the policy loss gets all three policies of a micro-batch, in the Ray actor that trains.

    NaiveReplayBuffer's items            one sample each, on the host, before ppo_train shuffles them: the facts of each
    make_experience_batch                the samples of a micro-batch; DataLoader collates with this function
    ActorPPOTrainer.training_step        the micro-batch on the device
    PolicyLoss.forward                   current, old and rollout together, as the loss uses them
    Actor.forward                        entropy, if the loss has an entropy term

Tensors are (B, T-1) over prompt and response: index t scores token t+1. action_mask marks the response; elsewhere log-probs are
0.0. Prompts differ in length, so rows are shifted to begin with their first action. The worker does not know the step. The
adapter counts ppo_train calls and adds the steps of the critic's warm-up or those before a resume. With ring attention and
tensor parallelism every rank has gathered copies; the first rank writes.

It follows openrlhf/trainer/ray/ppo_actor.py, models/{loss,actor}.py and trainer/ppo_utils/{experience,replay_buffer}.py of
OpenRLHF 0.11.2, and of 3c3be623 (2026-08-13, 0.11.0), which differs only in the names of the correction's settings.
"""

import logging
from typing import Any

from ...adapter import installed
from ...batch.token_texts import decoder
from ...process.ranks import process_rank
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from .rows import (
    NO_BROADCAST,
    NO_ENTROPY,
    NO_ROLLOUT,
    NO_VERSIONS,
    VERSIONS,
    Batch,
    MicroBatches,
    Step,
    columns,
    facts,
    frozen_steps,
    holds_the_copy,
    release,
    samples_of,
    settings,
)

_ACTOR = "openrlhf.trainer.ray.ppo_actor"
HOOKS = (
    Hook(_ACTOR, "ActorPPOTrainer.ppo_train", before="step_begins", replace="with_scalars"),
    Hook(_ACTOR, "ActorPPOTrainer.training_step", before="batch_begins", after="batch_ends"),
    Hook("openrlhf.models.loss", "PolicyLoss.forward", before="loss_begins"),
    Hook("openrlhf.models.actor", "Actor.forward", after="scored", needed=False),
    Hook("openrlhf.trainer.ppo_utils.experience", "make_experience_batch", after="batch_made", needed=False),
    Hook(_ACTOR, "ActorPPOTrainer.broadcast_to_vllm", after="weights_sent", needed=False),
    Hook("openrlhf.utils.deepspeed.deepspeed", "DeepspeedStrategy.load_ckpt", after="checkpoint_loaded", needed=False),
)


class OpenRlhfRecorder:
    """Watches the actor of its process."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._resumed = 0
        self._steps_before: int | None = None
        self._micro_steps = 0
        self._writes = True
        self._sent: int | None = None
        self._has_sent = False
        self._training = training = MicroBatches(recording)
        self.batch_made, self.batch_begins = training.batch_made, training.batch_begins
        self.loss_begins, self.with_scalars = training.loss_begins, training.with_scalars

    def step_begins(self, call: Call) -> None:
        trainer = call.target
        if self._steps_before is None:
            self._steps_before = max(self._resumed, frozen_steps(trainer.args))
            self._writes = holds_the_copy(trainer.strategy)
            if self._has_sent or not self._resumed:  # the engines load the weights that training begins with
                self._sent = self._steps_before
        self._steps_before += 1
        if self._writes:
            samples = samples_of(trainer.replay_buffer.items, self._steps_before, process_rank())
            self._training.step = Step(self._steps_before, samples, first_micro_step=self._micro_steps)

    def scored(self, call: Call) -> None:
        if self._training.batch is not None and isinstance(call.result, tuple):
            self._training.batch.entropy = getattr(call.result[1], "entropy", None)

    def batch_ends(self, call: Call) -> None:
        if (taken := self._training.taken()) is None:
            return
        (step, batch), trainer = taken, call.target
        if batch.given:
            self._describe(trainer, step.number)
            given, entropy = batch.given, self._entropy(trainer, step.number, batch)
            if given["rollout_log_probs"] is None:
                self._recording.say_once("no_rollout_logprobs", step.number, NO_ROLLOUT, logging.WARNING)
            self._recording.log(
                step=step.number,
                minibatch=step.updates,
                trainer_version=step.number - 1,
                rollout_versions=self._rollout_version(trainer, step.number),
                **columns(batch.experience, given, entropy, is_first_visit=self._training.is_first_visit(step, batch)),
                **facts(batch.samples),
            )
        self._micro_steps += 1
        if trainer.args.train.dynamic_batch_enable:
            step.updates += int(trainer.replay_buffer.dynamic_optimizer_step[call.arguments["step"]])
        else:  # DeepSpeed counts micro-steps across epochs and steps
            every = trainer.strategy.accumulated_gradient
            step.updates = self._micro_steps // every - step.first_micro_step // every

    def weights_sent(self, call: Call) -> None:
        self._sent, self._has_sent = self._steps_before, True
        if self._recording.has_collector and self._steps_before is not None:
            done = self._steps_before
            self._recording.event("weight_sync", done, f"the engines have the weights after {done} steps")

    def checkpoint_loaded(self, call: Call) -> None:
        _, states = call.result
        self._resumed = max(self._resumed, int((states or {}).get("global_step", 0)))

    def _entropy(self, trainer: Any, step: int, batch: Batch) -> Any:
        temperature = getattr(trainer.args.rollout, "temperature", 1.0)
        if batch.entropy is None or temperature == 1.0 or release() >= (0, 11, 2):
            return batch.entropy
        self._recording.say_once("no_entropy", step, NO_ENTROPY)
        return None

    def _rollout_version(self, trainer: Any, step: int) -> int | None:
        if (version_of := self._recording.rollout_version) is not None:
            return version_of(trainer)
        if getattr(trainer.args.train, "async_enable", False):
            self._recording.say_once("no_rollout_versions", step, NO_VERSIONS)
            return None
        if self._sent is None or not hasattr(trainer, "broadcast_to_vllm"):
            self._recording.say_once("no_rollout_versions", step, NO_BROADCAST)
            return None
        return self._sent

    def _describe(self, trainer: Any, step: int) -> None:
        if self._recording.has_collector:
            return
        self._recording.describe(
            trainer=installed("openrlhf"),
            config=settings(trainer.args),
            decode=None if trainer.tokenizer is None else decoder(trainer.tokenizer),
            versions=VERSIONS,
        )
        if self._resumed:
            self._recording.event("resume", step, f"training goes on after {self._resumed} steps")


recorder = OpenRlhfRecorder
