"""MOLT's policy actor: the policy loss gets all policies of a micro-batch, in the Ray actor that trains; with score centering
also the log-probs of both sides at the sampler's likeliest tokens.

    NaiveReplayBuffer's items       one sample each, on the host, before policy_train shuffles them: the facts of each
    make_experience_batch           the samples of a micro-batch
    PolicyTrainer.training_step     the micro-batch on the device; whether an optimizer step follows it
    PolicyLoss.forward              current, old and rollout together, as the loss uses them
    Actor.forward                   entropy, if the loss has an entropy term

MOLT comes from OpenRLHF and keeps the layout of its batches: see ../openrlhf. Ranks of context and tensor parallelism have
gathered copies; the first writes. A rank does not know the step: it counts calls of policy_train, after the steps before a resume
or those in which the actor is frozen.

It follows molt/trainer/workers/policy_actor.py, molt/models/{loss,actor}.py, molt/trainer/algorithm/{experience,replay_buffer}.py
and molt/trainer/fsdp/strategy.py of molt-rl 0.2.1.
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...adapter import installed
from ...batch.token_texts import decoder
from ...foreign import Tensor
from ...process.ranks import process_rank
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from ..openrlhf import rows as openrlhf
from ..sampled_spans import SampledFirst

VERSIONS = (
    "not known to MOLT's trainer: it samples while it trains, and no sample has the number of a broadcast of weights"
)
NO_VERSIONS = (
    "MOLT does not note which weights sampled a sequence, so lag is not recorded; attach(..., rollout_version=...) can "
    "supply the version"
)
NO_ROLLOUT = (
    "MOLT asks vLLM for log-probs only if it corrects with them or centers the score, so neither mismatch nor total is "
    "recorded; --algo.advantage.is_correction_level token records them, and so does --algo.advantage.score_centering_top_k"
)
OLD_IS_CURRENT = (
    "with --train.force_on_policy MOLT computes no old log-probs and its loss uses the detached current ones; the record has "
    "these as old"
)
_SETTINGS = {
    "algo.advantage": "estimator is_correction_level is_correction_mode is_correction_gating is_correction_threshold "
    "score_centering_top_k",
    "rollout": "temperature top_p n_samples_per_prompt batch_size",
    "train": "force_on_policy force_sync_mode async_queue_size partial_rollout_enable routing_replay batch_size "
    "micro_batch_size max_epochs dynamic_batch_enable",
    "actor": "model_name_or_path loss_mode loss_agg_mode eps_clip_low_high dual_clip entropy_coef freezing_steps",
    "fsdp": "param_dtype attn_implementation tp_size cp_size ep_size",
    "vllm": "num_engines tensor_parallel_size enable_prefix_caching",
}


def samples_of(items: Sequence[Any], step: int, rank: int) -> dict[int, openrlhf.Sample]:
    """The facts of each sample by identity of the replay buffer's item. MOLT names the group of a sample itself."""
    found = openrlhf.samples_of(items, step, rank)
    named = {id(item): item.group_ids[0] for item in items if item.group_ids}
    return {key: replace(sample, group_id=named.get(key, sample.group_id)) for key, sample in found.items()}


def columns(
    experience: Any, given: Mapping[str, Tensor], entropy: Tensor | None, *, is_first_visit: bool, is_current: bool
) -> dict[str, Tensor]:
    """Per-token columns of a micro-batch, each row from its first action on; top-k at the first visit.

    given: the arguments of the loss. is_current: the loss uses current as old.
    """
    own = openrlhf.columns(experience, given, entropy, is_first_visit=is_first_visit)
    train, rollout = given.get("top_log_probs"), given.get("rollout_top_log_probs")
    if train is None or rollout is None or not is_first_visit:
        return own
    moved = SampledFirst(given["action_mask"])
    ids = moved(experience.rollout_top_ids.permute(0, 2, 1))
    topk = {
        "topk_ids": sys.modules["torch"].where(moved.mask[..., None], ids, -1),  # MOLT fills tokens of tools with id 0
        "rollout_topk_logprobs": moved(rollout),
        "current_topk_logprobs": moved(train),
    }
    return own | topk | ({"old_topk_logprobs": topk["current_topk_logprobs"]} if is_current else {})


def frozen_steps(args: Any) -> int:
    """The number of first steps in which only the critic trains."""
    return int(getattr(args.actor, "freezing_steps", 0)) if args.algo.advantage.estimator == "gae" else 0


