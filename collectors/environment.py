"""Attaching by environment: a process that finds RATIOSCOPE_RUN records, with not a line of the trainer's code changed.

`ratioscope run` puts a sitecustomize on PYTHONPATH, which calls `install` in each Python process that begins to import a
trainer's package, or ray, whose workers elsewhere are to record, too; a trainer's own plug-in mechanism may call it as well.
Where no trainer is imported nothing ever happens.
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
from .process.ranks import is_slurm_task
from .process.variables import LAUNCH, NAME, RUN, SCALARS, TEXT, installed_for

if TYPE_CHECKING:
    from .batch.text_policy import Text
    from .watching.recording import AttachOptions


def install() -> None:
    """Records this process, once it imports a trainer, if RATIOSCOPE_RUN says where. Never raises."""
    try:
        if os.environ.get(RUN) and not installed_for:
            os.environ[RUN] = os.path.abspath(os.environ[RUN])  # child processes may have another working directory
            os.environ.setdefault(LAUNCH, launch_name())  # and belong to the same start
            installed_for.append(os.environ[RUN])
            _await_trainers()
    except Exception as error:
        warn("ratioscope cannot record this process: %s. It goes on without.", reason_of(error))


def launch_name(environment: Mapping[str, str] = os.environ) -> str:
    """A name for one start of a job: the same in processes that a launcher has started side by side, else a new one.

    Several tasks of one Slurm step share the step's number, which no other start has; the ranks of one torchrun, whose own
    id may be "none", share the process that started them.
    """
    if is_slurm_task(environment):
        return f"slurm-{environment.get('SLURM_JOB_ID', '')}.{environment['SLURM_STEP_ID']}"
    if environment.get("TORCHELASTIC_RUN_ID"):
        return f"torchrun-{os.uname().nodename}-{os.getppid()}-{environment.get('MASTER_PORT', '')}"
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


def environment_options() -> AttachOptions:
    """The options of `attach` that the environment gives."""
    options: AttachOptions = {"scalars": os.environ.get(SCALARS, "0") not in ("", "0")}
    if name := os.environ.get(NAME):
        options["name"] = name
    if (text := os.environ.get(TEXT)) in ("full", "ids", "none"):
        options["text"] = cast("Text", text)
    return options


def _await_trainers() -> None:
    from .trainers import ADAPTERS
    from .watching.imports import when_imported
    from .watching.ray_workers import await_ray

    for package in dict.fromkeys(adapter.package for adapter in ADAPTERS):
        when_imported(package, _begin)
    await_ray()


def _begin(package: ModuleType) -> None:
    """Called when a trainer's package has been imported. Nothing may reach the importer."""
    from .attach import start
    from .trainers import ADAPTERS
    from .watching.recording import Recording

    for adapter in (adapter for adapter in ADAPTERS if adapter.package == package.__name__):
        try:
            start(adapter, Recording(os.environ[RUN], environment_options(), adapter.name), None)
        except Exception as error:
            told = str(error) if isinstance(error, ConfigError) else reason_of(error)
            say(logging.ERROR, "ratioscope does not record %s: %s", adapter.title, told)
