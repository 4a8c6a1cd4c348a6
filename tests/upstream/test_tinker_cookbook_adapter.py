"""The adapter for tinker-cookbook, on tinker-cookbook's own training loops; see tinker_cookbook_drive.py.

Needs importable tinker 0.38.0 and tinker-cookbook 0.6.1. Skipped otherwise; `pytest -m upstream` runs nothing else.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import ratioscope
from ratioscope.collectors.adapters.tinker_cookbook import rows as tinker_cookbook_rows
from ratioscope.collectors.watching.hooks import MARK

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

FOLDER = Path(__file__).parent
driving = pytest.importorskip("upstream.tinker_cookbook_drive", reason="the package is not importable here")
drive, GROUPS, SAMPLES = driving.drive, driving.GROUPS, driving.SAMPLES

MODES = ("sync", "stream", "async")


def rows_of(run_dir: Path) -> pl.DataFrame:
    """All rows of a run's token files."""
    return pl.concat([pl.read_parquet(file) for file in sorted(run_dir.glob("tokens/*/*.parquet"))]).sort(
        "step", "minibatch", "sequence_id"
    )


def sampled(datum: dict[str, list[float]]) -> slice:
    """From the first token with a log-prob to the last: written apart from the adapter."""
    positions = [i for i, logprob in enumerate(datum["logprobs"]) if logprob != 0.0]
    return slice(positions[0], positions[-1] + 1)


def float32(values: list[float]) -> list[float]:
    """As they are stored."""
    return [float(value) for value in np.asarray(values, np.float32)]


def held(trace: dict[str, Any], step: int, substeps: int, per_update: int) -> Iterator[tuple[int, Any, list[float]]]:
    """(minibatch, what was trained on, its current log-probs) of a step, in the trainer's order."""
    calls = len(trace["batch"]) // 3
    for call in range(calls):
        index = step * calls + call
        for datum, current in zip(trace["batch"][index], trace["scored"][index], strict=True):
            yield call // per_update, datum, current


@pytest.mark.parametrize("mode", MODES)
def test_rollout_and_current_are_what_the_trainer_held_token_by_token(tmp_path: Path, mode: str) -> None:
    trace = drive(tmp_path / "run", mode=mode, strict=True)
    rows = rows_of(tmp_path / "run")
    for step in range(3):
        expected = sorted(
            (update, datum["target_tokens"][sampled(datum)], float32(datum["logprobs"][sampled(datum)]),
             float32(current[sampled(datum)]), float32(datum["advantages"][sampled(datum)]))
            for update, datum, current in held(trace, step, 2, 2 if mode == "stream" else 1)
        )  # fmt: skip
        own = rows.filter(step=step)
        columns = ("minibatch", "token_ids", "rollout_logprobs", "current_logprobs", "advantages")
        assert sorted(own.select(columns).rows()) == expected
        assert own["old_logprobs"].null_count() == len(own)


def test_turns_that_failed_to_parse_are_sampled_but_not_in_the_loss(tmp_path: Path) -> None:
    drive(tmp_path / "run", strict=True)
    rows = rows_of(tmp_path / "run")
    merged = rows.filter(pl.col("sequence_id").str.ends_with("-0-0"))
    assert merged["mask"].to_list() == [[True, True, True, False, True, True]] * len(merged)
    assert merged["turn"].to_list() == [[0, 0, 0, 0, 1, 1]] * len(merged)
    failed = rows.filter(pl.col("sequence_id").str.ends_with("-1-1"))
    assert failed["mask"].to_list() == [[True, True]] * len(failed)
    assert failed["loss_mask"].to_list() == [[False, False]] * len(failed)
    assert failed["turn"].to_list() == [[1, 1]] * len(failed)
    assert len(merged) == len(failed) == 3 * GROUPS


def test_groups_rewards_reasons_and_versions_are_those_of_the_trajectory(tmp_path: Path) -> None:
    drive(tmp_path / "run", strict=True)
    rows = rows_of(tmp_path / "run").with_columns(sample=pl.col("sequence_id").str.split("-").list.get(2).cast(int))
    assert rows["group_id"].n_unique() == 3 * GROUPS
    assert set(rows.filter(sample=0)["finish_reason"]) == {"stop"}
    assert set(rows.filter(sample=1)["finish_reason"]) == {"length"}
    assert (rows["rollout_version_min"] == rows["step"]).all() and (rows["trainer_version"] == rows["step"]).all()
    first = rows.filter(pl.col("sample") == 0, pl.col("mask").list.len() == 6)
    tokens = [[t for t, m in zip(*pair, strict=True) if m] for pair in first.select("token_ids", "mask").rows()]
    assert np.allclose(first["reward"], [sum(own) / 10 + 0.25 for own in tokens])
    assert rows.filter(sample=1).group_by("sequence_id").len()["len"].max() == 1
    assert SAMPLES == rows["sample"].n_unique()


