"""The description of a verl run before its first rows, its events, and the environment that makes new workers record."""

import logging
import os
from typing import Any

from ...batch.token_texts import decoder
from ...foreign import Trainer
from ...process.variables import EXISTING, NAME, RUN, TEXT, recording_variables
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from . import messages as words
from .rows import step_of, verl_version

HOOKS = (
    Hook("verl.single_controller.ray.base", "RayWorkerGroup._create_worker", swap="worker_starts", needed=False),
    Hook("verl.checkpoint_engine.base", "CheckpointEngineManager.update_weights", after="synced", needed=False),
    Hook("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._load_checkpoint", after="loaded", needed=False),
    Hook("verl.trainer.ppo.ray_trainer", "RayPPOTrainer._load_checkpoint", after="loaded", needed=False),
)


class VerlDescription:
    """Describes the run once the trainer is known. only: the one trainer object to record; None: any."""

    def __init__(self, recording: Recording, only: Trainer | None = None) -> None:
        self._recording, self._only = recording, only
        self._has_started_workers = False
        self._notes: list[tuple[str, int, str]] | None = []
        self._synced = -1

    def worker_starts(self, call: Call) -> dict[str, Any]:
        """Adds the run folder to the environment of new workers, so that verl's plug-in records them."""
        self._has_started_workers = True
        theirs = call.arguments["worker_env"] or {}
        return {"worker_env": {**recording_variables(), **variables_of(self._recording), **theirs}}

    def loaded(self, call: Call) -> None:
        """A checkpoint may have been loaded."""
        is_ours = self._only is None or self._only is call.target
        if is_ours and (step := int(getattr(call.target, "global_steps", 0))) > 0:
            self._note("resume", step, f"training goes on after step {step}")

    def synced(self, call: Call) -> None:
        """Records one event per version, though several engines may get the same weights one after the other."""
        version = call.arguments.get("global_steps")
        if version is not None and int(version) != self._synced:
            self._synced = int(version)
            self._note("weight_sync", self._synced, f"the engines sample with the weights after step {version}")

    def tell(self, trainer: Trainer) -> None:
        """Describes the run by its trainer, once, and then records the earlier events."""
        if self._notes is None:
            return
        notes, self._notes = self._notes, None
        tokenizer = getattr(trainer, "tokenizer", None)
        self._recording.describe(
            trainer=verl_version(),
            config=getattr(trainer, "config", None),
            decode=None if tokenizer is None else self._recording.watch(lambda: decoder(tokenizer)),
        )
        for note in notes:
            self._recording.event(*note)
        workers = type(getattr(trainer, "actor_rollout_wg", None)).__module__
        if workers.startswith("verl.") and not self._has_started_workers and not recording_variables():
            self._recording.say_once("workers_apart", step_of(trainer), words.WORKERS_APART, logging.WARNING)

    def _note(self, kind: str, step: int, text: str) -> None:
        """Records an event, or keeps it until the run is described, because the first event ends the description."""
        if self._notes is None:
            self._recording.event(kind, step, text)
        else:
            self._notes.append((kind, step, text))


def variables_of(recording: Recording) -> dict[str, str]:
    """The environment variables with which another process records into the same run."""
    options = recording.options
    given = {
        RUN: os.path.abspath(recording.run_dir),
        NAME: options.get("name"),
        EXISTING: options.get("existing"),
        TEXT: options.get("text"),
    }
    return {name: value for name, value in given.items() if value is not None}
