"""The plan of statistics to compute from token rows: made once per step that a reader follows, and again after a change."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from polars.testing import assert_frame_equal

from ratioscope import Collector
from ratioscope.ingest.commits.entries import TokenFile
from ratioscope.ingest.run import Run, open_run
from ratioscope.ingest.statistics import run_statistics
from ratioscope.ingest.statistics.growing_table import Ingredients
from ratioscope.ingest.statistics.row_plan import GapsOfWriters, RowPlan, row_plan


def record(root: Path, steps: range, *, split: bool = False) -> None:
    """Steps of a rank with both sides of the mismatch; split: each side by another process."""
    side: Any = np.full((2, 3), -1.0, np.float32)
    ids = ["a", "b"]
    names = (("rollout_logprobs",), ("old_logprobs",)) if split else (("rollout_logprobs", "old_logprobs"),)
    for rank, own in enumerate(names):
        with Collector(root, rank=rank, attempt=0, writer="thread") as collector:
            for step in steps:
                collector.log(step=step, sequence_ids=ids, **dict.fromkeys(own, side))


def test_a_followed_run_plans_new_steps_alone_and_as_a_fresh_reader_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "run", range(3))
    run = open_run(tmp_path / "run")
    before = ingredients(run)
    planned = list[int]()

    def noted(files: Mapping[int, Sequence[TokenFile]], measured: GapsOfWriters) -> RowPlan:
        planned.extend(files)
        return row_plan(files, measured)

    monkeypatch.setattr(run_statistics, "row_plan", noted)
    record(tmp_path / "run", range(3, 5), split=True)
    assert run.refresh()
    followed = ingredients(run)
    assert planned == [3, 4] and all(followed[step] is made_of for step, made_of in before.items())
    fresh = open_run(tmp_path / "run")
    assert followed == ingredients(fresh) and sorted(followed) == run.steps
    plan, expected = (own._metrics.written._plan(own._metrics.visible).rows for own in (run, fresh))
    assert plan == expected and set(plan.joint) == {3, 4} and not plan.per_writer
    assert_frame_equal(run.metrics(), fresh.metrics())


def ingredients(run: Run) -> Ingredients:
    return run._metrics.written.ingredients(run._metrics.visible)


def test_a_step_whose_statistics_or_files_change_is_planned_again(tmp_path: Path) -> None:
    record(tmp_path / "run", range(1))
    record(tmp_path / "run", range(1, 2))
    run = open_run(tmp_path / "run")
    visible, segments = run._metrics.visible, run._metrics.written.segments
    measured = segments.measured_steps(visible.segments)
    plan = run_statistics.statistics_plan(visible, measured, segments.version, None)
    assert not plan.rows.per_writer and sorted(plan.ingredients) == [0, 1]
    lost = {version: own for version, own in measured.items() if own[0][2] != (1,)}
    less = run_statistics.statistics_plan(visible, lost, segments.version, plan)
    assert list(less.rows.per_writer) == [1] and less.ingredients[0] is plan.ingredients[0]
    again = run_statistics.statistics_plan(visible, measured, segments.version, less)
    assert not again.rows.per_writer and again == plan
    files: dict[int, tuple[TokenFile, ...]] = {1: ()}  # step 0 has gone, and the files of step 1 are set aside
    fewer = run_statistics.statistics_plan(replace(visible, token_files=files, segments=()), {}, segments.version, less)
    assert not fewer.rows.per_writer and not fewer.ingredients
