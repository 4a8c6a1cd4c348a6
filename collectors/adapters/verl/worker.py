"""verl's workers: current log-probs and entropies, from the model outputs of the actor's loss.

    ActorRolloutRefWorker.update_actor     V1: has keys and tags; the next call has the data, in the same order
    TrainingWorker.train_mini_batch        has the rows before they are shuffled, and their lengths, still on the host
    BaseEngine.train_batch                 one optimizer update, which is one minibatch; the hook wraps its loss function

Every loss (ppo_loss, distillation, a user's) is called once per micro-batch with model_output and data, and only on ranks with
outputs of their own. Tensor, pipeline and sequence parallel ranks have copies; the rank from which verl collects outputs
writes. In V1 a worker does not know the step; it is the step after the last weight sync. In bypass mode rejection happens
inside the loss, and the mask after rejection is read there.
"""

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any

from ratioscope.errors import SchemaError

from ...foreign import Tensor
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from . import messages as words
from .rows import ROW, Data, column, known_of_tags, marks, response_views, sequence_lengths, verl_version

_WORKERS = "verl.workers.engine_workers"
HOOKS = (
    Hook(_WORKERS, "ActorRolloutRefWorker.update_actor", before="actor_update_begins", after="actor_update_ends"),
    Hook(_WORKERS, "ActorRolloutRefWorker.update_weights", before="weights_sent", needed=False),
    Hook(_WORKERS, "TrainingWorker.train_mini_batch", swap="with_rows"),
    Hook("verl.workers.engine.base", "BaseEngine.train_batch", swap="with_look"),
    Hook(
        "verl.trainer.ppo.rollout_corr_helper",
        "compute_rollout_correction_and_rejection_mask",
        after="rejected",
        needed=False,
    ),
)
_LEADER = "_dcp_group_leader"
"""Column: whether this rank leads the ranks of a micro-batch (dynamic context parallelism, utils/dynamic_cp_scheduler.py)."""

Loss = Callable[..., Any]


class VerlWorker:
    """Watches the actor of its process."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._synced: int | None = None
        self._meta: Data | None = None
        self._updates: dict[int, tuple[int, int]] = {}
        self._lengths: dict[str, tuple[int, int]] = {}
        self._is_in_loss = False
        self._left: Tensor | None = None

    def actor_update_begins(self, call: Call) -> None:
        data = call.arguments["data"]
        self._meta = data if hasattr(data, "tags") and hasattr(data, "partition_id") else None

    def actor_update_ends(self, call: Call) -> None:
        self._meta = None

    def weights_sent(self, call: Call) -> None:
        """Notes the sync; the next data belong to the next step."""
        if (version := call.arguments.get("global_steps")) is not None:
            self._synced = int(version)
            if self._recording.has_collector:
                self._recording.collector.flush(0)

    def with_rows(self, call: Call) -> dict[str, Any] | None:
        """The data with the column ROW, if they are an actor's."""
        data = call.arguments["data"]
        if not hasattr(data, "batch_size"):
            return None  # a critic's batch of V1
        if ROW in data.keys():
            names, given = column(data, ROW), None
        elif self._meta is not None:
            names = self._names_of(data, self._meta)
            given = data.copy()
            sys.modules["verl.utils.tensordict_utils"].assign_non_tensor_stack(given, ROW, names)
        else:
            return None
        self._lengths = dict(zip(names, sequence_lengths(data), strict=True))
        self._begin(call.target.engine, names)
        return None if given is None else {"data": given}

    def with_look(self, call: Call) -> dict[str, Any] | None:
        """Wraps the loss of one update. Data of other models have no column ROW and do not change."""
        if ROW not in call.arguments["data"].keys():
            return None
        step, minibatch = self._updates[id(call.target)]
        self._updates[id(call.target)] = step, minibatch + 1
        return {"loss_function": self._watched(call.arguments["loss_function"], call.target, step, minibatch)}

    def rejected(self, call: Call) -> None:
        if self._is_in_loss:
            self._left = call.result[1]

    def _begin(self, engine: Any, names: list[str]) -> None:
        """Starts the count of updates at the first batch of a step; the count runs over all batches and epochs of the step."""
        steps = [int(name.partition(" ")[0]) for name in names if name]
        if steps and self._updates.get(id(engine), (-1, 0))[0] != steps[0]:
            self._updates[id(engine)] = steps[0], 0

    def _names_of(self, data: Data, meta: Data) -> list[str]:
        if self._synced is None:
            raise SchemaError(words.NO_STEP)
        known = known_of_tags(meta.keys, meta.tags)
        if len(meta.keys) != int(data.batch_size[0]) or not all(map(_begins, meta.keys, column(data, "uid"))):
            raise SchemaError("the rows of a batch are not in the order of its keys, so their ids are not known")
        return marks(known, self._synced + 1, len(meta.keys))

    def _watched(self, loss: Loss, engine: Any, step: int, minibatch: int) -> Loss:
        @functools.wraps(loss)
        def watched_loss(*arguments: Any, **named: Any) -> Any:
            self._is_in_loss, self._left = True, None
            try:
                result = loss(*arguments, **named)
            finally:
                self._is_in_loss = False
            output = named.get("model_output")
            if output is not None:  # other calls of the loss, for example for top-k distillation, have no output
                self._recording.watch(lambda: self._record(output, named["data"], engine, (step, minibatch)))
            return result

        return watched_loss

    def _record(self, output: Any, data: Data, engine: Any, update: tuple[int, int]) -> None:
        if not _writes(engine, data):
            return
        if (log_probs := output.get("log_probs")) is None:
            self._recording.describe(trainer=verl_version())
            self._recording.say_once("no_current_logprobs", update[0], words.NO_CURRENT, logging.WARNING)
            return
        names = column(data, ROW)
        kept = [index for index, name in enumerate(names) if name]
        if kept:
            self._log(log_probs, output.get("entropy"), names, kept, update)

    def _log(
        self, log_probs: Tensor, entropy: Tensor | None, names: list[str], kept: list[int], update: tuple[int, int]
    ) -> None:
        lengths = [self._lengths[name] for name in names]
        views = response_views(log_probs, lengths)
        entropies = None if entropy is None else response_views(entropy, lengths)
        left = self._left
        self._recording.describe(trainer=verl_version())
        self._recording.log(
            step=update[0],
            minibatch=update[1],
            current_logprobs=[views[index] for index in kept],
            entropy=None if entropies is None else [entropies[index] for index in kept],
            loss_mask=None if left is None else [left[index, : lengths[index][1]] for index in kept],
            sequence_ids=[names[index].partition(" ")[2] for index in kept],
            trainer_version=update[0] - 1,
        )


def _writes(engine: Any, data: Data) -> bool:
    """Whether this rank is the one that records, among the ranks with the same outputs."""
    if _LEADER not in data.keys():
        return bool(engine.is_mp_src_rank_with_outputs())
    parallel = sys.modules["megatron.core.parallel_state"]
    return all(column(data, _LEADER)) and parallel.get_tensor_model_parallel_rank() == 0


def _begins(key: str, uid: str) -> bool:
    return key.startswith(f"{uid}_")
