"""The rank of this process, as whatever started it says. Imports nothing and asks no other rank.

Ray gives its workers no rank. In a Ray worker only $RANK counts, which verl, slime and Ray Train set. The variables of the node's
launcher do not count there, because all workers of a node inherit them.
"""

import multiprocessing
import os
import sys
from collections.abc import Mapping

from ratioscope.process import host_name

_FIRST_SPECIAL_STEP = 0xFFFFFF00
"""From here on Slurm numbers the steps that are a batch script or a shell."""
_LAUNCHERS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_MOST = 1 << 31
_IS_RAY = ("RAY_WORKER_ID", "RAY_RAYLET_PID")
_OF_A_DRIVER = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray's job manager tells it to the driver of a submitted job. Until it also took _IS_RAY out, a driver inherited them."""
_WORKER_PROGRAM = "default_worker.py"


def process_rank() -> int:
    """The rank of this process; 0 if nothing says it."""
    return rank_told() or 0


def rank_told(environment: Mapping[str, str] = os.environ) -> int | None:
    """The rank of torch.distributed if that is initialised, else $RANK, else that of mpirun or srun; None if nothing says it."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    names = ["RANK"]
    if not any(map(environment.get, _IS_RAY)):
        names += [*_LAUNCHERS, *(["SLURM_PROCID"] if is_slurm_task(environment) else [])]
    values = (environment.get(name, "") for name in names)
    return next((int(rank) for rank in values if rank.isdecimal() and int(rank) < _MOST), None)


def is_slurm_task(environment: Mapping[str, str] = os.environ) -> bool:
    """True if srun started several processes side by side and this is one. A batch script or a shell is none."""
    step, tasks = (environment.get(f"SLURM_{name}", "") for name in ("STEP_ID", "STEP_NUM_TASKS"))
    return step.isdecimal() and int(step) < _FIRST_SPECIAL_STEP and tasks.isdecimal() and int(tasks) > 1


def in_ray_worker() -> bool:
    """True if Ray started this process for tasks or actors, so that it is no driver, and no driver of a submitted job either."""
    of_a_driver = _OF_A_DRIVER in os.environ and not any(part.endswith(_WORKER_PROGRAM) for part in sys.orig_argv)
    return any(map(os.environ.get, _IS_RAY)) and not of_a_driver


def part_of(rank: int | None) -> str | None:
    """The group of a process without a rank (rank None): its Ray job, or the parent that started it by multiprocessing.

    None for a process that has a rank.
    """
    if rank is not None:
        return None
    if in_ray_worker():
        return f"ray:{os.environ.get('RAY_JOB_ID', '')}"
    parent = multiprocessing.parent_process()
    return None if parent is None else f"{host_name()}:{parent.pid}"


def part_of_parent(known: str | None) -> str:
    """The same for a forked child: what its parent belongs to (known), else the parent itself."""
    return known or f"{host_name()}:{os.getppid()}"


def label(rank: int | None, pool: str | None) -> str:
    """The part of generated sequence ids that names the process: its rank, and in a pool its host and pid too.

    So no two processes generate the same id.
    """
    return str(rank or 0) if pool is None else f"{rank or 0}.{host_name()}.{os.getpid()}"
