"""NeMo-RL's policy workers: current log-probs from the arguments of the loss, and other columns from the data plane.

The loss is called once per micro-batch, or once per sequence of a packed micro-batch. Tensor and context parallel ranks have
copies; the first of them writes. With pipeline parallelism only the last stage calls the loss. NeMo-RL may add micro-batches so
that all ranks have the same number. They come after the rank's own, so rows beyond the global batch's size are ignored.
"""

import logging
from typing import Any

from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from .rows import ABSENT_STEP, batch_columns, current_columns, sequence_ids
from .tags import FACTS, VISIT

_WORKERS = "nemo_rl.models.policy.workers"
_TRAINS = {
    "dtensor_policy_worker": ("DTensorPolicyWorkerImpl.train",),
    "dtensor_policy_worker_v2": ("DTensorPolicyWorkerV2Impl.train",),
    "megatron_policy_worker": ("MegatronPolicyWorkerImpl.train", "MegatronPolicyWorkerImpl.train_microbatch"),
}
HOOKS = (
    *(
        Hook(f"{_WORKERS}.{module}", name, before="shard_begins", needed=False)
        for module, names in _TRAINS.items()
        for name in names
    ),
    Hook("nemo_rl.distributed.batched_data_dict", "BatchedDataDict.get_batch", after="update_begins", needed=False),
    Hook("nemo_rl.data_plane.worker_mixin", "TQWorkerMixin._fetch", after="fetched", needed=False),
    Hook("nemo_rl.algorithms.loss.loss_functions", "ClippedPGLossFn.__call__", after="loss_computed"),
)


class NemoWorker:
    """Watches the calls in HOOKS, in each process that computes a part of the loss."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._writes, self._update = True, 0
        self._awaited: int | None = None

    def shard_begins(self, call: Call) -> None:
        worker, arguments = called(call)
        coordinates = worker._local_coords()
        copies = [coordinates.get(f"{axis}_parallel", 0) for axis in ("tensor", "context")]
        self._writes = not any(copies) and not arguments.get("eval_mode", False)
        self._update, data = 0, arguments.get("data")
        self._awaited = None if data is None else int(data.size)

    def update_begins(self, call: Call) -> None:
        """Notes the rows of the next optimizer step, whose global batch is cut from the shard. With packing, ranks differ."""
        self._update, self._awaited = int(call.arguments["batch_idx"]), int(call.result.size)

    def fetched(self, call: Call) -> None:
        """Records the data that a worker fetched to train on. The driver does not have these tensors."""
        meta, facts = call.arguments["meta"], (call.arguments["meta"].extra_info or {}).get(FACTS)
        if facts is None or meta.task_name != "train" or not call.target._is_replica_leader():
            return
        rows = [facts["rows"][key] for key in meta.sample_ids]
        known = {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}
        self._recording.describe(trainer="NeMo-RL")
        self._recording.log(
            step=facts["step"],
            trainer_version=facts["step"] - 1,
            sequence_ids=sequence_ids(call.result),
            **batch_columns(call.result, has_old=facts["old"], has_reference=facts["reference"]),
            **known,
            extra=[{"sample_id": key} for key in meta.sample_ids],
        )

    def loss_computed(self, call: Call) -> None:
        """Records a micro-batch, or one sequence of it, after its loss."""
        logprobs, data = call.arguments["next_token_logprobs"], call.arguments["data"]
        if not self._writes or not self._is_awaited(len(logprobs)):
            return
        visit = getattr(call.target, VISIT, None)
        if visit is None:
            self._recording.say_once("no_current_logprobs", 0, ABSENT_STEP, logging.WARNING)
            return
        self._recording.describe(trainer="NeMo-RL")
        step, earlier = visit
        self._recording.log(
            step=step,
            minibatch=earlier + self._update,
            sequence_ids=sequence_ids(data),
            **current_columns(logprobs, data),
        )

    def _is_awaited(self, rows: int) -> bool:
        if self._awaited is None:
            return True
        self._awaited -= rows
        return self._awaited >= 0


def called(call: Call) -> tuple[Any, dict[str, Any]]:
    """(worker, arguments by name). NeMo-RL's decorator of these methods hides their signature."""
    if isinstance(call.target, tuple):
        names = ("data", "loss_fn", "eval_mode")
        return call.target[0], {**dict(zip(names, call.target[1:], strict=False)), **call.arguments.get("kwargs", {})}
    return call.target, dict(call.arguments)
