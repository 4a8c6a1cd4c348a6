"""The environment variables by which a process is told to record, and whether this one was."""

import os
from collections.abc import Mapping

RUN = "RATIOSCOPE_RUN"
LAUNCH = "RATIOSCOPE_LAUNCH"
NAME = "RATIOSCOPE_NAME"
TEXT = "RATIOSCOPE_TEXT"
SCALARS = "RATIOSCOPE_SCALARS"
VARIABLES = {
    RUN: "the run folder; recording begins where it is set",
    LAUNCH: "names this start of the job, the same in all its processes; made where it is not set",
    NAME: "the run's name; else the folder's",
    TEXT: "full, ids or none: whether token ids and texts are kept",
    SCALARS: "1: puts ratioscope/... among the scalars that the trainer logs",
}

installed_for: list[str] = []
"""Global, because import hooks are the process's: the run folder they were put on for."""


def is_installed() -> bool:
    """Whether this process records because its environment says so."""
    return bool(installed_for)


def recording_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Those of VARIABLES that are set, with the run folder absolute: what a process on another host needs, too."""
    found = {name: environment[name] for name in VARIABLES if environment.get(name)}
    return {name: os.path.abspath(value) if name == RUN else value for name, value in found.items()}
