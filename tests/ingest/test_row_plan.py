"""The plan of statistics to compute from token rows: made once per step that a reader follows, and again after a change."""

from pathlib import Path
from typing import Any

import numpy as np

from ratioscope import Collector
from ratioscope.ingest.run import open_run
from ratioscope.ingest.statistics.row_plan import StepPlan, row_plan


def record(root: Path, steps: range, *, split: bool = False) -> None:
    """Steps of a rank with both sides of the mismatch; split: each side by another process."""
    side: Any = np.full((2, 3), -1.0, np.float32)
    ids = ["a", "b"]
    names = (("rollout_logprobs",), ("old_logprobs",)) if split else (("rollout_logprobs", "old_logprobs"),)
    for rank, own in enumerate(names):
        with Collector(root, rank=rank, attempt=0, writer="thread") as collector:
            for step in steps:
                collector.log(step=step, sequence_ids=ids, **dict.fromkeys(own, side))


def test_a_followed_run_plans_new_steps_alone_and_as_a_fresh_reader_does(tmp_path: Path) -> None:
    known: dict[int, StepPlan] = {}
    for steps, split in ((range(3), False), (range(3, 5), True)):
        record(tmp_path / "run", steps, split=split)
        run = open_run(tmp_path / "run")
        visible = run._metrics.visible
        measured = run._metrics.written.segments.gaps_by_writer(visible.segments)
        before = dict(known)
        followed, fresh = row_plan(visible.token_files, measured, known), row_plan(visible.token_files, measured)
        assert followed == fresh and list(known) == run.steps
        assert all(known[step] is plan for step, plan in before.items())
    assert set(followed.joint) == {3, 4} and not followed.per_writer


def test_a_step_whose_statistics_or_files_change_is_planned_again(tmp_path: Path) -> None:
    record(tmp_path / "run", range(2))
    run = open_run(tmp_path / "run")
    visible = run._metrics.visible
    measured = run._metrics.written.segments.gaps_by_writer(visible.segments)
    known: dict[int, StepPlan] = {}
    assert not row_plan(visible.token_files, measured, known).per_writer
    lost = {key: gaps for key, gaps in measured.items() if key[1] != 1}
    assert list(row_plan(visible.token_files, lost, known).per_writer) == [1]
    assert not row_plan(visible.token_files, measured, known).per_writer
    fewer = {step: files for step, files in visible.token_files.items() if step != 0}
    assert not row_plan({**fewer, 1: ()}, measured, known).per_writer and known[1].files == ()
