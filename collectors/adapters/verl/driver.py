"""verl's driver: rollout, old and the facts, once for every batch for which verl computes advantages.

V1 (PPOTrainer): `_compute_advantage` has the batch's keys and tags; in it, compute_advantage_for_multi_trajectories returns the
padded fields. Before, the batch of calculate_debug_metrics has token ids and entropy. Bypass mode does not call that function, so
token ids are read from the queue. V0 (RayPPOTrainer): `_update_actor` gets everything.

Traps. Rejection replaces response_mask; compute_rollout_correction_and_add_to_batch still has the mask before rejection. V1
appends padding rows (tag is_padding). A step is the step that verl logs: global_steps, in the fully async trainer
current_param_version + 1. Versions count weight syncs: during step s, until the next sync, the weights are version s - 1, also
with several updates per sync, and old has this version.
"""

import logging
import sys
from collections.abc import Mapping
from typing import Any

from ratioscope.errors import SchemaError

from ...foreign import Tensor, Trainer
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from . import messages as words
from .description import VerlDescription
from .rows import ROW, Data, Known, known_of_proto, known_of_tags, marks, padded, prompts, step_of
from .second_forward import VerlAgain

_V0, _V1 = "verl.trainer.ppo.ray_trainer", "verl.trainer.ppo.v1.trainer_base"
HOOKS = (
    Hook("verl.utils.tracking", "Tracking.log", swap="with_scalars", after="logged", needed=False),
    Hook("verl.utils.debug.metrics", "calculate_debug_metrics", before="compared", needed=False),
    Hook(
        "verl.trainer.ppo.rollout_corr_helper",
        "compute_rollout_correction_and_add_to_batch",
        before="correction_begins",
        needed=False,
    ),
    Hook(_V1, "PPOTrainer._compute_old_log_prob", before="scoring_begins", after="scored_in_queue", needed=False),
    Hook(_V1, "PPOTrainer._compute_advantage", before="advantage_begins", after="advantage_ends"),
    Hook("verl.trainer.ppo.v1.utils", "compute_advantage_for_multi_trajectories", after="advantage_computed"),
    Hook(_V0, "RayPPOTrainer._compute_old_log_prob", after="scored", needed=False),
    Hook(_V0, "RayPPOTrainer._update_actor", swap="update_begins"),
)


