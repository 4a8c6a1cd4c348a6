"""The coverage of recorded runs: starts, writers and rows are told apart."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.run_folders import FakeWriter, write_run_file

from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.coverage import coverage_of
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.run import open_run

ROLLOUT = -np.random.default_rng(0).gamma(1.0, 0.7, (8, 40))
OLD = ROLLOUT - 0.001 * np.random.default_rng(1).random(ROLLOUT.shape)


def recorded(folder: Path, *steps: int, bad: tuple[int, ...] = (), **options: Any) -> Path:
    with Collector(folder, writer="thread", existing="resume", **options) as collector:
        for step in steps:
            old = [row[: 39 if step in bad and at else 40] for at, row in enumerate(OLD)]
            collector.log(step=step, rollout_logprobs=list(ROLLOUT), old_logprobs=old)
    return folder


def test_what_a_resumed_start_recorded_again_is_not_missing(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", 1, 2, 3, 4, bad=(3, 4), attempt=0)
    assert not coverage_of(open_run(run), 0.9).is_measured
    recorded(run, 3, 4, 5, attempt=1)
    assert coverage_of(open_run(run), 0.9).is_measured


def test_every_tenth_step_is_no_missing_step(tmp_path: Path) -> None:
    assert coverage_of(open_run(recorded(tmp_path / "run", *range(0, 100, 10))), 0.9).is_measured


def test_sides_that_come_in_calls_of_their_own_are_one_row(tmp_path: Path) -> None:
    ids = [str(row) for row in range(8)]
    with Collector(tmp_path / "run", writer="thread") as collector:
        for step in range(4):
            collector.log(step=step, sequence_ids=ids, rollout_logprobs=ROLLOUT)
            collector.log(step=step, sequence_ids=ids, old_logprobs=OLD)
            collector.log(step=step, sequence_ids=ids, minibatch=0, current_logprobs=OLD - 0.001)
    assert coverage_of(open_run(tmp_path / "run"), 0.9).is_measured


def test_rows_without_the_trainers_side_are_counted(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", writer="thread") as collector:
        for step in range(20):
            ids = [f"{step}-{row}" for row in range(8)]
            collector.log(step=step, sequence_ids=ids, rollout_logprobs=ROLLOUT)
            collector.log(step=step, sequence_ids=ids[:4], old_logprobs=OLD[:4])
    found = coverage_of(open_run(tmp_path / "run"), 0.9)
    assert found.share == pytest.approx(0.5, rel=0.05) and "80 with the log-probs of one side alone" in found.why


def test_a_killed_writer_leaves_no_run_healthy(tmp_path: Path) -> None:
    write_run_file(tmp_path / "run")
    recorded(tmp_path / "run", 1, 2, 3)
    assert verdict_of(open_run(tmp_path / "run")).is_healthy
    FakeWriter(tmp_path / "run", rank=1).open()
    found = verdict_of(open_run(tmp_path / "run"))
    assert found.word == "partly measured" and "ended without closing" in found.brief


@pytest.mark.parametrize("one_side", ["rollout_logprobs", "old_logprobs"])
@pytest.mark.parametrize("steps", [range(7, 12), range(0, 12, 2)])
def test_steps_of_one_side_alone_are_told_wherever_they_are(one_side: str, steps: range, tmp_path: Path) -> None:
    with Collector(tmp_path / "run", writer="thread") as collector:
        for step in range(12):
            both: dict[str, Any] = {"rollout_logprobs": ROLLOUT, "old_logprobs": OLD}
            collector.log(step=step, **({one_side: both[one_side]} if step in steps else both))
    found = verdict_of(open_run(tmp_path / "run"))
    assert found.word == "partly measured" and f"{8 * len(steps)} with the log-probs of one side alone" in found.brief


def test_steps_that_are_a_copy_are_counted_once(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", writer="thread") as collector:
        for step in range(12):
            collector.log(step=step, rollout_logprobs=ROLLOUT, old_logprobs=ROLLOUT if step % 2 else OLD)
    found = coverage_of(open_run(tmp_path / "run"), 0.9)
    assert found.share == 0.5 and "one side alone" not in found.why


def test_a_few_empty_responses_leave_a_run_healthy(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", writer="thread") as collector:
        for step in range(12):
            own = [[] if step == 3 and row < 2 else list(values) for row, values in enumerate(OLD)]
            both = [values[: len(other)] for values, other in zip(ROLLOUT.tolist(), own, strict=True)]
            collector.log(step=step, rollout_logprobs=both, old_logprobs=own)
    assert coverage_of(open_run(tmp_path / "run"), 0.9).is_measured


def test_a_muted_fault_measures_nothing(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", writer="thread") as collector:
        for step in range(3):
            collector.log(step=step, rollout_logprobs=ROLLOUT, old_logprobs=np.full_like(OLD, -np.inf))
    mute = "".join(f"[signals.{name}]\nmute = true\n" for name in ("non_finite", "zero_weight"))
    (tmp_path / "run" / "ratioscope.toml").write_text(mute)
    assert not verdict_of(open_run(tmp_path / "run")).is_healthy
