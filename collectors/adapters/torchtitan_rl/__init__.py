"""torchtitan RL: every micro-batch of its policy trainer, where the loss gets it.

    Batcher._pack_training_sample_row, collate    which samples lie where in a batch, in the controller's process
    PolicyTrainer.forward_backward                the batch of this rank, which lies on the host, and the policy version
    compute_logprobs                              current log-probs and entropies, whole or in chunks

The controller sends its batches to the trainer's processes without the names of their samples. So the names travel as an
attribute of the tensor of positions, which pickling keeps; without them a sample has a number, and no group and no versions.
A token whose sampled log-prob is not finite is left out of torchtitan's loss; the record keeps it as missing.

It follows torchtitan/experiments/rl of torchtitan 0.3.0 and of the commit b5bcd76c (2026-08-21).
"""

import dataclasses
import logging
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...adapter import installed
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from ..packed import Packed, sampled_pieces

NAMES = "ratioscope_names"
"""The attribute of a tensor of positions: where a sample begins -> its name."""
Name: TypeAlias = tuple[str, int, int, int]
"""A sample: torchtitan's text of its id, its group, and the oldest and newest version that sampled it. Plain values."""


def columns(packed: Packed) -> dict[str, Any]:
    """Arguments of `log` that are known before the loss."""
    known = [name for name in packed.names if name is not None]
    if len(known) < len(packed.names):
        return packed.columns()
    versions = {"min": [oldest for _, _, oldest, _ in known], "max": [newest for _, _, _, newest in known]}
    return packed.columns() | {"group_ids": [str(group) for _, group, _, _ in known], "rollout_versions": versions}


def named(samples: Sequence[Any], lengths: Sequence[int]) -> dict[int, Name]:
    """The first token of each sample of a row -> the sample's name. lengths: tokens that each has in the row."""
    starts = np.cumsum([0, *lengths])[:-1].tolist()
    return {start: _name(sample) for start, sample in zip(starts, samples, strict=True)}


def _name(sample: Any) -> Name:
    own = sample.rollout_id
    return own.to_string(), int(own.group_id), int(sample.min_policy_version), int(sample.max_policy_version)


def unpacked(batch: Any) -> Packed:
    """The samples of a TrainingMicrobatch, whose tensors lie on the host, each from its first sampled token to its last.

    One without a sampled token is left out.
    """
    names = ("token_ids", "labels", "positions", "generator_logprobs", "loss_mask", "advantages")
    flat = {name: np.asarray(getattr(batch, name).detach().cpu()).reshape(-1) for name in names}
    given: dict[int, Name] = getattr(batch.positions, NAMES, {})
    starts = np.flatnonzero(flat["positions"] == 0).tolist()
    pieces, places = sampled_pieces(flat["loss_mask"], [*starts, len(flat["positions"])])
    mask, rollout = flat["loss_mask"][places].astype(bool), flat["generator_logprobs"][places]
    return Packed(
        names=[given.get(start) for start, _, _ in pieces],
        lengths=[end - first for _, first, end in pieces],
        prompts=[flat["token_ids"][start : first + 1] for start, first, _ in pieces],
        token_ids=flat["labels"][places],
        mask=mask,
        places=places,
        rollout=rollout,
        advantages=flat["advantages"][places],
        left=mask & ~np.isfinite(rollout),
    )


RL = "torchtitan.experiments.rl"
HOOKS = (
    Hook(f"{RL}.components.batcher", "Batcher._pack_training_sample_row", after="packed", needed=False),
    Hook(f"{RL}.components.batcher", "Batcher.collate", after="collated", needed=False),
    Hook(f"{RL}.actors.trainer", "PolicyTrainer.forward_backward", before="begins", after="ends"),
    Hook("torchtitan.components.loss", "compute_logprobs", after="computed"),
)
VERSIONS = "min_policy_version and max_policy_version of torchtitan's training samples"
UNNAMED = "the names of the samples did not reach the trainer's process: neither groups nor versions are recorded"
LEFT_OUT = (
    "{} of {} sampled tokens of this micro-batch have no finite log-prob of the generator; torchtitan leaves them out of its "
    "loss. The record keeps them as missing"
)
NO_OLD = "torchtitan RL computes no old log-probs: its ratio is of the current policy and the generator"


