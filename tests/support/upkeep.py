"""What the tests of verbs that change a run share: everything a Run tells, and a process that is killed at a chosen call."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from ratioscope import open_run
from ratioscope.collectors.writing import durable_file
from ratioscope.ingest.run import Run
from ratioscope.metrics.engines.slices import WRITTEN

ROUNDING = 1e-12
"""Statistics of several writers are added in another order once they are merged."""


def told(run: Run | Path) -> dict[str, Any]:
    """Everything that a Run tells of what was recorded; of a folder, freshly opened. Sizes of files and notes are left out."""
    run = run if isinstance(run, Run) else open_run(run)
    by_step = [run.sequences(step).sort("sequence_id", "minibatch") for step in run.steps]
    return {
        "steps": run.steps,
        "policies": run.policies,
        "gaps": run.gaps,
        "columns": run.columns,
        "rows": (run.size.rows, run.size.tokens),
        "records": run.records().collect(),
        "tokens": run.tokens().select("step", "position").collect(),
        "sequences": pl.concat(by_step, how="diagonal_relaxed") if by_step else None,
        "metrics": run.metrics(),
        "whole": run.metrics(by=()),
        "unavailable": run.unavailable,
        **{f"statistics {name}": run.statistics(name) for name in WRITTEN},
        "distribution": run.distribution("token", run.gaps[0]) if run.gaps else None,
        "exact": run.exact(),
        "conservation": run.conservation,
        "dropped": run.dropped,
        "drops": run.drops,
        "events": run.events,
        "writers": run.writers,
        "shadowed": run.shadowed,
        "unsettled": run.unsettled,
        "states": run.states,
        "digest": run.digest,
        "quarantined": run.quarantined,
        "uncommitted": run.uncommitted,
    }


def demand_equal(
    found: dict[str, Any], wanted: dict[str, Any], *, but: tuple[str, ...] = (), rounding: float = ROUNDING
) -> None:
    """Every member is equal, numbers up to the rounding of sums in another order."""
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        if name in but:
            continue
        if isinstance(value, pl.DataFrame):
            assert_frame_equal(found[name], value, rel_tol=rounding, abs_tol=rounding)
        else:
            assert found[name] == value, name


_CALLS = ("open", "write", "fsync", "replace", "unlink", "rename", "link")


class Killed(BaseException):
    """The process ended here."""


@contextmanager
def killed_at(call: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The process is killed at its n-th call of the filesystem, a write after half of its bytes. Yields the calls made."""
    made = [0]

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def act(*arguments: Any, **named: Any) -> Any:
            made[0] += 1
            if made[0] < call:
                return real(*arguments, **named)
            if made[0] == call and name == "write":
                real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            raise Killed(name)

        return act

    class Faulty:
        def __getattr__(self, name: str) -> Any:
            return (
                counted(name)
                if name in ("open", "write", "fsync", "replace", "unlink", "rename", "link")
                else getattr(os, name)
            )

    with monkeypatch.context() as patch:
        patch.setattr(durable_file, "os", Faulty())
        try:
            yield made
        except Killed:
            return
