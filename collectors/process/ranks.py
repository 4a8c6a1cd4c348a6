"""The rank of this process, told by whoever started it. Imports nothing, asks no other rank.

Ray gives its workers no rank: what the trainer puts there ($RANK, as verl, slime and Ray Train do) counts, and nothing that
the node's own launcher said, which all workers of the node inherit.
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


def process_rank() -> int:
    """The rank that is told, else 0."""
    return rank_told() or 0


def rank_told(environment: Mapping[str, str] = os.environ) -> int | None:
    """torch.distributed's rank where it runs, else $RANK, else that of mpirun or of a task of srun. None: nobody says."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    names = ["RANK"]
    if not any(map(environment.get, _IS_RAY)):
        names += [*_LAUNCHERS, *(["SLURM_PROCID"] if is_slurm_task(environment) else [])]
    told = (environment.get(name, "") for name in names)
    return next((int(rank) for rank in told if rank.isdecimal() and int(rank) < _MOST), None)


def is_slurm_task(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether srun started several of this process side by side; a batch script or a shell is no such task."""
    step, tasks = (environment.get(f"SLURM_{name}", "") for name in ("STEP_ID", "STEP_NUM_TASKS"))
    return step.isdecimal() and int(step) < _FIRST_SPECIAL_STEP and tasks.isdecimal() and int(tasks) > 1


def part_of(rank: int | None) -> str | None:
    """What a process that nobody numbered (rank None) is a part of: its parent, where multiprocessing started it, or its Ray job.
    None for a process that stands for its rank."""
    if rank is not None:
        return None
    if any(map(os.environ.get, _IS_RAY)):
        return f"ray:{os.environ.get('RAY_JOB_ID', '')}"
    parent = multiprocessing.parent_process()
    return None if parent is None else f"{host_name()}:{parent.pid}"


def part_of_parent(known: str | None) -> str:
    """The same of a forked child: what its parent is a part of (known), else the parent."""
    return known or f"{host_name()}:{os.getppid()}"


def label(rank: int | None, pool: str | None) -> str:
    """What ids of sequences without ids say of their process: its rank, and its number where it is a part of a pool, so that its
    ids are not another's."""
    return str(rank or 0) if pool is None else f"{rank or 0}.{host_name()}.{os.getpid()}"
