"""self_noise in verl: a few rows through compute_log_prob once more, one for each data-parallel rank at a time.

The driver decides, and verl's own dispatch reaches all ranks. It gets tensors and no queue meta, because verl's workers would
write their output into the queue, over fields that training reads. It comes right after verl's own call, so that the weights
are those of old, also where the asynchronous trainers restore them for that call.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from ...foreign import Tensor, Trainer
from ...self_noise import AGAIN, ALONE, REPLAYED, UNSCORED, guarded, readings_of
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from .rows import Data, known_of_tags, response_views, sequence_lengths, step_of

MARK = "ratioscope_again"
"""A fact beside the data of a second forward, by which a worker knows it."""
WORKER_HOOKS = (
    Hook(
        "verl.workers.engine_workers",
        "TrainingWorker.infer_batch",
        before="again_begins",
        after="again_ends",
        failed="again_ends",
        needed=False,
    ),
)


class VerlAgain:
    """Reads rows again, and keeps their log-probs until the driver logs the batch."""

    def __init__(self, recording: Recording) -> None:
        self._recording, self.is_wanted = recording, bool(recording.options.get("self_noise"))
        self._by_key: dict[str, Tensor] = {}
        self._by_place: tuple[Tensor, list[Tensor]] | None = None

    def of_queue(self, trainer: Trainer, batch: Data, queue: Any) -> None:
        """V1: reads rows of the batch whose old log-probs the queue has now."""
        known = known_of_tags(batch.keys, batch.tags)

        def rows_of(places: list[int]) -> Data:
            keys = [known.ids[place] for place in places]
            data = queue.kv_batch_get(keys=keys, partition_id=batch.partition_id)
            return _told(data, batch.extra_info)

        found = self._read(trainer, len(known.ids), rows_of)
        self._by_key = {key: row for key, row in zip(known.ids, found, strict=False) if row is not None}

    def of_proto(self, trainer: Trainer, batch: Data, old: Tensor) -> None:
        """V0: reads rows of the batch, whose old log-probs are in this tensor."""

        def rows_of(places: list[int]) -> Data:
            unpadded = sys.modules["verl.workers.utils.padding"].left_right_2_no_padding
            return _told(unpadded(batch[places].to_tensordict()), {"calculate_entropy": True, "compute_loss": False})

        self._by_place = old, self._read(trainer, len(old), rows_of)

    def readings(self, step: int, ids: list[str], old: Tensor | None) -> dict[str, Any]:
        """The argument `readings` of `log` for these rows, once; {} if none of them was read."""
        if not self.is_wanted:
            return {}
        if old is None:
            self._recording.say_once("self_noise", step, UNSCORED, logging.WARNING)
        by_key, by_place = self._by_key, self._by_place
        self._by_key, self._by_place = {}, None
        rows = by_place[1] if by_place is not None and by_place[0] is old else [by_key.get(key) for key in ids]
        return readings_of(rows)

    def _read(self, trainer: Trainer, rows: int, rows_of: Callable[[list[int]], Data]) -> list[Any]:
        step, group = step_of(trainer), trainer.actor_rollout_wg
        if fault := _fault(trainer.config.actor_rollout_ref):
            self._recording.say_once("self_noise", step, fault, logging.WARNING)
            return []

        def score(places: list[int]) -> list[Tensor]:
            data = rows_of(places)
            lengths = sequence_lengths(data)
            return [row.float() for row in response_views(group.compute_log_prob(data)["log_probs"], lengths)]

        ranks = 1 + max(group._dispatch_info["actor"])
        return self._recording.collector.read_again(step, rows, score, (), ranks).get(AGAIN, [])


class WorkerAgain:
    """Guards a worker's state during a second forward."""

    def again_begins(self, call: Call) -> ExitStack | None:
        return guarded(getattr(call.target.engine, "module", ())) if MARK in call.arguments["data"].keys() else None

    def again_ends(self, call: Call) -> None:
        if call.noted is not None:
            call.noted.close()


def _told(data: Data, facts: Mapping[str, Any]) -> Data:
    """The data with what verl's own call tells its workers, and that each of their rows is a micro-batch."""
    alone = {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 1, MARK: True}
    sys.modules["verl.utils.tensordict_utils"].assign_non_tensor(data, **{**facts, **alone})
    return data


def _fault(config: Any) -> str:
    """Why nothing can be read; "" if it can."""
    actor, rollout = config.actor, config.rollout
    parts = (actor.get(part) for part in ("megatron", "veomni"))
    modes = (part.get("router_replay", {}).get("mode", "disabled") for part in parts if part)
    if any(mode != "disabled" for mode in modes):
        return REPLAYED
    is_alone = rollout.get("log_prob_micro_batch_size_per_gpu") == 1 and not rollout.get("log_prob_use_dynamic_bsz")
    return ALONE if is_alone else ""
