"""slime's own flags: functions that it loads by path, with no hook in any process; and what they pass on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from standins.slime import drive
from standins.slime_places import Ranks
from support.paths import TESTS
from support.slime_rows import held, rows, scored
from support.written_run import commit_lines, token_rows

import ratioscope
from ratioscope.collectors.adapters import miles, slime
from ratioscope.collectors.adapters.slime.flags import Flags
from ratioscope.collectors.adapters.slime.names import MILES, SLIME

OURS = "ratioscope.collectors.adapters.slime"
REJECTING = "slime.backends.megatron_utils.loss.rejecting_tis_function"
BATCHES: dict[str, Any] = {
    "rollout_data_postprocess_path": f"{OURS}.rollout_data_postprocess",
    "custom_rollout_log_function_path": f"{OURS}.rollout_log",
}
CORRECTION: dict[str, Any] = {
    "custom_tis_function_path": f"{OURS}.tis",
    "ratioscope_tis_function_path": REJECTING,
    "use_tis": True,
}


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> Iterator[Flags]:
    """The functions of a process that has recorded nothing yet."""
    made = Flags(SLIME)
    for name in ("rollout_log", "rollout_data_postprocess", "tis"):
        monkeypatch.setattr(slime, name, getattr(made, name))
    monkeypatch.delenv("RATIOSCOPE_RUN", raising=False)
    yield made
    close(made)


def close(made: Flags) -> None:
    if made.recording is not None:
        assert made.recording.collector.close()


def assert_same_training(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["logs"] == other["logs"]
    np.testing.assert_array_equal(one["weights"], other["weights"])
    for first, second in zip(one["gradients"], other["gradients"], strict=True):
        np.testing.assert_array_equal(first, second)


def test_batches_and_corrections_are_recorded_without_a_hook(tmp_path: Path, flags: Flags) -> None:
    trace = drive(None, ratioscope_run=str(tmp_path / "run"), **BATCHES, **CORRECTION)
    assert_same_training(trace, drive(None, use_tis=True, custom_tis_function_path=REJECTING))
    assert trace["is_restored"]
    close(flags)
    run, expected = ratioscope.open_run(tmp_path / "run"), held(trace)
    sequences = run.sequences()
    assert set(sequences.select("step", "sequence_id").rows()) == set(expected)
    for step, sequence_id in expected:
        one, tokens = expected[step, sequence_id], run.sequence(step, sequence_id)
        difference = (one["log_probs"] - one["rollout_log_probs"]).abs()
        assert tokens["rollout_logprob"].to_list() == one["rollout_log_probs"].tolist()
        assert tokens["old_logprob"].to_list() == one["log_probs"].tolist()
        assert tokens["reference_logprob"].to_list() == one["ref_log_probs"].tolist()
        assert tokens["loss_mask"].to_list() == (one["loss_masks"].bool() & (difference < 0.02)).tolist()
    first = sequences.row(0, named=True)
    assert first["group_id"] is not None and first["rollout_version_min"] == 1
    assert run.metrics()["mismatch/sequences"].to_list() == [8, 8]


def test_old_that_is_computed_in_the_loss_alone_is_recorded_once(tmp_path: Path, flags: Flags) -> None:
    settings: dict[str, Any] = {"num_steps_per_rollout": 1, "recompute_loss_function": True}
    trace = drive(None, ratioscope_run=str(tmp_path / "run"), **BATCHES, **CORRECTION, **settings)
    close(flags)
    found = rows(tmp_path / "run")
    assert len(found) == 16 and {row["minibatch"] for row in found} == {0}
    for row in found:
        current, _ = scored(trace["history"][row["step"]], held(trace)[row["step"], row["sequence_id"]])
        assert row["old_logprobs"] == row["current_logprobs"] == pytest.approx(current.tolist(), abs=1e-6)
    assert ratioscope.open_run(tmp_path / "run").metrics()["mismatch/sequences"].to_list() == [7, 6]


def test_slimes_own_correction_is_passed_on_unchanged(tmp_path: Path, flags: Flags) -> None:
    ours: dict[str, Any] = {"use_tis": True, "custom_tis_function_path": f"{OURS}.tis"}
    recorded = drive(None, ratioscope_run=str(tmp_path / "run"), **BATCHES, **ours)
    assert_same_training(recorded, drive(None, use_tis=True))


def test_metrics_alone_leave_the_loss_as_it_is(tmp_path: Path, flags: Flags) -> None:
    ours: dict[str, Any] = {"get_mismatch_metrics": True, "custom_tis_function_path": f"{OURS}.tis"}
    recorded, plain = drive(None, ratioscope_run=str(tmp_path / "run"), **BATCHES, **ours), drive(None)
    np.testing.assert_array_equal(recorded["weights"], plain["weights"])
    assert all("train/tis" in row for row in recorded["logs"] if "train/step" in row)


def test_functions_of_the_users_own_are_called_in_the_place_of_ours(tmp_path: Path, flags: Flags) -> None:
    own: dict[str, Any] = {
        "ratioscope_rollout_data_postprocess_path": f"{__name__}.last_token_out",
        "ratioscope_rollout_log_function_path": f"{__name__}.logs_itself",
    }
    trace = drive(None, ratioscope_run=str(tmp_path / "run"), **BATCHES, **own)
    plain = drive(
        None,
        rollout_data_postprocess_path=f"{__name__}.last_token_out",
        custom_rollout_log_function_path=f"{__name__}.logs_itself",
    )
    assert_same_training(trace, plain)
    assert not any("rollout/step" in row for row in trace["logs"])
    close(flags)
    by_rank = [row for row in token_rows(tmp_path / "run").to_pylist() if row["old_logprobs"] is not None]
    assert len(by_rank) == 16
    assert all(row["loss_mask"] == [*row["mask"][:-1], False] for row in by_rank)


def last_token_out(args: Any, rollout_id: int, rollout_data: dict[str, Any]) -> None:
    for mask in rollout_data["loss_masks"]:
        mask[-1] = 0


def logs_itself(rollout_id: int, args: Any, samples: Any, rollout_extra_metrics: Any, rollout_time: float) -> bool:
    return True


def test_a_filter_of_the_users_shows_in_the_loss_mask_alone(tmp_path: Path) -> None:
    path = f"{__name__}.last_token_out"
    drive(tmp_path / "run", rollout_data_postprocess_path=path, options={"strict": True}, with_ref=False)
    for row in rows(tmp_path / "run"):
        assert row["mask"][-1] and not row["loss_mask"][-1]


def test_slices_have_their_positions_without_a_hook_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: Flags
) -> None:
    for rank in (0, 1):
        made = Flags(SLIME)
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("RATIOSCOPE_LAUNCH", "one start")
        for name in ("rollout_log", "rollout_data_postprocess", "tis"):
            monkeypatch.setattr(slime, name, getattr(made, name))
        ranks = Ranks(cp_size=2, cp_rank=rank)
        drive(None, ratioscope_run=str(tmp_path / "run"), rollouts=1, ranks=ranks, **BATCHES)
        close(made)
    whole = drive(tmp_path / "whole", rollouts=1)
    assert whole["finished"]
    run, other = (ratioscope.open_run(tmp_path / name).metrics() for name in ("run", "whole"))
    assert run["mismatch/kl_k3"].to_list() == pytest.approx(other["mismatch/kl_k3"].to_list())


def test_flags_beside_hooks_record_nothing_twice(tmp_path: Path, flags: Flags) -> None:
    drive(tmp_path / "run", ratioscope_run=str(tmp_path / "other"), **BATCHES, **CORRECTION)
    assert len(token_rows(tmp_path / "run")) == 32
    assert not (tmp_path / "other" / "tokens").exists()


def test_without_a_folder_everything_is_passed_on_and_said_once(flags: Flags, caplog: pytest.LogCaptureFixture) -> None:
    trace = drive(None, **BATCHES, **CORRECTION)
    assert_same_training(trace, drive(None, use_tis=True, custom_tis_function_path=REJECTING))
    assert caplog.text.count("nothing is recorded") <= 1


def test_miles_loads_the_same_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, ours = Flags(MILES), "ratioscope.collectors.adapters.miles"
    monkeypatch.setattr(miles, "rollout_log", made.rollout_log)
    monkeypatch.setattr(miles, "tis", made.tis)
    paths: dict[str, Any] = {
        "custom_rollout_log_function_path": f"{ours}.rollout_log",
        "custom_tis_function_path": f"{ours}.tis",
    }
    recorded = drive(None, "miles", ratioscope_run=str(tmp_path / "run"), use_tis=True, **paths)
    assert_same_training(recorded, drive(None, "miles", use_tis=True))
    close(made)
    assert len(token_rows(tmp_path / "run")) == 16


SAMPLING = """
from standins.slime import sample_rollouts, placed
from standins.slime_places import arguments
with placed("slime") as s:
    sample_rollouts(s, arguments(), path, rollouts=2)
