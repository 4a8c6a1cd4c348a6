"""xtuner's RL (v1): every pack of sequences, where the loss of a training worker gets it.

    TrainingWorker.fit                     the packs of this rank, which lie on the host, and the number of the rollout
    BaseRLLossConfig.build                 the loss of each pack, in their order
    LMHeadLossContext.forward              all log-probs of a pack; xtuner has left tokens out by then
    gather_logprobs                        current log-probs, whole or in chunks

xtuner overwrites the labels of tokens that its rollout correction rejects. So the mask before is read when `fit` begins. The
current log-prob there is that of token 0 (gather_logprobs clips the label); the record keeps it as missing.
TrainingController packs sequences without their names: a record has no group, no reward and no rollout version.

It follows xtuner/v1/rl of the commit b934f462 (2026-08-21).
"""

import logging
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...adapter import installed
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from ..packed import Packed, sampled_pieces

RL = "xtuner.v1.rl"
HOOKS = (
    Hook(f"{RL}.trainer.worker", "TrainingWorker.fit", before="begins", after="ends"),
    Hook(f"{RL}.loss.base_loss", "BaseRLLossConfig.build", after="built"),
    Hook("xtuner.v1.loss.ce_loss", "LMHeadLossContext.forward", before="loss_begins", after="loss_ends"),
    Hook(f"{RL}.utils.misc", "gather_logprobs", after="gathered"),
)
VERSIONS = "none: xtuner's TrainingController packs sequences without the steps that sampled them"
NO_GROUPS = (
    "xtuner's TrainingController packs sequences without the names of their groups and without their rewards: neither is "
    "recorded; sequences of one group have the same prompt_ids"
)
NO_ROLLOUT = "xtuner's packs have no rollout_logprobs: neither mismatch nor total is recorded"
REJECTED = (
    "xtuner computes current log-probs from labels in which the rollout correction has overwritten the rejected tokens: the "
    "record has no current log-prob of these"
)
SPLIT = (
    "a pack is split over ranks by sequence parallelism, and a rank has a slice of each sequence: nothing is recorded; sp_size=1 "
    "is recorded"
)


class recorder:
    """Watches the training worker of its process."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._worker: Any = None
        self._packs: list[Packed] = []
        self._losses: dict[int, Packed] = {}
        self._rollout, self._first = 0, 0
        self._open: Packed | None = None
        self._current: list[Any] = []

    def begins(self, call: Call) -> None:
        worker = call.target
        self._forget()
        if int(worker.sp_mesh.size()) > 1:
            self._recording.say_once("split", int(call.arguments["rollout_idx"]), SPLIT, logging.WARNING)
            return
        if worker.rank % int(worker.get_data_replicate_size()):
            return  # tensor and pipeline parallel ranks have copies
        self._worker, self._rollout = worker, int(call.arguments["rollout_idx"])
        self._first = int(worker._global_train_step)
        self._packs = [unpacked(data, place) for place, data in enumerate(call.arguments["data_batches"])]

    def ends(self, call: Call) -> None:
        if self._worker is not None and self._recording.has_collector:
            self._recording.collector.flush(0)
        self._forget()

    def _forget(self) -> None:
        self._worker, self._open, self._packs, self._losses = None, None, [], {}

    def built(self, call: Call) -> None:
        if self._worker is not None and call.result is not None and len(self._losses) < len(self._packs):
            self._losses[id(call.result)] = self._packs[len(self._losses)]

    def loss_begins(self, call: Call) -> None:
        self._open, self._current = self._losses.get(id(call.target)), []

    def gathered(self, call: Call) -> None:
        if self._open is not None:
            self._current.append(call.result.detach())

    def loss_ends(self, call: Call) -> None:
        pack, self._open = self._open, None
        current, self._current = self._current, []
        if pack is None or not pack.lengths or not current:
            return
        self._describe()
        held, torch = call.target.loss_kwargs, sys.modules["torch"]
        is_kept = held.shifted_labels != call.target.loss_cfg.ignore_idx
        columns = {
            "rollout_logprobs": held.rollout_logprobs,
            "old_logprobs": held.old_logprobs,
            "current_logprobs": torch.where(is_kept, torch.cat(current, 1), float("nan")),
            "reference_logprobs": held.ref_logprobs,
            "advantages": held.advantages,
            "loss_mask": is_kept,
        }
        self._say(call.target)
        rank = self._worker.rank
        self._recording.log(
            step=self._rollout,
            minibatch=int(self._worker._global_train_step) - self._first,
            trainer_version=self._rollout - 1,
            sequence_ids=[f"{self._rollout}-{rank}-{place}-{number}" for place, number in pack.names],
            pack_index=[place for place, _ in pack.names],
            pack_position=[number for _, number in pack.names],
            **pack.columns() | {name: pack.own(values) for name, values in columns.items() if values is not None},
        )

    def _say(self, loss: Any) -> None:
        self._recording.say_once("no_groups", self._rollout, NO_GROUPS)
        if loss.loss_kwargs.rollout_logprobs is None:
            self._recording.say_once("no_rollout_logprobs", self._rollout, NO_ROLLOUT, logging.WARNING)
        elif _rejects(loss.loss_cfg.rollout_is):
            self._recording.say_once("rejected_without_current", self._rollout, REJECTED)

    def _describe(self) -> None:
        if not self._recording.has_collector:
            told = self._recording.watch(lambda: settings(self._worker))
            self._recording.describe(
                trainer=installed("xtuner"), config=told, rank=self._worker.rank, versions=VERSIONS
            )


def _rejects(correction: Any) -> bool:
    """Whether xtuner's RolloutImportanceSampling can leave tokens out."""
    return correction.rollout_is_mode == "mask" or correction.rollout_is_veto_threshold is not None


def settings(worker: Any) -> dict[str, Any]:
    """The loss and its rollout correction, and how many optimizer steps a rollout takes. loss_cfg is a pydantic model."""
    config = worker.config
    return {
        "loss_cfg": config.loss_cfg.model_dump(mode="json"),
        "optimizer_steps": getattr(config, "optimizer_steps", None),
        "model": str(getattr(config, "load_from", None)),
    }


IGNORED = -100
"""The label of a token that is not trained."""


def unpacked(data: Mapping[str, Any], place: int) -> Packed:
    """The sequences of a WorkerInputItem, whose tensors lie on the host, each from its first trained token to its last.

    Padding is a sequence without a trained token. place: of the pack among those of its rank. The mask is true at sampled tokens,
    as before xtuner's rollout correction.
    """
    held = data["seq_ctx"]
    tokens = np.array(held.input_ids.detach().cpu(), np.int64).reshape(-1)
    labels = np.array(data["shifted_labels"].detach().cpu(), np.int64).reshape(-1)
    bounds = np.asarray(held.cu_seq_lens_q.detach().cpu()).tolist()
    pieces, places = sampled_pieces(labels != IGNORED, bounds)
    mask = labels[places] != IGNORED
    following = np.append(tokens[1:], 0)[places]  # the token of a label that is not trained, as that of a tool's reply
    return Packed(
        names=[(place, number) for number in range(len(pieces))],
        lengths=[end - first for _, first, end in pieces],
        prompts=[tokens[start : first + 1] for start, first, _ in pieces],
        token_ids=np.where(mask, labels[places], following),
        mask=mask,
        places=places,
    )
