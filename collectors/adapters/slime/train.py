"""A training rank of slime or miles: one row per sequence and optimizer step, from inside the loss.

The loss has everything: rollout, old, current and reference log-probs, entropy, advantages, and the mask before and after the
correction. The current log-probs are the first that are computed while the loss function runs, so a second computation in the
backward pass (--recompute-loss-function) does not count. A micro-batch has no ids. Its mask tensors are the same objects as in
the rollout's batch, so they identify its sequences. Steps are rollout ids, which slime logs as rollout/step. minibatch is the
optimizer step within the rollout: train/step is rollout id * steps per rollout + minibatch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ...batch.token_texts import decoder
from ...foreign import Tensor
from ...self_noise import AGAIN, readings_of
from ...watching.hooks import Call, recorder_of
from ...watching.recording import Recording
from .batch import Batch, Rollout, noted, number, sliced
from .names import Names, hooks
from .rollout import CARRIED, RolloutSide, recorded_arguments
from .second_forward import SlimeAgain
from .versions import Arguments, interval, recorded_versions, version_of

NO_ROLLOUT = (
    "the batch has no rollout log-probs, so neither mismatch nor total is recorded; the trainer has them if the first sample of "
    "a rollout has them"
)
NO_SCORES = (
    "the loss function computed no log-probs by the trainer's own function, so nothing of it is recorded: another --loss-type, "
    "such as miles' score_centering, which is not recorded yet, or a loss of your own"
)
_HEADS = ("topk_ids", "rollout_topk_logprobs", "current_topk_logprobs")
NO_PUSHES = "this process has pushed no weights, so the version of its weights is unknown, and lag too"


@dataclass
class _Loss:
    """A loss function while it runs."""

    args: Arguments
    """slime's arguments."""
    batch: Batch
    scores: Mapping[str, Any] | None = None
    """The current log-probs and entropies; None before they are computed."""
    masks: Sequence[Tensor] | None = None
    """The masks of the last reducer; None before there is one."""
    ids: Tensor = None
    """The sampler's likeliest tokens of the sequence whose log-probs at them were computed last."""
    heads: list[Mapping[str, Tensor]] = field(default_factory=list)
    """The likeliest tokens and the log-probs of both sides at them, (tokens, k), one for each sequence with score centering."""


