"""A small run of two writers that grows step by step, for tests of runs on stores."""

from __future__ import annotations

from pathlib import Path

from . import real_runs, run_folders
from .run_folders import FakeWriter

STEPS = run_folders.by_step(run_folders.few(real_runs.records("trl_vllm_stale4"), steps=4, rows=4))


def writers(root: Path) -> list[FakeWriter]:
    """Two writers of a new run."""
    return [FakeWriter(root, f"r0000{rank}-h-1-a", segment_steps=4).open() for rank in range(2)]


def record(both: list[FakeWriter], steps: slice) -> None:
    """Has both write their rows of these of the STEPS."""
    for rows in STEPS[steps]:
        both[0].step(rows.slice(0, 2))
        both[1].step(rows.slice(2))
