"""verl (written for 0.9.1): the V1 trainers, the V0 trainer and those built on it (separation, one step off, fully async).

verl divides a step among processes, and so does the recording. The driver records rollout, old and the facts, once per step, from
the batch right after its advantages are computed; no field is fetched twice. Each worker with valid outputs records current, from
the model outputs of its loss. The sequence id joins the rows: the key of V1's queue (uid, sample, output). In V0 the driver adds
this id to the batch as one more non-tensor column.

It follows verl/trainer/ppo/v1/trainer_base.py, verl/trainer/ppo/ray_trainer.py, verl/workers/engine_workers.py and
verl/workers/engine/base.py of verl 0.9.1. Every process that imports verl finds ratioscope by its entry point in the group
`verl.plugins`; see plugin.py.
"""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ratioscope.errors import ConfigError

from ...watching.hooks import Refused, is_watched, missing, put_on, recorder_of
from ...watching.recording import Recording
from . import description, driver, second_forward, worker
from .description import VerlDescription
from .driver import VerlDriver
from .second_forward import WorkerAgain
from .worker import VerlWorker

HOOKS = (*description.HOOKS, *driver.HOOKS, *worker.HOOKS, *second_forward.WORKER_HOOKS)


def recorder(recording: Recording) -> SimpleNamespace:
    """The methods that HOOKS name, for both kinds of processes. The calls in a process decide which of them run."""
    return _looks(recording)


def start(trainer: Any, recording: Recording) -> Callable[[], None]:
    """Records one trainer object, from within its process (the TaskRunner, in verl); its workers are asked to record too."""
    loaded = [hook for hook in HOOKS if hook.module in sys.modules]
    if lacking := missing(loaded):
        raise Refused(f"this verl has no {', '.join(lacking)}, so nothing is recorded; training goes on")
    if any(is_watched(hook) for hook in loaded):
        raise ConfigError("a collector is already attached to verl in this process; detach() it first")
    return put_on(HOOKS, _looks(recording, trainer), recording)


def _looks(recording: Recording, only: Any = None) -> SimpleNamespace:
    described = VerlDescription(recording, only)
    return recorder_of(HOOKS, described, VerlDriver(recording, described, only), VerlWorker(recording), WorkerAgain())