"""
TRAINING = """
from standins.slime import train_rollouts, placed
from standins.slime_places import arguments
with placed("slime") as s:
    train_rollouts(s, arguments(), path)
"""
BY_FLAG = """
from standins.slime import import_all, placed, run
from standins.slime_places import arguments
from ratioscope.collectors.adapters import slime
with placed("slime") as s:
    import_all(s)
    log = "ratioscope.collectors.adapters.slime.rollout_log"
    args = arguments(
        custom_megatron_init_path="ratioscope.collectors.adapters.slime.megatron_init",
        custom_rollout_log_function_path=log,
        ratioscope_run=str(path),
    )
    s.at("misc").load_function(args.custom_megatron_init_path)(args)
    run(s, args)
"""


def start(script: str, path: Path, tmp_path: Path, **environment: str) -> None:
    """Runs a script in a process of its own; `install` is called first, as a sitecustomize would."""
    begin = f"import sys, pathlib; sys.path.insert(0, {str(TESTS)!r}); path = pathlib.Path({str(path)!r})\n"
    begin += "from ratioscope.collectors.environment import install; install()\n"
    given = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "RATIOSCOPE_LAUNCH": "one start", **environment}
    subprocess.run([sys.executable, "-c", begin + script], check=True, env=given, timeout=300)


def test_two_processes_with_nothing_but_the_environment_make_one_run(tmp_path: Path) -> None:
    run, shards = tmp_path / "run", tmp_path / "shards"
    start(SAMPLING, shards, tmp_path, RATIOSCOPE_RUN=str(run))
    start(TRAINING, shards, tmp_path)  # a rank that does not record does not notice what the boxes carry
    start(TRAINING, shards, tmp_path, RATIOSCOPE_RUN=str(run))
    found = ratioscope.open_run(run)
    assert len(found.writers) == 2 and found.writers["attempt"].unique().to_list() == [0]
    of_ranks = [row for row in rows(run) if row["old_logprobs"] is not None]
    assert len(of_ranks) == 16 and all(row["group_id"] is not None for row in of_ranks)
    assert found.metrics()["mismatch/sequences"].to_list() == [8, 8]
    by_lag = found.metrics(by=["step", "lag"])  # measured by the trainer's rank, which versions reach with slime's Box
    assert by_lag.select("step", "lag").rows() == [(0, "0"), (1, "1")]


def test_the_init_flag_records_as_the_environment_does(tmp_path: Path) -> None:
    start(BY_FLAG, tmp_path / "run", tmp_path)
    run = ratioscope.open_run(tmp_path / "run")
    assert len(rows(tmp_path / "run")) == 16 and run.gaps == ("mismatch", "total", "drift")
    assert run.info["trainer"] == "slime"
    assert [line["kind"] for line in commit_lines(tmp_path / "run", "gap")] == []
    assert set(run.sequences().filter(minibatch=0)["lag"].to_list()) == {0}
