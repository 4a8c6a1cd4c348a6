"""Watches one AReaL worker and logs each micro-batch, with all columns, after its loss."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from typing import Any

from ...batch.host_copy import HostCopies
from ...foreign import Tensor
from ...process.ranks import process_rank
from ...watching.hooks import Call
from ...watching.recording import Recording
from .batch import COLUMNS, KeptRollouts, Rows, Seen, Update
from .columns import facts, from_loss
from .description import (
    OLD_IS_INTERPOLATED,
    OLD_IS_ROLLOUT,
    ROLLOUT_IS_LOST,
    WITHOUT_OLD,
    description,
    version,
)
from .topology import data_parallel_rank, is_writer

_POOL_BYTES = 1 << 28


class ArealRecorder:
    """Reads the arguments and results of the hooked calls in one worker and changes none. Only writer ranks keep anything."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._copies = HostCopies(_POOL_BYTES)
        self._kept = KeptRollouts(self._copies)
        self._found: Any = None
        self._update: Update | None = None
        self._grouped: tuple[Any, list[int]] | None = None
        self._left: Tensor | None = None
        self._engine: Any = None
        self._version: int | None = None
        self._seen = Seen()

    def training_begins(self, call: Call) -> None:
        """Notes a resume when PPOTrainer.train begins, on the controller or, without one, on every rank."""
        trainer = call.target
        self._recording.describe(trainer=version(), config={"areal": getattr(trainer, "config", None)})
        recovered = getattr(trainer, "recover_info", None)
        if recovered is not None and process_rank() == 0:
            last = int(recovered.last_step_info.global_step)
            self._recording.event("resume", last + 1, f"AReaL recovered the state after global step {last}")

    def advantages_begin(self, call: Call) -> None:
        config, engine = call.target.config, call.target.engine
        if config.recompute_logprob and not config.use_decoupled_loss and is_writer(engine):
            self._kept.keep(call.arguments["data"], int(engine.get_version()))

    def concatenated(self, call: Call) -> None:
        """Notes the groups: rows of the batch from one dict are the answers to one prompt."""
        batch, meta = call.result
        groups = [group for group, rows in enumerate(meta.traj_group_sizes) for _ in range(rows)]
        self._grouped = None if "loss_mask" not in batch else (weakref.ref(batch["loss_mask"]), groups)

    def update_begins(self, call: Call) -> None:
        self._close_update()
        actor, data = call.target, call.arguments["data"]
        if not is_writer(actor.engine):
            return
        step = int(actor.engine.get_version())
        self._begin_step(actor, data, step)
        config, old = actor.config, data.get("prox_logp")
        is_lost = bool(config.recompute_logprob and not config.use_decoupled_loss)
        is_rollout = not config.recompute_logprob and not config.use_decoupled_loss
        if is_rollout:
            self._recording.say_once("old_is_rollout", step, OLD_IS_ROLLOUT)
        elif old is None:
            method = str(getattr(config, "prox_logp_method", ""))
            event, words = WITHOUT_OLD.get(method, ("old_is_interpolated", OLD_IS_INTERPOLATED))
            self._recording.say_once(event, step, words)
        self._update = Update(
            data={name: data[name] for name in COLUMNS if data.get(name) is not None},
            data_parallel_rank=data_parallel_rank(actor.engine),
            before=self._seen,
            groups=self._groups_of(data),
            rollout=None if is_lost else data["logprobs"],
            old=None if is_rollout else old,
            is_rollout_lost=is_lost,
            copies=self._copies,
        )

    def update_ended(self, call: Call) -> None:
        self._kept.clear()
        if self._update is not None:
            self._seen = self._update.seen_with_it
            self._close_update()
            self._recording.collector.flush(0)

    def divided(self, call: Call) -> None:
        if self._update is not None:
            batches, at = call.result, 0
            pieces: list[tuple[Rows, Mapping[str, Any]]] = []
            for batch in batches.mbs:
                size = len(batch["attention_mask"])
                pieces.append((list(batches.forward_indices[at : at + size]), batch))
                at += size
            self._update.divide(call.arguments["data"], pieces)

    def divided_into_trees(self, call: Call) -> None:
        if self._update is not None:
            pieces = [(list(batch["trie_node"].all_sequence_ids), batch) for batch in call.result.mbs]
            self._update.divide(call.arguments["data"], pieces)

    def loss_begins(self, call: Call) -> None:
        self._left = None

    def filtered(self, call: Call) -> None:
        """Notes the mask after M2PO, then the one after rejection sampling, which includes M2PO's."""
        self._left = getattr(call.result, "loss_mask", call.result)

    def loss_computed(self, call: Call) -> None:
        update, left = self._update, self._left
        self._left = None
        if update is None:
            return
        given = call.arguments
        mask, current = given["input_data"]["loss_mask"], given["logprobs"]
        minibatch, visited = update.visited(mask, current.numel())
        rows = [row for row in visited if update.spans.counts[row]]
        if not rows:
            return
        width = int(mask.shape[1]) if mask.ndim == 2 else None
        columns = facts(update, rows, self._rollouts(update))
        self._recording.log(
            step=update.before.step,
            minibatch=minibatch,
            trainer_version=update.before.step,
            current_logprobs=from_loss(update, current, visited, width),
            entropy=from_loss(update, given["entropy"], visited, width),
            loss_mask=columns["mask"] if left is None else from_loss(update, left, visited, width),
            pack_position=None if width else [at for at, row in enumerate(visited) if update.spans.counts[row]],
            **self._with_version(columns),
        )

    def weights_synced(self, call: Call) -> None:
        engine = None if self._engine is None else self._engine()
        if engine is not None and engine is call.target:
            self._note_version(int(call.arguments["version"]))

    def with_scalars(self, call: Call) -> dict[str, Any] | None:
        """Adds our scalars to the worker's, because in single-controller mode only those reach the logger."""
        engine = None if self._engine is None else self._engine()
        if engine is None or engine is not call.target:
            return None
        more = self._recording.scalars(self._seen.step, call.result)
        return {**call.result, **more} if more else None

    def commit_with_scalars(self, call: Call) -> dict[str, Any] | None:
        data = call.arguments["data"]
        newest = data if isinstance(data, dict) else data[-1]
        more = self._recording.scalars(int(call.arguments["global_step"]), newest)
        if not more:
            return None
        merged = {**newest, **more}
        return {"data": merged if isinstance(data, dict) else [*data[:-1], merged]}

    def _begin_step(self, actor: Any, data: Mapping[str, Any], step: int) -> None:
        if self._engine is None or self._engine() is not actor.engine:
            self._engine = weakref.ref(actor.engine)
            self._recording.describe(**description(actor, data))
        if step != self._seen.step:
            self._seen = Seen(step)
        self._note_version(step)

    def _note_version(self, version: int) -> None:
        """Records an event for new weights, on one of the ranks that write."""
        known, self._version = self._version, version
        engine = self._engine()
        if known is not None and known != version and data_parallel_rank(engine) == 0:
            note = f"AReaL gave its engines the weights of version {version}"
            self._recording.event("weight_sync", version, note)

    def _groups_of(self, data: Mapping[str, Any]) -> list[int] | None:
        grouped, self._grouped = self._grouped, None
        if grouped is None or grouped[0]() is not data["loss_mask"]:
            return None
        return [self._seen.groups + group for group in grouped[1]]

    def _rollouts(self, update: Update) -> Any:
        if not update.is_rollout_lost:
            return None
        if self._found is None:
            self._found = self._kept.of(update)
            if any(found is None for found in self._found):
                self._recording.say_once("rollout_is_lost", update.before.step, ROLLOUT_IS_LOST, logging.WARNING)
        return self._found

    def _with_version(self, columns: dict[str, Any]) -> dict[str, Any]:
        """The columns, with the versions of the user's `rollout_version` if there is one."""
        version_of = self._recording.rollout_version
        return columns if version_of is None else {**columns, "rollout_versions": version_of(self._engine())}

    def _close_update(self) -> None:
        if self._update is not None:
            self._update.close()
        self._update, self._found = None, None