class TrainSide:
    """Watches a rank train on rollouts and push its weights."""

    def __init__(self, recording: Recording, names: Names) -> None:
        self._recording, self._names = recording, names
        self.again = SlimeAgain(recording, names)
        self._arrived: Mapping[str, Any] = {}
        self.rollout: Rollout | None = None
        """The rollout in training; None if this rank does not record it."""
        self._loss: _Loss | None = None
        self._pushes, self._unpushed, self._next = 0, 0, 0
        self._waiting: str | None = None
        self._has_begun = False

    def shard_arrives(self, call: Call) -> None:
        """A rank's part of a rollout arrives. slime's Box has the facts of its samples, miles' dict has their places."""
        data = call.arguments.get("rollout_data")
        if data is not None:
            self._arrived = {"partition": [int(place) for place in data["partition"]]}
        else:
            box = call.arguments["rollout_data_ref"][call.arguments["dp_rank"]]
            self._arrived = getattr(box, CARRIED, {})

    def rollout_begins(self, call: Call) -> None:
        actor = call.target
        self.again.begins(call.arguments["rollout_id"], call.arguments["rollout_data"])
        arrived, self._arrived = self._arrived, {}
        self.begin(
            actor.args,
            call.arguments["rollout_id"],
            call.arguments["rollout_data"],
            arrived,
            pushes=getattr(getattr(actor, "weight_updater", None), "weight_version", 0),
            tokenizer=getattr(actor, "tokenizer", None),
        )

    def begin(
        self,
        args: Arguments,
        rollout_id: int,
        data: Batch,
        arrived: Mapping[str, Any],
        *,
        pushes: int = 0,
        tokenizer: Any = None,
    ) -> None:
        """Notes a rollout before training, on a rank that writes."""
        self.rollout, self._loss, self._next = None, None, rollout_id + 1
        place = self._names.place()
        if not place.writes:
            return
        if not self._recording.has_collector:
            self._recording.describe(
                trainer=self._names.adapter,
                config={"args": recorded_arguments(args)},
                decode=None if tokenizer is None else decoder(tokenizer),
            )
        self.rollout = noted(args, rollout_id, data, arrived, place, self._version(args, pushes))
        if place.speaks:
            if self._waiting is not None:
                waiting, self._waiting = self._waiting, None
                self._recording.event("weight_sync", rollout_id, waiting)
            begins, self._has_begun = not self._has_begun, True
            if begins and rollout_id > 0 and not getattr(args, "release_train", False):  # this flag restarts processes
                self._recording.say_once("resume", rollout_id, f"training goes on with rollout {rollout_id}")
            if self.rollout is not None and self.rollout.version is None:
                self._recording.say_once("no_trainer_version", rollout_id, NO_PUSHES)

    def step_begins(self, call: Call) -> None:
        if self.rollout is not None:
            self.rollout.step = int(call.arguments["step_id"])

    def loss_begins(self, call: Call) -> None:
        self._loss = None
        if self.rollout is not None:
            self._loss = _Loss(call.arguments["args"], call.arguments["batch"])
            self.again.loss_begins(self.rollout.id, self._loss.batch)

    def scored(self, call: Call) -> None:
        """Log-probs were computed. The first ones in a running loss function are the current ones."""
        if self._loss is not None and self._loss.scores is None:
            self._loss.scores = call.result[1] if isinstance(call.result, tuple) else call.result

    def mask_used(self, call: Call) -> None:
        """A reducer is made. The last reducer of a loss has the masks after the correction."""
        if self._loss is not None:
            self._loss.masks = call.arguments["loss_masks"]

    def head_scored(self, call: Call) -> None:
        """The trainer's log-probs at the sampler's likeliest tokens of a sequence were computed."""
        if self._loss is not None:
            self._loss.ids = tuple(call.arguments.values())[1]  # its name is not known: no whole source was read

    def heads_met(self, call: Call) -> None:
        """Score centering is about to compare both sides at these tokens: the rank's own, unless its context is all-gathered."""
        loss, place = self._loss, self.rollout and self.rollout.place
        if loss is not None and loss.ids is not None and not (place and place.cp_size > 1 and loss.args.allgather_cp):
            sides = (call.arguments[f"{side}_head_logp"] for side in ("sampler", "train"))
            loss.heads.append(dict(zip(_HEADS, (loss.ids, *sides), strict=True)))
            loss.ids = None

    def loss_ends(self, call: Call) -> None:
        loss, self._loss = self._loss, None
        if loss is not None and loss.scores is None and self.rollout is not None:
            self._say(self.rollout, "no_scores", NO_SCORES)
        if loss is not None and loss.scores is not None and self.rollout is not None:
            old = self._old(self.rollout, loss.args, loss.batch, loss.scores["log_probs"])
            self.log(
                self.rollout,
                loss.batch,
                loss.masks or loss.batch["loss_masks"],
                minibatch=self.rollout.step,
                old_logprobs=old,
                current_logprobs=loss.scores["log_probs"],
                entropy=loss.scores.get("entropy"),
                **_topk(loss.heads, loss.scores["log_probs"], old),
            )

    def rollout_ends(self, call: Call) -> None:
        self._unpushed += 1
        if self.rollout is not None and self._recording.has_collector:
            self._recording.collector.flush(0)
        self.rollout = None  # the trainer frees its batch

    def synced(self, call: Call) -> None:
        pushes = int(call.target.weight_updater.weight_version)
        if pushes == self._pushes:  # the trainer had no engine to push to
            return
        self._pushes, self._unpushed = pushes, 0
        note = f"the engines have the weights of push {pushes}"
        if not self._names.place().speaks:
            return
        if self._next == 0:
            self._waiting = note  # the number of the first rollout is not known yet
        else:
            self._recording.event("weight_sync", self._next, note)

    def with_scalars(self, call: Call) -> dict[str, Any] | None:
        metrics = call.arguments["metrics"]
        if self.rollout is None or "train/step" not in metrics:
            return None
        scalars = self._recording.scalars(self.rollout.id, tuple(metrics))
        return {"metrics": {**metrics, **scalars}} if scalars else None

    def log(
        self, rollout: Rollout, batch: Batch, used: Sequence[Tensor] | None, *, minibatch: int | None, **given: Any
    ) -> None:
        """Logs sequences of the rollout. given: the rank's lists, which are slices under context parallelism."""
        rows, pieces = rollout.rows_of(batch["loss_masks"]), rollout.pieces_of(batch)
        if batch.get("rollout_log_probs") is None and rollout.place.speaks:
            self._recording.say_once("no_rollout_logprobs", rollout.id, NO_ROLLOUT)
        held = {
            "rollout_logprobs": batch.get("rollout_log_probs"),
            "reference_logprobs": batch.get("ref_log_probs"),
            "advantages": batch.get("advantages"),
            AGAIN: [self.again.found.get(row) for row in rows],
            **given,
        }
        lengths = [int(length) for length in batch["response_lengths"]]
        spans = [rollout.spans[row] for row in rows]
        whole = {
            "mask": [rollout.masks[row] for row in rows],
            "loss_mask": used,
            "token_ids": [
                tokens[len(tokens) - length :] for tokens, length in zip(batch["unconcat_tokens"], lengths, strict=True)
            ],
            "rollout_versions": recorded_versions(spans, lengths),
        }
        rewards = rollout.data.get("local_raw_reward")
        facts = {
            "sequence_ids": [rollout.ids[row] for row in rows],
            "rewards": None if rewards is None else [number(rewards[row]) for row in rows],
        }
        columns = held | whole | facts if pieces is None else sliced(held, whole, facts, pieces)
        self._recording.log(
            step=rollout.id,
            minibatch=minibatch,
            trainer_version=rollout.version,
            **readings_of(columns.pop(AGAIN)),
            **columns,
        )

    def _old(self, rollout: Rollout, args: Arguments, batch: Batch, current: Sequence[Tensor]) -> Any:
        old = batch.get("log_probs")
        if old:
            return old
        if args.use_rollout_logprobs:
            self._say(rollout, "no_old_logprobs", self._names.bypass)
            return None
        self._say(rollout, "old_is_current", self._names.old_is_current)
        return current

    def _version(self, args: Arguments, pushes: int) -> int | None:
        """The version of the weights that compute old. With --keep-old-actor these are the weights of the samples."""
        if not pushes:
            return None
        if getattr(args, "keep_old_actor", False) and (not args.use_rollout_logprobs or args.get_mismatch_metrics):
            last = pushes - 1 if getattr(args, "update_weights_interval", 1) == 1 else pushes
            return version_of(max(last, 1), args)
        version = version_of(pushes, args)
        return None if version is None else version + min(self._unpushed, interval(args) - 1)

    def _say(self, rollout: Rollout, kind: str, note: str) -> None:
        if rollout.place.speaks:
            self._recording.say_once(kind, rollout.id, note)


def _topk(heads: Sequence[Mapping[str, Tensor]], current: Sequence[Tensor], old: Any) -> dict[str, Any]:
    """Arguments of `log`; {} unless there is a head for each token of each sequence, in the order of the current log-probs."""
    if not heads or [len(head[_HEADS[0]]) for head in heads] != [len(own) for own in current]:
        return {}
    found = {name: [head[name] for head in heads] for name in _HEADS}
    return found | ({"old_topk_logprobs": found[_HEADS[2]]} if old is current else {})


def sides(recording: Recording, names: Names) -> SimpleNamespace:
    """The methods that the hooks of this trainer name, of both kinds of processes."""
    training = TrainSide(recording, names)
    return recorder_of(hooks(names), RolloutSide(recording, names), training, training.again)
