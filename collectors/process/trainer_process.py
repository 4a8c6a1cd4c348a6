"""The process that trains: this one, or in a writer's process the one that started it."""

import json
import os
from dataclasses import asdict, dataclass

from ratioscope.process import process_start

VARIABLE = "RATIOSCOPE_WRITER_OF"
"""Set in a writer's process only: the process whose rows it writes."""


@dataclass(frozen=True)
class TrainerProcess:
    """The process that trains, as commit logs name it."""

    pid: int
    started: str | None
    """Start time of the process, in the terms of process.process_start."""
    launch: str | None = None
    """The name of the start of the job; None if it is still to be found from the environment."""


def trainer_process() -> TrainerProcess:
    """The process that trains, as this process knows it."""
    description = os.environ.get(VARIABLE)
    return (
        TrainerProcess(**json.loads(description))
        if description
        else TrainerProcess(os.getpid(), process_start(os.getpid()))
    )


def as_variable(process: TrainerProcess) -> dict[str, str]:
    """The environment variable that names the process that trains to a writer's process."""
    return {VARIABLE: json.dumps(asdict(process))}
