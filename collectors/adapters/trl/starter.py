"""Attaches to a trainer while it trains: `attach` by name and by environment, for trainers that inherit transformers' Trainer."""

import logging
import weakref
from collections.abc import Callable
from typing import Any

from ...foreign import Trainer
from ...process.notice import say, warn
from ...watching.hooks import Call, Hook, Refused
from ...watching.recording import Recording

TRAIN = Hook("transformers.trainer", "Trainer.train", before="begin", after="end")
"""All these trainers inherit it."""
ANOTHER = (
    "this process has already recorded another trainer, so this one is not recorded: attach(trainer, another_run_dir)"
)


class Starter:
    """Attaches to a trainer while it trains, unless it is attached already.

    One trainer per process is recorded, because two trainers would give their sequences the same ids. takes: whether a trainer
    is one of the adapter's. start: attaches to it, and returns what undoes that.
    """

    def __init__(
        self, recording: Recording, takes: Callable[[Trainer], bool], start: Callable[[Trainer, Recording], Any]
    ) -> None:
        self._recording, self._takes, self._start = recording, takes, start
        self._first: weakref.ref[Trainer] | None = None
        self._undo: Callable[[], None] | None = None

    def begin(self, call: Call) -> None:
        trainer = call.target
        if not self._takes(trainer):
            return
        if self._first is not None and self._first() is not trainer:
            warn("%s", ANOTHER)
            return
        try:
            self._undo = self._start(trainer, self._recording)
            self._first, self._recording.refused = weakref.ref(trainer), None
        except Refused as refusal:
            self._recording.refused = str(refusal)  # until a trainer comes that can be recorded
            say(logging.ERROR, "%s", refusal)

    def end(self, call: Call) -> None:
        if self._first is not None and self._first() is call.target:
            self.undo()

    def undo(self) -> None:
        """Restores the trainer's methods, also during its training."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()
