"""Attachment by environment: a process with RATIOSCOPE_RUN in its environment records, without a change of the trainer's code.

`ratioscope run` puts a sitecustomize on PYTHONPATH. It calls `install` in each Python process that begins to import a trainer's
package, or ray, because Ray's workers on other hosts are to record too. A trainer's own plug-in mechanism may also call it. In a
process that imports no trainer nothing happens.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, cast

from ratioscope.errors import ConfigError

from .process.counts import reason_of
from .process.notice import say, warn
from .process.ranks import is_slurm_task, rank_told
from .process.variables import (
    BY_HAND,
    EXISTING,
    LAUNCH,
    NAME,
    RUN,
    SCALARS,
    SELF_NOISE,
    TEXT,
    installed_for,
    tell_of_this_process,
)
from .self_noise import self_noise_in_words

if TYPE_CHECKING:
    from typing import Literal

    from .batch.text_policy import Text
    from .watching.recording import AttachOptions


def install() -> None:
    """Has this process recorded from the moment it imports a trainer, if RATIOSCOPE_RUN names a run folder. Never raises."""
    try:
        if os.environ.get(RUN) and not installed_for:
            os.environ[RUN] = os.path.abspath(os.environ[RUN])  # child processes may have another working directory
            os.environ.setdefault(LAUNCH, launch_name())  # and belong to the same start
            installed_for.append(os.environ[RUN])
            tell_of_this_process()
            from .trainers import ADAPTERS
            from .watching.imports import when_imported
            from .watching.ray_workers import await_ray

            for package in dict.fromkeys(adapter.package for adapter in ADAPTERS):
                when_imported(package, _begin)
            await_ray()
    except Exception as error:
        warn("ratioscope cannot record this process: %s. It goes on without.", reason_of(error))


def launch_name(environment: Mapping[str, str] = os.environ) -> str:
    """A name for one start of a job: the same in all processes that a launcher started side by side, else a new one.

    The tasks of a Slurm step share the number of the step, which no other start has. The ranks of a torchrun share the process
    that started them; torchrun's own id may be "none". Ranks that somebody started one by one share what they were told.
    """
    if is_slurm_task(environment):
        return f"slurm-{environment.get('SLURM_JOB_ID', '')}.{environment['SLURM_STEP_ID']}"
    if namespace := environment.get("PMIX_NAMESPACE"):  # mpirun's number of this start, the same on all nodes
        return f"mpi-{namespace}"
    if environment.get("TORCHELASTIC_RUN_ID"):
        return f"torchrun-{os.uname().nodename}-{os.getppid()}-{environment.get('MASTER_PORT', '')}"
    if rank_told(environment) is not None:
        return "-".join(filter(None, (BY_HAND, environment.get("MASTER_ADDR"), environment.get("MASTER_PORT"))))
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


def environment_options() -> AttachOptions:
    """The options of `attach` that the environment sets."""
    options: AttachOptions = {"scalars": os.environ.get(SCALARS, "0") not in ("", "0")}
    if name := os.environ.get(NAME):
        options["name"] = name
    if (existing := os.environ.get(EXISTING)) in ("resume", "new", "error"):
        options["existing"] = cast("Literal['resume', 'new', 'error']", existing)
    if (text := os.environ.get(TEXT)) in ("full", "ids", "none"):
        options["text"] = cast("Text", text)
    if noise := os.environ.get(SELF_NOISE):
        try:
            options["self_noise"] = self_noise_in_words(noise)
        except ConfigError as error:
            warn("%s: %s. The run is recorded without.", SELF_NOISE, error)
    return options


def _begin(package: ModuleType) -> None:
    """Begins to record once a trainer's package has been imported. It must not raise, for the importer would see it."""
    from .attach import start
    from .trainers import ADAPTERS
    from .watching.recording import Recording

    for adapter in (adapter for adapter in ADAPTERS if adapter.package == package.__name__):
        try:
            start(adapter, Recording(os.environ[RUN], environment_options(), adapter.name), None)
        except Exception as error:
            reason = str(error) if isinstance(error, ConfigError) else reason_of(error)
            say(logging.ERROR, "ratioscope does not record %s: %s", adapter.title, reason)
