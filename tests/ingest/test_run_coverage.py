"""The coverage of recorded runs: starts, writers and rows are told apart."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from support import real_runs
from support.run_folders import FakeWriter, by_step, few, write_run_file

from ratioscope.app.presentation.run_state import state_of
from ratioscope.collectors.budget import Budget
from ratioscope.collectors.collector import Collector
from ratioscope.errors import SourceError
from ratioscope.ingest.analysis import coverage as coverage_file
from ratioscope.ingest.analysis.coverage import coverage_of
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.commits.liveness import SILENT_SECONDS
from ratioscope.ingest.run import Run, open_run

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


def test_a_silent_writer_leaves_no_run_healthy(tmp_path: Path) -> None:
    write_run_file(tmp_path / "run")
    recorded(tmp_path / "run", 1, 2, 3)
    quiet = FakeWriter(tmp_path / "run", rank=1, clock=time.time() - SILENT_SECONDS - 60).open()
    run = open_run(tmp_path / "run")
    found = verdict_of(run)
    assert found.word == "partly measured" and "wrote nothing for over 2 minutes and did not close" in found.brief
    quiet.close()
    assert run.refresh() and verdict_of(run).is_healthy


@pytest.mark.parametrize(("ago", "life"), [(0, "live"), (1.5, "live"), (4, "silent")])
def test_a_writer_of_slow_steps_is_silent_only_after_three_of_its_pauses(ago: float, life: str, tmp_path: Path) -> None:
    pause, root = 600.0, tmp_path / "run"
    writer = FakeWriter(root, clock=time.time() - (5 + ago) * pause).open()
    for rows in by_step(few(real_runs.records("trl_vllm_stale4"), steps=5, rows=40)):
        writer.step(rows)
        writer.clock += pause
    assert state_of(root).life == life
    assert verdict_of(open_run(root)).coverage.is_measured == (life == "live")


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


def test_dropped_rows_tell_their_lengths(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", writer="thread") as collector:
        for step in range(40):
            collector.log(step=step, rollout_logprobs=ROLLOUT, old_logprobs=OLD)
            if step % 10 == 0:
                collector.log(step=step, rollout_logprobs=[[-0.5] * 400], old_logprobs=[[-0.5] * 399])
    found = coverage_of(open_run(tmp_path / "run"), 0.9)
    assert found.word == "partly measured" and "are longer: 400 tokens each against 40" in found.why


@pytest.mark.parametrize("other", [{"old_logprobs": [[-0.5] * 400], "mask": [[False] * 400]}, {}])
def test_rows_that_are_not_measured_tell_their_lengths(other: dict[str, Any], tmp_path: Path) -> None:
    with Collector(tmp_path / "run", writer="thread") as collector:
        for step in range(60):
            collector.log(step=step, rollout_logprobs=ROLLOUT, old_logprobs=OLD)
            if step % 15 == 0:
                collector.log(step=step, sequence_ids=["long"], rollout_logprobs=[[-0.5] * 400], **other)
    found = coverage_of(open_run(tmp_path / "run"), 0.9)
    assert found.word == "partly measured" and "are longer: 400 tokens each against 4" in found.why


@pytest.mark.parametrize("pruned", [False, True])
def test_one_sided_rows_that_are_gone_are_counted(pruned: bool, tmp_path: Path) -> None:
    from ratioscope.app.cli import main

    budget = None if pruned else Budget(step_bytes=0, worst=0)
    with Collector(tmp_path / "run", writer="thread", budget=budget) as collector:
        for step in range(6):
            collector.log(step=step, rollout_logprobs=ROLLOUT, old_logprobs=OLD)
            collector.log(step=step, rollout_logprobs=ROLLOUT[:4], sequence_ids=[f"alone {row}" for row in range(4)])
    if pruned:
        assert main(["prune", str(tmp_path / "run"), "--keep-steps", "0", "--yes"]) == 0
    found = coverage_of(open_run(tmp_path / "run"), 0.9)
    assert found.share == pytest.approx(8 / 12) and "24 without both log-probs in the statistics" in found.why


@pytest.mark.parametrize("budget", [None, Budget(step_bytes=0), Budget(step_bytes=0, worst=0)])
def test_a_budget_hides_no_sequence_of_two_calls(budget: Budget | None, tmp_path: Path) -> None:
    ids = [str(row) for row in range(8)]
    with Collector(tmp_path / "run", writer="thread", budget=budget) as collector:
        for step in range(6):
            collector.log(step=step, sequence_ids=ids, rollout_logprobs=ROLLOUT)
            collector.log(step=step, sequence_ids=ids, old_logprobs=OLD)
    assert coverage_of(open_run(tmp_path / "run"), 0.9).is_measured


def test_rows_that_are_gone_are_told_with_their_end(tmp_path: Path) -> None:
    from ratioscope.app.cli import main

    run = recorded(tmp_path / "run", 1, 2)
    assert main(["prune", str(run), "--keep-steps", "0", "--yes"]) == 0
    opened = open_run(run)
    assert opened.policies == ("rollout", "old") and opened.gaps == ("mismatch",) and not opened.size.rows
    with pytest.raises(SourceError, match="prune` deleted the token rows"):
        diagnosis_of(opened)
    sparing = open_run(recorded(tmp_path / "sparing", 1, 2, budget=Budget(step_bytes=0, worst=0)))
    assert sparing.gaps == ("mismatch",) and sparing.policies == ("rollout", "old")
    assert "because rollout_logprobs" not in verdict_of(sparing).checked
    with pytest.raises(SourceError, match="budget above 0"):
        diagnosis_of(sparing)


def test_a_check_that_was_not_made_has_one_reason(tmp_path: Path) -> None:
    checked = verdict_of(open_run(recorded(tmp_path / "run", 1, 2))).checked
    assert ", or all weights are equal" not in checked and ", or every weight" not in checked


def test_a_run_is_counted_once_for_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, made, own = open_run(recorded(tmp_path / "run", 1, 2)), list[Run](), coverage_file._counted

    def counted(run: Run) -> pl.DataFrame:
        made.append(run)
        return own(run)

    monkeypatch.setattr(coverage_file, "_counted", counted)
    verdict_of(run)
    verdict_of(run)
    assert len(made) == 1
    recorded(tmp_path / "run", 3)
    run.refresh()
    verdict_of(run)
    assert len(made) == 2