class VerlDriver:
    """Watches the trainer of its process. only: the one trainer object to record; None: any."""

    def __init__(self, recording: Recording, description: VerlDescription, only: Trainer | None = None) -> None:
        self._recording, self._description, self._only = recording, description, only
        self._again = VerlAgain(recording)
        self._batch: tuple[Trainer, Data] | None = None
        self._keys: list[str] = []
        self._scored: tuple[list[str], Mapping[str, Tensor]] | None = None  # keys, and fields that verl drops later
        self._entropy: tuple[Tensor, Tensor] | None = None
        self._unfiltered: tuple[Tensor, Tensor] | None = None

    def with_scalars(self, call: Call) -> dict[str, Any] | None:
        """The trainer's log with our scalars added, if they are switched on."""
        data = call.arguments["data"]
        ours = self._recording.scalars(int(call.arguments["step"]), known=data.keys())
        return {"data": {**data, **ours}} if ours else None

    def logged(self, call: Call) -> None:
        """The step has ended."""
        if self._recording.has_collector:
            self._recording.collector.flush(0)

    def scoring_begins(self, call: Call) -> None:
        if self._is_ours(call.target):
            self._keys, self._scored = list(call.arguments["batch"].keys), None

    def scored_in_queue(self, call: Call) -> None:
        """V1: old has been computed, unless it is a copy of rollout."""
        trainer = call.target
        if self._again.is_wanted and self._is_ours(trainer) and not _bypasses(trainer.config):
            self._description.tell(trainer)
            self._again.of_queue(trainer, call.arguments["batch"], sys.modules[_V1].tq)

    def compared(self, call: Call) -> None:
        """V1 compares old with rollout. Only this batch has the entropy; it has the response's token ids, too."""
        batch = call.arguments["data"].batch
        if self._keys and len(batch["responses"]) == len(self._keys):
            fields = {name: batch[name] for name in ("responses", "entropy") if name in batch}
            self._keys, self._scored = [], (self._keys, fields)

    def correction_begins(self, call: Call) -> None:
        """Notes the mask before rejection replaces it. The rollout log-probs, which stay the same tensor, identify the batch."""
        batch = call.arguments["batch"].batch
        self._unfiltered = batch["rollout_log_probs"], batch["response_mask"]

    def advantage_begins(self, call: Call) -> None:
        self._batch, self._unfiltered = None, None
        if self._is_ours(call.target):
            self._batch = call.target, call.arguments["batch"]

    def advantage_computed(self, call: Call) -> None:
        if self._batch is None:
            return
        trainer, batch = self._batch
        if list(call.arguments["batch_keys"]) != list(batch.keys):
            raise SchemaError("advantages were computed for other rows than those of the batch")
        known = known_of_tags(batch.keys, batch.tags)
        self._log(trainer, known, {**dict(call.result.batch.items()), **self._fields_before(batch)})

    def advantage_ends(self, call: Call) -> None:
        self._batch = self._scored = self._unfiltered = None
        self._keys = []

    def scored(self, call: Call) -> None:
        """V0: the trainer drops the entropy of old after it has logged its mean."""
        made = call.result[0].batch
        self._entropy = made["old_log_probs"], made["entropys"]
        if self._again.is_wanted and self._is_ours(call.target):
            self._description.tell(call.target)
            self._again.of_proto(call.target, call.arguments["batch"], made["old_log_probs"])

    def update_begins(self, call: Call) -> dict[str, Any] | None:
        """V0: records the batch, and passes on a copy with the column ROW. The copy shares all tensors with the trainer's."""
        trainer, batch = call.target, call.arguments["batch"]
        if not self._is_ours(trainer):
            return None
        step = step_of(trainer)
        known = known_of_proto(batch, step)
        fields = dict(batch.batch.items())
        if self._entropy is not None and self._entropy[0] is fields.get("old_log_probs"):
            fields["entropy"] = self._entropy[1]
        self._recording.watch(lambda: self._log(trainer, known, fields))
        self._entropy = self._unfiltered = None
        names = _objects(marks(known, step, len(known.ids)))
        copy = type(batch)(
            batch=batch.batch, non_tensor_batch={**batch.non_tensor_batch, ROW: names}, meta_info=batch.meta_info
        )
        return {"batch": copy}

    def _log(self, trainer: Trainer, known: Known, fields: Mapping[str, Tensor]) -> None:
        self._description.tell(trainer)
        step = step_of(trainer)
        own = self._recording.rollout_version
        policies = self._policies(trainer, step, fields)
        if not policies or not known.ids:
            return
        if own is None and known.versions is None:
            self._recording.say_once("no_versions", step, words.NO_VERSIONS, logging.WARNING)
        taken = policies | {
            name: fields[field]
            for name, field in (
                ("token_ids", "responses"),
                ("loss_mask", "response_mask"),
                ("advantages", "advantages"),
                ("reference_logprobs", "ref_log_prob"),
                ("entropy", "entropy"),
            )
            if field in fields
        }
        scores = fields.get("token_level_scores")
        self._recording.log(
            step=step,
            **{name: padded(value, known) for name, value in taken.items()},
            mask=padded(self._mask(step, fields), known),
            lengths=known.lengths,
            sequence_ids=known.ids,
            group_ids=known.groups,
            rewards=None if scores is None else padded(scores, known).sum(-1),
            rollout_versions=known.versions if own is None else int(own(trainer)),
            trainer_version=step - 1,
            generation_step=known.generation_steps,
            **self._again.readings(step, known.ids, policies.get("old_logprobs")),
            **prompts(fields, known),
        )

    def _policies(self, trainer: Trainer, step: int, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The genuine log-probs, by argument of `log`. A missing or filled-in policy gives one message."""
        rollout, old = fields.get("rollout_log_probs"), fields.get("old_log_probs")
        policies = {}
        if rollout is None:
            self._recording.say_once("no_rollout_logprobs", step, words.NO_ROLLOUT, logging.WARNING)
        elif not bool(rollout.any()):
            self._recording.say_once("no_rollout_logprobs", step, words.ZERO_ROLLOUT, logging.WARNING)
        else:
            policies["rollout_logprobs"] = rollout
        if old is None:
            self._recording.say_once("no_old_logprobs", step, words.NO_OLD, logging.WARNING)
        elif old is rollout or _bypasses(trainer.config):
            self._recording.say_once("no_old_logprobs", step, words.BYPASS)
        else:
            policies["old_logprobs"] = old
        return policies

    def _mask(self, step: int, fields: Mapping[str, Tensor]) -> Tensor:
        """response_mask before rejection."""
        if self._unfiltered is None:
            return fields["response_mask"]
        log_probs, mask = self._unfiltered
        if log_probs is fields.get("rollout_log_probs"):
            return mask
        self._recording.say_once("mask_lost", step, words.MASK_LOST, logging.WARNING)
        return fields["response_mask"]

    def _fields_before(self, batch: Data) -> Mapping[str, Tensor]:
        """Entropy if there is any, and the token ids of both parts: those that `compared` did not see, from the queue."""
        scored = self._scored
        known = dict(scored[1]) if scored is not None and scored[0] == list(batch.keys) else {}
        if self._recording.options.get("text") == "none":
            return known
        names = [name for name in ("prompts", "responses") if name not in known]
        queue = sys.modules[_V1].tq
        fetched = queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        return known | {name: fetched[name] for name in names}

    def _is_ours(self, trainer: Trainer) -> bool:
        return self._only is None or trainer is self._only


def _bypasses(config: Any) -> bool:
    correction = config.algorithm.get("rollout_correction", None)
    return bool(correction and correction.get("bypass_mode", False))


def _objects(values: list[str]) -> Any:
    """The values in an array of objects, the form of DataProto's non-tensor columns."""
    import numpy as np

    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
