"""The process that trains: this one or, in a writer's process, the one that started it."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ratioscope.process import process_start

VARIABLE = "RATIOSCOPE_WRITER_OF"
"""Set in a writer's process alone: the process whose rows it writes."""


@dataclass(frozen=True)
class TrainerProcess:
    """pid, started: as logs name it. launch: the start of the job it is of; None: that is yet to be told from its environment."""

    pid: int
    started: str | None
    launch: str | None = None


def trainer_process(environment: Mapping[str, str] = os.environ) -> TrainerProcess:
    """The process that trains, as this process knows it."""
    told = environment.get(VARIABLE)
    return TrainerProcess(**json.loads(told)) if told else TrainerProcess(os.getpid(), process_start(os.getpid()))


def as_variable(process: TrainerProcess) -> dict[str, str]:
    """What tells a writer's process for whom it writes."""
    return {VARIABLE: json.dumps(asdict(process))}