def is_a_copy(strategy: Any) -> bool:
    """True if this rank is not the first of the ranks with the same tokens."""
    return any(getattr(strategy, f"{kind}_size", 1) > 1 and strategy._get_automodel_rank(kind) for kind in ("cp", "tp"))


def kept_settings(args: Any) -> dict[str, Any]:
    """The settings that run.json keeps, by their names on the command line."""
    return openrlhf.settings(args, _SETTINGS)


_ACTOR = "molt.trainer.workers.policy_actor"
HOOKS = (
    Hook(_ACTOR, "PolicyTrainer.policy_train", before="step_begins", replace="with_scalars"),
    Hook(_ACTOR, "PolicyTrainer.training_step", before="batch_begins", after="batch_ends"),
    Hook("molt.models.loss", "PolicyLoss.forward", before="loss_begins"),
    Hook("molt.models.actor", "Actor.forward", after="scored", needed=False),
    Hook("molt.trainer.algorithm.experience", "make_experience_batch", after="batch_made", needed=False),
    Hook(_ACTOR, "PolicyTrainer.broadcast_to_vllm", after="weights_sent", needed=False),
    Hook("molt.trainer.fsdp.strategy", "FsdpStrategy.load_ckpt", after="checkpoint_loaded", needed=False),
)


class MoltRecorder:
    """Watches the policy actor of its process."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._number, self._resumed = -1, 0
        self._training = training = openrlhf.MicroBatches(recording)
        self.batch_made, self.batch_begins = training.batch_made, training.batch_begins
        self.loss_begins, self.with_scalars = training.loss_begins, training.with_scalars

    def step_begins(self, call: Call) -> None:
        trainer = call.target
        if self._number < 0:
            self._number = max(self._resumed, frozen_steps(trainer.args))
        self._number += 1
        if not is_a_copy(trainer.strategy):
            samples = samples_of(trainer.replay_buffer.items, self._number, process_rank())
            self._training.step = openrlhf.Step(self._number, samples)

    def scored(self, call: Call) -> None:
        if self._training.batch is not None:
            self._training.batch.entropy = call.result.get("entropy")

    def batch_ends(self, call: Call) -> None:
        """Logs the micro-batch; the next one belongs to the next update if an optimizer step came after this one."""
        if (taken := self._training.taken()) is None:
            return
        step, batch = taken
        if batch.given:
            self._log(call.target, batch, step)
        step.updates += bool(call.arguments["is_optimizer_step"])

    def _log(self, trainer: Any, batch: openrlhf.Batch, step: openrlhf.Step) -> None:
        self._describe(trainer)
        is_current = batch.experience.action_log_probs is None
        if is_current:
            self._recording.say_once("old_is_current", self._number, OLD_IS_CURRENT)
        if batch.given["rollout_log_probs"] is None:
            self._recording.say_once("no_rollout_logprobs", self._number, NO_ROLLOUT, logging.WARNING)
        version = None if self._recording.rollout_version is None else self._recording.rollout_version(trainer)
        if version is None:
            self._recording.say_once("no_rollout_versions", self._number, NO_VERSIONS)
        is_first = self._training.is_first_visit(step, batch)
        self._recording.log(
            step=self._number,
            minibatch=step.updates,
            trainer_version=self._number - 1,
            rollout_versions=version,
            **columns(batch.experience, batch.given, batch.entropy, is_first_visit=is_first, is_current=is_current),
            **openrlhf.facts(batch.samples),
        )

    def weights_sent(self, call: Call) -> None:
        if self._recording.has_collector and not is_a_copy(call.target.strategy):
            note = f"the engines have the weights after {self._number} steps"
            self._recording.event("weight_sync", self._number, note)

    def checkpoint_loaded(self, call: Call) -> None:
        _, states = call.result
        self._resumed = max(self._resumed, int((states or {}).get("global_step", 0)))

    def _describe(self, trainer: Any) -> None:
        if self._recording.has_collector:
            return
        tokenizer = trainer.tokenizer
        self._recording.describe(
            trainer=installed("molt-rl"),
            config=kept_settings(trainer.args),
            decode=None if tokenizer is None else decoder(tokenizer),
            versions=VERSIONS,
        )
        if self._resumed:
            self._recording.event("resume", self._number, f"training goes on after {self._resumed} steps")


recorder = MoltRecorder
