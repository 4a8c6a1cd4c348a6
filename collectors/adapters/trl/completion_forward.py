"""The second forward of a few completions, by TRL's own log-prob function, in batches of another shape (self_noise.py).

It runs when a batch has been made, where TRL runs its own forward without gradients, with the weights of its old log-probs. TRL
pads the prompts and completions of a micro-batch to one length. Here each sequence is alone and without padding; if TRL's
micro-batches are of one sequence, all sequences that are read form a batch.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from ...foreign import Tensor, Trainer
from ...self_noise import AGAIN
from ...watching.recording import Recording
from .rows import Row

IMAGES = "pixel_values"
PROFILER = "trl.extras.profiling"
NO_IMAGES = "self_noise: no trainer_again is recorded, because the batches hold images"
SHARDED = (
    "self_noise: no trainer_again is recorded: FSDP and DeepSpeed make each forward a call that all ranks must join"
)
COMPILED = "self_noise: no trainer_again is recorded: torch_compile would compile the model anew for another shape"


class CompletionForward:
    """Reads a few completions of a batch again. method: the trainer's _get_per_token_logps_and_entropies."""

    def __init__(self, trainer: Trainer, recording: Recording, method: Callable[..., Any]) -> None:
        self._trainer, self._recording = trainer, recording
        self._method = _unprofiled(method)

    def add_to(self, rows: list[Row], batch: Mapping[str, Any], step: int) -> None:
        """Gives the rows that are read their log-probs."""
        if fault := self._fault(batch):
            self._recording.say_once("self_noise", step, fault)
            return
        scored = [place for place, row in enumerate(rows) if not row.is_hidden]
        found = self._recording.collector.read_again(
            step, len(scored), lambda chosen: self._read([scored[one] for one in chosen], batch), self._trainer.model
        )
        for place, logprobs in zip(scored, found.get(AGAIN, ()), strict=False):
            rows[place] = replace(rows[place], again=logprobs)

    def _fault(self, batch: Mapping[str, Any]) -> str:
        trainer = self._trainer
        if getattr(trainer, "is_fsdp_enabled", False) or getattr(trainer, "is_deepspeed_enabled", False):
            return SHARDED
        if getattr(trainer.args, "torch_compile", False):
            return COMPILED
        return NO_IMAGES if IMAGES in batch else ""

    def _read(self, places: list[int], batch: Mapping[str, Any]) -> list[Tensor]:
        alone = self._trainer.args.per_device_train_batch_size > 1
        chunks = [[place] for place in places] if alone else [places]
        trainer = self._trainer
        with _switch(trainer)(trainer.model, trainer.args.gradient_checkpointing_kwargs):
            return [logprobs for chunk in chunks for logprobs in self._chunk(chunk, batch)]

    def _chunk(self, places: list[int], batch: Mapping[str, Any]) -> list[Tensor]:
        """Log-probs of these completions in one batch, padded on the right only."""
        torch = sys.modules["torch"]
        names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
        prompts, prompt_masks, ids, masks = (batch[name][places] for name in names)
        starts = [int(number) for number in prompt_masks.sum(1)]
        lengths = [int(number) for number in masks.sum(1)]
        whole = [
            torch.cat([prompt[mask.bool()], own[:length]])
            for prompt, mask, own, length in zip(prompts, prompt_masks, ids, lengths, strict=True)
        ]
        padded = torch.nn.utils.rnn.pad_sequence(whole, batch_first=True, padding_value=0)
        attention = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in whole], batch_first=True)
        keep = padded.shape[1] - min(starts)
        read = self._method(self._trainer.model, padded, attention, keep)[0]
        first = padded.shape[1] - keep
        return [
            row[start - first : start - first + length]
            for row, start, length in zip(read, starts, lengths, strict=True)
        ]


def _switch(trainer: Trainer) -> Callable[..., Any]:
    """TRL's own switch for gradient checkpointing, which it uses for its forwards without gradients."""
    names = (base.__module__ for base in type(trainer).__mro__ if base.__module__.startswith("trl."))
    functions = (getattr(sys.modules.get(name), "disable_gradient_checkpointing", None) for name in names)
    return next(filter(None, functions), lambda *_: nullcontext())


def _unprofiled(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method without TRL's profiler, which logs the time of each call to W&B."""
    function = getattr(method, "__func__", None)
    is_profiled = getattr(function, "__globals__", {}).get("__name__") == PROFILER
    inner: Callable[..., Any] = function.__wrapped__.__get__(method.__self__) if is_profiled else method  # type: ignore[union-attr, attr-defined]
    return inner
