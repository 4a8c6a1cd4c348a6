"""self_noise in NeMo-RL: a few rows through the workers' get_logprobs once more, one for each data-parallel rank, less padding.

It comes right after Policy.get_logprobs, which computes old. The workers are called as that method calls them, but without its
timers, and with a micro-batch size, by which a worker knows a second forward: NeMo-RL itself gives none for the policy.
"""

import copy
import logging
from contextlib import ExitStack
from typing import Any

from ...foreign import Tensor
from ...self_noise import AGAIN, ALONE, MORE_THAN_TOKENS, guarded, readings_of
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from .rows import Data
from .worker import called

Policy = Any
"""NeMo-RL's Policy, in the driver."""

IN_THE_PLANE = (
    "self_noise: no trainer_again is recorded: the workers put old log-probs into the data plane, where those of another forward "
    "would replace them"
)
READ = ("input_ids", "input_lengths", "token_mask", "sample_mask")
"""The columns that the workers get: those of the data of log-probs, if they are of tokens alone."""
BESIDE = ("generation_logprobs", "prev_logprobs", "reference_policy_logprobs", "advantages")
"""Columns of a training batch that no forward reads. The asynchronous loop has log-probs of the whole batch computed."""
_COPIES = ["context_parallel", "tensor_parallel", "pipeline_parallel"]
_WORKERS = "nemo_rl.models.policy.workers"
HOOKS = tuple(
    Hook(f"{_WORKERS}.{module}", f"{name}.get_logprobs", before="again_begins", after="again_ends", failed="again_ends",
         needed=False)
    for module, name in (
        ("dtensor_policy_worker", "DTensorPolicyWorkerImpl"),
        ("dtensor_policy_worker_v2", "DTensorPolicyWorkerV2Impl"),
        ("megatron_policy_worker", "MegatronPolicyWorkerImpl"),
    )
)  # fmt: skip


class NemoAgain:
    """Reads rows again, and keeps their log-probs until the driver records the batch."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._found: tuple[Tensor, list[Any]] | None = None

    def read(self, policy: Policy, data: Any, old: Tensor, step: int) -> None:
        """Reads a few rows of the data that the policy has just scored. old: their log-probs, (B, S)."""
        if fault := _fault(policy, data):
            self._recording.say_once("self_noise", step, fault, logging.WARNING)
            return

        def score(places: list[int]) -> list[Tensor]:
            # these rows without the columns that are padding in all of them
            multiple = policy.cfg["make_sequence_length_divisible_by"]
            part = type(data)({name: data[name] for name in READ if name in data}).select_indices(places)
            width = -(-int(part["input_lengths"].max()) // multiple) * multiple
            for name in ("input_ids", "token_mask"):
                if name in part:
                    part[name] = part[name][:, :width]
            whole = old.new_zeros((len(places), old.shape[1]))
            found = _scored(policy, part)
            whole[:, : found.shape[1]] = found
            return list(whole)

        ranks = policy.data_parallel_size
        found = self._recording.collector.read_again(step, len(old), score, (), ranks)
        self._found = (old, found[AGAIN]) if found else None

    def added_to(self, data: Data) -> Data:
        """The batch with the column AGAIN, NaN in rows that were not read; unchanged without a reading of its old."""
        if self._found is None or data.get("prev_logprobs") is not self._found[0]:
            self._found = None
            return data
        old, rows = self._found
        column = old.new_full(old.shape, float("nan"))
        for place, row in enumerate(rows):
            if row is not None:
                column[place] = row
        return {**data, AGAIN: column}

    def readings(self, columns: dict[str, Any]) -> dict[str, Any]:
        """The argument `readings` of `log`; takes the column AGAIN out."""
        column, found = columns.pop(AGAIN, None), self._found
        self._found = None
        if column is None or found is None:
            return {}
        return readings_of([None if read is None else row for row, read in zip(column, found[1], strict=True)])


class WorkerAgain:
    """Guards a worker's state during a second forward."""

    def again_begins(self, call: Call) -> ExitStack | None:
        worker, arguments = called(call)
        if arguments.get("micro_batch_size") is None:
            return None
        stack = guarded(worker.model)
        stack.callback(vars(worker.timer).update, _timed(worker.timer))
        return stack

    def again_ends(self, call: Call) -> None:
        if call.noted is not None:
            call.noted.close()


def _timed(timer: Any) -> dict[str, Any]:
    """The counts of a worker's timer. A forward that raises leaves it running, and NeMo-RL's next call would then raise."""
    return {name: copy.deepcopy(value) for name, value in vars(timer).items() if isinstance(value, dict)}


def _scored(policy: Policy, data: Any) -> Tensor:
    """The log-probs of a batch by the workers, (B, S)."""
    shards, order = policy._shard_for_logprob(data)
    futures = policy.worker_group.run_all_workers_sharded_data(
        "get_logprobs",
        data=shards,
        in_sharded_axes=["data_parallel"],
        replicate_on_axes=_COPIES,
        output_is_replicated=_COPIES,
        common_kwargs={"micro_batch_size": 1},
    )
    found = type(data).from_batches(policy.worker_group.get_all_worker_results(futures))
    if order is not None:
        found.reorder_data(order)
    return found["logprobs"]


def _fault(policy: Policy, data: Any) -> str:
    """Why nothing can be read; "" if it can."""
    if set(data) - {*READ, *BESIDE}:
        return MORE_THAN_TOKENS
    is_packed = policy.use_dynamic_batches or policy.use_sequence_packing
    return ALONE if policy.cfg["logprob_batch_size"] == 1 and not is_packed else ""
