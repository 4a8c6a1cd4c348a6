"""verl (written for 0.9.1): the V1 trainers, the V0 trainer and those built on it (separation, one step off, fully async).

verl spreads a step over processes, and so does the recording. The driver records rollout, old and the facts, once per step,
from the batch in which advantages have just been computed; no field is fetched twice. Each worker that holds valid outputs
records current, from the model outputs that its loss is computed from. Rows meet by sequence id: the key that V1's queue
uses (uid, sample, output), which in V0 the driver sends along with the batch, as one more non-tensor column.

Written from verl/trainer/ppo/v1/trainer_base.py, verl/trainer/ppo/ray_trainer.py, verl/workers/engine_workers.py and
verl/workers/engine/base.py of verl 0.9.1. Every process that imports verl finds ratioscope by its entry point in the group
`verl.plugins`; see plugin.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ratioscope.errors import ConfigError

from ...watching.hooks import Refused, is_watched, looks_of, missing, put_on
from ...watching.recording import Recording
from . import description, driver, worker
from .description import VerlDescription
from .driver import VerlDriver
from .worker import VerlWorker

HOOKS = (*description.HOOKS, *driver.HOOKS, *worker.HOOKS)


def recorder(recording: Recording) -> SimpleNamespace:
    """Looks for both kinds of processes; which kind this is shows in what it calls."""
    return _looks(recording)


def start(trainer: Any, recording: Recording) -> Callable[[], None]:
    """Records one trainer object, from within its process (the TaskRunner, in verl); its workers are asked to record too."""
    loaded = [hook for hook in HOOKS if hook.module in sys.modules]
    if lacking := missing(loaded):
        raise Refused(f"this verl has no {', '.join(lacking)}, so that nothing is recorded; training goes on")
    if any(is_watched(hook) for hook in loaded):
        raise ConfigError("a collector is attached to verl in this process already; detach() it first")
    return put_on(HOOKS, _looks(recording, trainer), recording)


def _looks(recording: Recording, only: Any = None) -> SimpleNamespace:
    described = VerlDescription(recording, only)
    parts = (
        (description.HOOKS, described),
        (driver.HOOKS, VerlDriver(recording, described, only)),
        (worker.HOOKS, VerlWorker(recording)),
    )
    return SimpleNamespace(**{name: look for hooks, part in parts for name, look in looks_of(hooks, part).items()})