class recorder:
    """Watches the controller or the trainer of its process."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._packed: Packed | None = None
        self._computed: list[tuple[Any, Any]] = []
        self._newest = (0, 0)

    def packed(self, call: Call) -> None:
        lengths = [call.target.num_tokens_to_pack(sample) for sample in call.arguments["training_samples"]]
        setattr(call.result["positions"], NAMES, named(call.arguments["training_samples"], lengths))

    def collated(self, call: Call) -> None:
        found, before = dict[int, Name](), 0
        for row in call.arguments["rows"]:
            found |= {before + start: name for start, name in getattr(row["positions"], NAMES, {}).items()}
            before += row["positions"].numel()
        setattr(call.result.positions, NAMES, found)

    def begins(self, call: Call) -> None:
        trainer = call.target
        self._computed, self._packed = [], None
        # the first of the ranks with the same tokens
        meshes = [trainer.parallel_dims.get_optional_mesh(name) for name in ("tp", "cp", "pp")]
        if not any(mesh.get_local_rank() for mesh in meshes if mesh is not None):
            self._packed = unpacked(call.arguments["training_data"][trainer.dp_rank])

    def computed(self, call: Call) -> None:
        if self._packed is None or not self._packed.places.size:
            return
        logprobs, entropy = call.result if isinstance(call.result, tuple) else (call.result, None)
        self._computed.append((logprobs.detach().flatten(), None if entropy is None else entropy.detach().flatten()))

    def ends(self, call: Call) -> None:
        packed, self._packed = self._packed, None
        computed, self._computed = self._computed, []
        if packed is None or not packed.lengths or not computed:
            return
        trainer = call.target
        self._describe(trainer)
        step = int(trainer.policy_version) + 1
        visit = self._newest[1] + 1 if self._newest[0] == step else 0
        self._newest = (step, visit)
        self._recording.say_once("no_old_logprobs", step, NO_OLD)
        if packed.missing:
            note = LEFT_OUT.format(packed.missing, int(packed.mask.sum()))
            self._recording.say_once("left_out_of_the_loss", step, note, logging.WARNING)
        if None in packed.names:
            self._recording.say_once("no_names", step, UNNAMED, logging.WARNING)
        self._recording.log(
            step=step,
            minibatch=0,
            trainer_version=step - 1,
            sequence_ids=[
                f"{step}-{trainer.dp_rank}-{visit}-{place}" if name is None else name[0]
                for place, name in enumerate(packed.names)
            ],
            **columns(packed),
            current_logprobs=_own(packed, [one for one, _ in computed]),
            entropy=_own(packed, [one for _, one in computed]),
        )
        self._recording.collector.flush(0)

    def _describe(self, trainer: Any) -> None:
        if not self._recording.has_collector:
            told = self._recording.watch(lambda: settings(trainer))
            self._recording.describe(
                trainer=installed("torchtitan"), config=told, rank=trainer.dp_rank, versions=VERSIONS
            )


def _own(packed: Packed, chunks: list[Any]) -> Any:
    """The values of the recorded tokens, from those of all tokens in chunks; None if there are none."""
    return None if any(chunk is None for chunk in chunks) else packed.own(sys.modules["torch"].cat(chunks))


def settings(trainer: Any) -> dict[str, Any]:
    """The trainer's own configuration, a tree of dataclasses; one whose values cannot be copied is named."""
    config = trainer.config
    return {
        "loss": type(trainer.loss_fn).__name__,
        **({"config": dataclasses.asdict(config)} if dataclasses.is_dataclass(config) else {}),  # type: ignore[arg-type]
    }
