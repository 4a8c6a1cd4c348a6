"""OpenPipe's ART with its unsloth back end: every micro-batch, where its loss gets it.

    get_compute_loss_fn    the trainer object, and the packed rows of each call, which lie on the host
    loss_fn                current and reference log-probs, entropies and the settings of the loss

ART packs sequences of a group, which may share the tokens of their beginnings, into rows (pack.py). A record is the part of a
row that has an id of its own. A log-prob that the sampler did not tell is NaN; ART's loss puts the current log-prob in its place,
so that the token's ratio is 1. The record keeps NaN, which `non_finite` counts, and an event tells how many there were.

ART's Megatron back end gives loss_fn compacted tokens without ids and rows, and its Tinker back end trains elsewhere: neither is
recorded.

It follows art/loss.py and art/unsloth/train.py of openpipe-art 0.5.18 and 0.5.23.
"""

import functools
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from ratioscope.arrays import Integers

from ...adapter import installed
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from ..packed import Packed

HOOKS = (
    Hook("art.unsloth.train", "get_compute_loss_fn", replace="watched"),
    Hook("art.loss", "loss_fn", after="loss_ends"),
)
VERSIONS = "none: ART tells its loss neither which weights sampled a trajectory nor when"
FILLED = (
    "{} of {} sampled tokens of this micro-batch have no log-prob of the sampler; ART's loss takes the current one in its place, "
    "which hides their mismatch. The record keeps them as missing"
)
NO_OLD = (
    "ART computes no old log-probs: its ratio is of the current policy and the sampler; precalculate_logprobs=True "
    "provides them"
)
ELSEWHERE = (
    "loss_fn was called by another back end of ART than unsloth's, whose tokens have no ids: nothing is recorded"
)


class recorder:
    """Watches the trainer of its process."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._packed: Packed | None = None
        self._trainer: Any = None
        self._newest = (0, 0)

    def watched(self, call: Call) -> Any:
        """The trainer's loss function, which notes what it is called with."""
        trainer, original = call.arguments["trainer"], call.result

        @functools.wraps(original)
        def compute_loss(model: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
            self._recording.watch(lambda: self._begin(trainer, inputs))
            try:
                return original(model, inputs, *arguments, **named)
            finally:
                self._packed = None

        return compute_loss

    def _begin(self, trainer: Any, inputs: Any) -> None:
        if not self._recording.is_active or inputs.get("return_new_logprobs"):
            return
        if not self._recording.has_collector:
            told = self._recording.watch(lambda: settings(trainer, inputs["config"], inputs["_config"]))
            self._recording.describe(
                trainer=installed("openpipe-art").removeprefix("openpipe-"), config=told, versions=VERSIONS
            )
        self._trainer, self._packed = trainer, unpacked(inputs)

    def loss_ends(self, call: Call) -> None:
        packed = self._packed
        if packed is None:
            if self._recording.has_collector:
                self._recording.say_once("other_back_end", 0, ELSEWHERE, logging.WARNING)
            return
        if not packed.lengths:
            return
        step = int(self._trainer.state.global_step) + 1
        visit = self._newest[1] + 1 if self._newest[0] == step else 0
        self._newest = (step, visit)
        if packed.missing:
            note = FILLED.format(packed.missing, sum(packed.mask))
            self._recording.say_once("filled_with_current", step, note, logging.WARNING)
        if packed.old is None:
            self._recording.say_once("no_old_logprobs", step, NO_OLD)
        given = call.arguments
        of_loss = {
            "current_logprobs": given["new_logprobs"],
            "reference_logprobs": given["ref_logprobs"],
            "entropy": given["entropies"],
        }
        self._recording.log(
            step=step,
            minibatch=0,
            trainer_version=step - 1,
            sequence_ids=[f"{step}-{visit}-{name}" for name, _ in packed.names],
            group_ids=[f"{step}-{visit}-{group}" for _, group in packed.names],
            **packed.columns(),
            **{name: packed.own(values) for name, values in of_loss.items() if values is not None},
        )
        self._recording.collector.flush(0)


def settings(trainer: Any, config: Any, experimental: Mapping[str, Any]) -> dict[str, Any]:
    """The model, and ART's two configurations. config: art.types.TrainConfig, a pydantic model."""
    model = getattr(getattr(trainer, "model", None), "config", None)
    return {
        "model": getattr(model, "_name_or_path", None),
        "config": config.model_dump(mode="json"),
        "experimental": dict(experimental),
    }


def unpacked(inputs: Mapping[str, Any]) -> Packed:
    """The sequences of a call of the loss, one per id in a row that has sampled tokens, from its first one to its last.

    inputs: ART's TrainInputs, (B, S) tensors on the host. A name is the row and id of a sequence, and those of its prompt.
    """
    names = ("tokens", "group_ids", "parent_ids", "assistant_mask", "logprobs", "advantages", "weights")
    rows = {name: np.asarray(inputs[name].detach().cpu()) for name in names}
    original = inputs.get("original_logprobs")
    rollout, old = (rows["logprobs"], None) if original is None else (np.asarray(original.cpu()), rows["logprobs"])
    found, prompts = list[tuple[str, str, Integers]](), list[Integers]()
    width = rows["tokens"].shape[1]
    for row in range(len(rows["tokens"])):
        sampled = rows["assistant_mask"][row].astype(bool)
        sampled[0] = False  # no position predicts the first token
        ids, parents = rows["group_ids"][row], rows["parent_ids"][row]
        for name in dict.fromkeys(ids[sampled].tolist()):
            own = np.flatnonzero(ids == name)
            first, last = np.flatnonzero(sampled[own])[[0, -1]]
            parent = int(parents[own[0]])
            shared = np.flatnonzero(ids == parent) if parent != name else own[:0]
            prompts.append(rows["tokens"][row][np.concatenate([shared, own[:first]])])
            found.append((f"{row}-{name}", f"{row}-{parent}", row * width + own[first : last + 1]))
    places = np.concatenate([np.zeros(0, np.int64), *(place for _, _, place in found)])
    flat = {name: values.reshape(-1)[places] for name, values in rows.items()}
    mask = flat["assistant_mask"].astype(bool)
    return Packed(
        names=[(name, group) for name, group, _ in found],
        lengths=[len(place) for _, _, place in found],
        prompts=prompts,
        token_ids=flat["tokens"],
        mask=mask,
        places=places - 1,  # a token's log-prob stands at the token before it
        rollout=rollout.reshape(-1)[places],
        old=None if old is None else old.reshape(-1)[places],
        advantages=flat["advantages"],
        left=mask & (flat["weights"] == 0),
    )
