"""Watches one AReaL worker and logs each micro-batch, with all columns, after its loss.

The rows of an AReaL micro-batch as columns of a Record, without prompts and padding, one value per sampled token.
The description of an AReaL run: its configuration, the source of versions, and why a policy is not recorded.
AReaL's topology: all ranks of a model-parallel group have the same tokens, and one of them writes. No call is collective.
"""

import logging
import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ratioscope.arrays import Singles

from ...batch.host_copy import HostCopies
from ...batch.token_texts import decoder
from ...foreign import Tensor
from ...process.ranks import process_rank
from ...watching.hooks import Call
from ...watching.recording import Recording
from ..trl.rows import turns
from .batch import COLUMNS, KeptRollouts, Rows, Seen, Update

_POOL_BYTES = 1 << 28

OLD_IS_ROLLOUT = (
    "AReaL uses the rollout log-probs as old with use_decoupled_loss=false and recompute_logprob=false, so mismatch is 0 by "
    "construction: old is not recorded, total is; actor.recompute_logprob=true records old"
)
OLD_IS_INTERPOLATED = (
    "AReaL computes no old log-probs with prox_logp_method=loglinear; it interpolates between rollout and current: old is not "
    "recorded, total is; actor.prox_logp_method=recompute (or metrics) records old"
)
OLD_IS_CURRENT = (
    "AReaL takes the detached current log-probs as old with prox_logp_method=reuse_train_logp, so there is no mismatch on "
    "record: old is not recorded, total is; actor.prox_logp_method=recompute for some steps records old"
)
ROLLOUT_IS_LOST = (
    "AReaL overwrites rollout log-probs with recompute_logprob=true and use_decoupled_loss=false, and some sequences had no copy "
    "before: their rows have no rollout log-probs; run compute_advantages in the process that updates"
)
VERSIONS = (
    "AReaL's `versions`: per token, the client's count of updates of the engines' weights when the token came back"
)
NO_VERSIONS = "the workflow gives no `versions`, so staleness is unknown"


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


PerToken = list[Any]


def facts(update: Update, rows: Rows, kept: Sequence[Singles | None] | None) -> dict[str, Any]:
    """The columns of these rows from the batch. kept: the batch's rollout log-probs before AReaL overwrote them; None: not."""
    data, name = update.data, f"{update.before.step}-{update.data_parallel_rank}"
    masks = [update.mask[row, span] for row, span in zip(rows, _spans(update, rows), strict=True)]
    rewards, groups = update.rewards, update.groups
    rollout = from_batch(update, update.rollout, rows) if kept is None else _from_kept(update, kept, rows)
    return {
        "sequence_ids": [f"{name}-{update.before.sequences + row}" for row in rows],
        "group_ids": None if groups is None else [f"{name}-{groups[row]}" for row in rows],
        "rewards": None if rewards is None else [rewards[row] for row in rows],
        "mask": masks,
        "turns": [turns(mask) for mask in masks] if update.has_turns else None,
        "token_ids": from_batch(update, data["input_ids"], rows, shift=1),
        "prompt_ids": [data["input_ids"][row, : int(update.spans.firsts[row]) + 1] for row in rows],
        "rollout_versions": from_batch(update, data.get("versions"), rows, shift=1),
        "rollout_logprobs": rollout,
        "old_logprobs": from_batch(update, update.old, rows),
        "reference_logprobs": from_batch(update, data.get("ref_logp"), rows),
        "advantages": from_batch(update, data.get("advantages"), rows),
    }


def from_batch(update: Update, column: Tensor | None, rows: Rows, shift: int = 0) -> PerToken | None:
    """Views of a padded (B, T) column. shift: 1 for values at the token itself, 0 for values at the position before it."""
    if column is None:
        return None
    return [column[row, span] for row, span in zip(rows, _spans(update, rows, shift), strict=True)]


def from_loss(update: Update, column: Tensor, rows: Rows, width: int | None) -> PerToken:
    """Views of one of the loss's columns, which has one row after the other; only for rows with sampled tokens.

    width: the length of a padded row; None if rows are packed without padding.
    """
    sizes: list[int] = []
    for row in rows:
        first, count = int(update.spans.firsts[row]), int(update.spans.counts[row])
        whole = int(update.lengths[row]) if width is None else width
        sizes += (first, count, whole - first - count)
    views = column.detach().reshape(-1).split(sizes)[1::3]
    return [view for row, view in zip(rows, views, strict=True) if update.spans.counts[row]]


def _spans(update: Update, rows: Rows, shift: int = 0) -> list[slice]:
    firsts, counts = update.spans.firsts, update.spans.counts
    return [slice(int(firsts[row]) + shift, int(firsts[row] + counts[row]) + shift) for row in rows]


def _from_kept(update: Update, kept: Sequence[Singles | None], rows: Rows) -> PerToken | None:
    copies = [kept[row] for row in rows]
    if all(values is None for values in copies):
        return None
    spans = _spans(update, rows, shift=1)
    return [None if values is None else values[span] for values, span in zip(copies, spans, strict=True)]


WITHOUT_OLD = {"reuse_train_logp": ("old_is_current", OLD_IS_CURRENT)}
"""prox_logp_method -> the event and the words for a batch without old log-probs; any other interpolates."""


def description(actor: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of Recording.describe. data: the first batch."""
    engine = actor.engine
    tokenizer = getattr(engine, "tokenizer", None)
    parallel = {
        "data_parallel_ranks": getattr(engine, "data_parallel_world_size", None),
        "pipeline_stages": pipeline_stages(engine),
    }
    return {
        "trainer": version(),
        "config": {"actor": actor.config, "engine": type(engine).__name__, "parallel": parallel},
        "rank": data_parallel_rank(engine),
        "decode": None if tokenizer is None else decoder(tokenizer),
        "versions": NO_VERSIONS if data.get("versions") is None else VERSIONS,
    }


def version() -> str:
    """For run.json: name and version."""
    return f"areal {getattr(sys.modules.get('areal'), '__version__', 'unknown')}"


Engine = Any


def is_writer(engine: Engine) -> bool:
    """Whether the engine's rank is the first of its pipeline stage, whose tensor and context parallel ranks have the same.

    Stages are outermost in the group (order tp-cp-pp in Megatron, pp_cp_tp in Archon). One stage computes the loss: the stage
    with the model's last layers, which in Archon's V-shaped schedules is the first stage.
    """
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return True
    group = getattr(engine, "context_and_model_parallel_group", None)
    if group is None:
        return bool(engine.is_data_parallel_head())
    ranks = list(distributed.get_process_group_ranks(group))
    return bool(ranks.index(distributed.get_rank()) % (len(ranks) // pipeline_stages(engine)) == 0)


def data_parallel_rank(engine: Engine) -> int:
    """The number of the engine's part of the batch; 0 for an engine without this attribute."""
    return int(getattr(engine, "data_parallel_rank", 0))


def pipeline_stages(engine: Engine) -> int:
    """Megatron's or Archon's pipeline stages; FSDP has none."""
    archon = getattr(getattr(engine, "parallel_dims", None), "pp", 1)
    return max(1, int(getattr(getattr(engine, "parallel_strategy", None), "pipeline_parallel_size", archon)))
