"""attach: a collector on a running trainer in one line, whatever trainer it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypedDict, Unpack, cast

from ratioscope.errors import ConfigError

from .collector import QUEUE_BATCHES, QUEUE_BYTES, Collector, Text
from .token_texts import Decode

Trainer = Any
"""Another program's trainer object. `Any`, because no trainer is a dependency."""


class AttachOptions(TypedDict, total=False):
    """Options of `attach`: those of `Collector` that the adapter does not decide, and `rollout_version`.

    rollout_version: for engines whose weights are not those of the trainer's last sync; else the adapter tells from the
    trainer. config is kept beside what the adapter knows.
    """

    rollout_version: RolloutVersion | None
    config: Mapping[str, Any] | None
    name: str | None
    attempt: int | None
    text: Text
    strict: bool
    queue_batches: int
    queue_bytes: int


@dataclass(frozen=True)
class Description:
    """What the adapter tells about a trainer: what run.json says of it, its rank, and the texts of its token ids."""

    trainer: str
    config: Mapping[str, Any]
    rank: int
    decode: Decode | None


class AdapterModule(Protocol):
    """The two functions every adapter file has."""

    def describe(self, trainer: Trainer) -> Description:
        """What is known before training; ConfigError if this trainer cannot be recorded."""
        ...

    def install(
        self, trainer: Trainer, collector: Collector, rollout_version: RolloutVersion | None
    ) -> Callable[[], None]:
        """Starts recording; the returned call takes everything off the trainer again."""
        ...


RolloutVersion = Callable[[Trainer], int]
"""trainer -> the version of the weights its engine samples with, in updates of the trainer."""


@dataclass(frozen=True)
class Adapter:
    """Says which trainers a file of this folder is for: a class of this name, from this module, among the trainer's bases."""

    trainer: str
    class_name: str
    module_prefix: str
    adapter: str

    def fits(self, trainer: Trainer) -> bool:
        """Whether the adapter is for this trainer."""
        bases = type(trainer).__mro__
        return any(
            b.__name__ == self.class_name and f"{b.__module__}.".startswith(f"{self.module_prefix}.") for b in bases
        )


ADAPTERS = (Adapter("TRL's GRPOTrainer", "GRPOTrainer", "trl", ".trl"),)


class Attachment:
    """A collector on a trainer. `detach` leaves the trainer as it was before and closes the collector."""

    def __init__(self, collector: Collector, undo: Callable[[], None]) -> None:
        self.collector = collector
        self._undo: Callable[[], None] | None = undo

    def detach(self, timeout: float | None = 10.0) -> bool:
        """True if all that was recorded is on disk. A second call does nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()
        return self.collector.close(timeout)


def attach(trainer: Trainer, run_dir: str | os.PathLike[str], **options: Unpack[AttachOptions]) -> Attachment:
    """Records what the trainer holds into `run_dir`, from now on until `detach`."""
    adapter = _adapter_for(trainer)
    description = adapter.describe(trainer)
    rollout_version = options.get("rollout_version")
    collector = Collector(
        run_dir,
        trainer=description.trainer,
        config={**description.config, **(options.get("config") or {})},
        name=options.get("name"),
        rank=description.rank,
        attempt=options.get("attempt"),
        text=options.get("text", "full"),
        strict=options.get("strict", False),
        decode=description.decode,
        queue_batches=options.get("queue_batches", QUEUE_BATCHES),
        queue_bytes=options.get("queue_bytes", QUEUE_BYTES),
    )
    return Attachment(collector, adapter.install(trainer, collector, rollout_version))


def _adapter_for(trainer: Trainer) -> AdapterModule:
    for adapter in ADAPTERS:
        if adapter.fits(trainer):
            return cast(AdapterModule, import_module(adapter.adapter, __package__))
    known = ", ".join(adapter.trainer for adapter in ADAPTERS)
    raise ConfigError(
        f"attach() does not know {type(trainer).__module__}.{type(trainer).__qualname__}; it knows {known}. "
        "Any trainer can call Collector(run_dir).log(step=..., rollout_logprobs=..., old_logprobs=..., mask=...) itself"
    )
