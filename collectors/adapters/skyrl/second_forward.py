"""self_noise in SkyRL: a few rows through WorkerDispatch.forward once more, one for each data-parallel rank, without padding.

It comes right after SkyRL's own forward of the policy, when the model is loaded and no optimizer step has been taken.
"""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from ...foreign import Tensor, Trainer
from ...self_noise import AGAIN, ALONE, MORE_THAN_TOKENS, UNSCORED, guarded
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording

MARK = "ratioscope_again"
"""A key of the metadata of a second forward, by which a worker knows it."""
_WORKERS = "skyrl.backends.skyrl_train.workers"
HOOKS = (
    Hook("skyrl.train.trainer", "RayPPOTrainer._execute_forward_pass", after="forwarded", needed=False),
    *(
        Hook(f"{_WORKERS}.{module}", name, before="again_begins", after="again_ends", failed="again_ends", needed=False)
        for module, name in (
            ("worker", "PolicyWorkerBase.forward"),
            ("megatron.megatron_worker", "MegatronPolicyWorkerBase.forward"),
        )
    ),
)


class SkyrlAgain:
    """Reads rows again, and keeps their log-probs until the training step logs the batch."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._found: tuple[Tensor, list[Any]] | None = None

    def read(self, trainer: Trainer, batch: Any, old: Tensor) -> None:
        """Reads a few rows of a batch that the policy has just scored. old: their log-probs."""
        if fault := _fault(trainer, batch):
            self._recording.say_once("self_noise", trainer.global_step, fault, logging.WARNING)
            return
        dispatch, rows = trainer.dispatch, len(batch["sequences"])
        ranks = dispatch._actor_groups["policy"].actor_infos[0].rank.dp_size

        def score(places: list[int]) -> list[Tensor]:
            # these rows without the columns that are padding in all of them, which come first
            attended = batch["attention_mask"][places]
            first = int(attended.any(0).int().argmax())
            made = type(batch)({"sequences": batch["sequences"][places, first:], "attention_mask": attended[:, first:]})
            width = int(made["sequences"].shape[1])
            made.metadata = {"response_length": min(batch.metadata["response_length"], width - 1), MARK: True}
            outputs = dispatch.forward("policy", made).loss_fn_outputs
            return [old.new_tensor(output["logprobs"]) for output in outputs]

        found = self._recording.collector.read_again(trainer.global_step, rows, score, (), ranks)
        self._found = (old, found[AGAIN]) if found else None

    def rows(self, step: int, old: Tensor | None, lengths: Sequence[int]) -> list[Any]:
        """The log-probs of the rows whose old ones these are, cut to their lengths, once; [] if none was read."""
        found, self._found = self._found, None
        if old is None and self._recording.options.get("self_noise"):
            self._recording.say_once("self_noise", step, UNSCORED, logging.WARNING)
        if old is None or found is None or found[0].data_ptr() != old.data_ptr():
            return []
        return [row if row is None else row[len(row) - n :] for row, n in zip(found[1], lengths, strict=False)]


def again_begins(call: Call) -> ExitStack | None:
    """Guards a worker's state during a second forward."""
    return guarded(call.target.model) if MARK in call.arguments["data"].metadata else None


def again_ends(call: Call) -> None:
    if call.noted is not None:
        call.noted.close()


def _fault(trainer: Trainer, batch: Any) -> str:
    """Why nothing can be read; "" if it can."""
    if set(batch.keys()) != {"sequences", "attention_mask"}:
        return MORE_THAN_TOKENS
    settings = trainer.cfg.trainer
    is_alone = settings.micro_forward_batch_size_per_gpu == 1 and settings.max_tokens_per_microbatch <= 0
    return ALONE if is_alone else ""
