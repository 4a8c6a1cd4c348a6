"""The environment variables that make a process record, and whether this process does."""

import os
from collections.abc import Mapping

RUN = "RATIOSCOPE_RUN"
LAUNCH = "RATIOSCOPE_LAUNCH"
NAME = "RATIOSCOPE_NAME"
TEXT = "RATIOSCOPE_TEXT"
EXISTING = "RATIOSCOPE_EXISTING"
SCALARS = "RATIOSCOPE_SCALARS"
SELF_NOISE = "RATIOSCOPE_SELF_NOISE"
VARIABLES = {
    RUN: "the run folder; recording begins where it is set",
    LAUNCH: "names this start of the job, the same in all its processes; made where it is not set",
    NAME: "the run's name; else the folder's",
    EXISTING: "resume, new or error: what happens if a run is in the folder; else the collector finds out",
    TEXT: "full, ids or none: whether token ids and texts are kept",
    SCALARS: "1: puts ratioscope/... among the scalars that the trainer logs",
    SELF_NOISE: "10x4: each 10 steps the trainer reads 4 sequences on each rank a second time; 0 or nothing: never",
}

BY_HAND = "ranks-by-hand"
"""Begins the name of a start whose ranks were started one by one: later starts have the same name."""

installed_for: list[str] = []
"""The run folder for which import hooks were put on. Global, because these are those of the process."""


def is_installed() -> bool:
    """True if this process records because of its environment."""
    return bool(installed_for)


def recording_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Those of VARIABLES that are set, with an absolute run folder. A process on another host needs the same."""
    variables = {name: environment[name] for name in VARIABLES if environment.get(name)}
    return {name: os.path.abspath(value) if name == RUN else value for name, value in variables.items()}
