"""Agreement of ranks that each decide for themselves about a call that all of them must join.

A rank that does not record, on a host without ratioscope for example, cannot be asked by a collective call, because it would not
join that either. So each rank leaves a note per step in the store of the process group, and a step counts only if all ranks left
theirs in the step before. Every rank sees the same notes by then: between two steps they have waited for each other in training.
"""

import sys
from typing import Any

NOTE = "ratioscope/self_noise/"


def leave_note(step: int) -> None:
    """Leaves this rank's note for the step."""
    if (group := _group()) is not None:
        _store(group).add(f"{NOTE}{step}", 1)


def all_left_notes(step: int) -> bool:
    """True if every rank left a note for this step, or if this process is alone."""
    group = _group()
    return group is None or int(_store(group).add(f"{NOTE}{step}", 0)) == group.get_world_size()


def all_are_ready(is_ready: bool) -> bool:
    """True if every rank is ready. A collective call."""
    if (group := _group()) is None:
        return is_ready
    torch = sys.modules["torch"]
    ready = torch.tensor([int(is_ready)], device="cuda" if torch.cuda.is_available() else "cpu")
    group.all_reduce(ready, op=group.ReduceOp.MIN)
    return bool(ready.item())


def _group() -> Any:
    """torch.distributed, if this process is one of several ranks; else None."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed if distributed.get_world_size() > 1 else None


def _store(distributed: Any) -> Any:
    return distributed.distributed_c10d._get_default_store()