def test_asynchronous_training_records_how_stale_each_group_is(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", mode="async", strict=True)
    lag = (
        rows_of(tmp_path / "run")
        .with_columns(lag=pl.col("trainer_version") - pl.col("rollout_version_min"))
        .group_by("step")
        .agg(pl.col("lag").min().alias("min"), pl.col("lag").max().alias("max"))
        .sort("step")
    )
    logged = [row for _, row in trace["logs"] if "async/staleness_max" in row]
    assert lag["max"].to_list() == [row["async/staleness_max"] for row in logged]
    assert lag["min"].to_list() == [row["async/staleness_min"] for row in logged]
    assert max(lag["max"]) > 0


@pytest.mark.parametrize("mode", MODES)
def test_training_is_the_same_to_the_bit_with_and_without(tmp_path: Path, mode: str) -> None:
    def comparable(trace: dict[str, Any]) -> dict[str, Any]:
        return trace | {
            "logs": [(step, {k: v for k, v in row.items() if "time" not in k}) for step, row in trace["logs"]]
        }

    assert comparable(drive(tmp_path / "run", mode=mode)) == comparable(drive(None, mode=mode))
    assert len(rows_of(tmp_path / "run"))


def test_detach_restores_every_name_also_where_it_was_imported() -> None:
    data_processing = import_module("tinker_cookbook.rl.data_processing")
    metrics, train = import_module("tinker_cookbook.rl.metrics"), import_module("tinker_cookbook.rl.train")
    ml_log = import_module("tinker_cookbook.utils.ml_log")
    names = [
        (train, "do_train_step_and_get_sampling_client"), (train, "assemble_training_data"),
        (train, "compute_sampling_client_metrics"), (data_processing, "assemble_training_data"),
        (metrics, "compute_sampling_client_metrics"), (ml_log.MultiplexLogger, "log_metrics"),
    ]  # fmt: skip
    before = [getattr(owner, name) for owner, name in names]
    attached = ratioscope.attach("tinker_cookbook", "/nonexistent/run")
    assert all(hasattr(getattr(owner, name), MARK) for owner, name in names)
    attached.detach()
    assert [getattr(owner, name) for owner, name in names] == before


def test_a_version_without_what_is_needed_is_refused_and_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = import_module("tinker_cookbook.rl.train")
    monkeypatch.setattr(train, "renamed", train.compute_full_batch_metrics_and_get_sampling_client, raising=False)
    monkeypatch.delattr(train, "compute_full_batch_metrics_and_get_sampling_client")
    attached = ratioscope.attach("tinker-cookbook", tmp_path / "run")
    assert attached.refused is not None
    assert "compute_full_batch_metrics_and_get_sampling_client" in attached.refused
    assert not (tmp_path / "run").exists()


def test_a_failing_look_is_counted_and_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("cannot look")

    monkeypatch.setattr(tinker_cookbook_rows, "sampled_tokens", broken)
    trace = drive(tmp_path / "run")
    assert trace["losses"] == drive(None)["losses"]


def test_our_scalars_reach_the_trainers_own_logger(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", batches=6, scalars=True)
    rows = [row for _, row in trace["logs"]]
    assert any("ratioscope/total/kl_k3" in row for row in rows)
    assert all("optim/kl_sample_train_v1" in row for row in rows)


def test_absent_old_and_new_weights_are_noted(tmp_path: Path) -> None:
    drive(tmp_path / "run")
    kinds = ratioscope.open_run(tmp_path / "run").events["event"].to_list()
    assert kinds.count("no_old_logprobs") == 1
    assert kinds.count("weight_sync") == 3


def test_a_variable_and_nothing_else_records_a_run(tmp_path: Path) -> None:
    code = """
import ratioscope.collectors.environment as environment
environment.install()
from upstream.tinker_cookbook_drive import drive
drive(None)
"""
    path = os.pathsep.join([str(FOLDER.parent), str(FOLDER.parents[1]), *sys.path])
    environment = {**os.environ, "RATIOSCOPE_RUN": str(tmp_path / "run"), "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=300)
    assert len(rows_of(tmp_path / "run")) == 3 * GROUPS * 3
