"""Attaches to one trainer object that is TRL's or is built on TRL's: methods are wrapped, and a callback is added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ratioscope.errors import ConfigError

from ...batch.tokenizer_copy import decoder
from ...foreign import Trainer
from ...watching.hooks import MARK
from ...watching.patches import Patches
from ...watching.recording import Recording
from .config import config
from .flushing import flushing_callback
from .logs import put_scalars

_METHODS = ("_generate", "_generate_and_score_completions", "_compute_loss", "compute_loss")
"""Methods of which every recorder wraps one."""


class ObjectRecorder(Protocol):
    """Watches methods of one trainer."""

    def put_on(self, patches: Patches) -> None:
        """Wraps the trainer's methods."""
        ...


def is_attached(trainer: Trainer) -> bool:
    """Whether a collector records this trainer now."""
    return any(hasattr(vars(trainer).get(name), MARK) for name in _METHODS)


def begin(
    trainer: Trainer, recording: Recording, recorder_of: Callable[[Trainer, Recording], ObjectRecorder], name: str
) -> Callable[[], None]:
    """Describes the trainer, wraps its methods and adds a callback; the returned call undoes both.

    name: of the package that trains, and its version.
    """
    if is_attached(trainer):
        raise ConfigError("a collector is already attached to this trainer; detach() it first")
    recording.describe(
        trainer=name,
        config=recording.watch(lambda: config(trainer)),
        rank=trainer.accelerator.process_index,
        decode=recording.watch(lambda: decoder(getattr(trainer, "_tokenizer", trainer.processing_class))),
    )
    recorder, patches = recorder_of(trainer, recording), Patches()
    callback = flushing_callback(recording.collector)
    try:
        recorder.put_on(patches)
        if recording.options.get("scalars", False):
            put_scalars(trainer, recording, patches)
        trainer.add_callback(callback)
    except Exception:
        patches.restore()
        raise

    def undo() -> None:
        patches.restore()
        trainer.remove_callback(callback)

    return undo
