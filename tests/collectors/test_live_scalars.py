"""Live scalars and the first look: what the writer's thread reads from the statistics it writes."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratioscope import Collector, open_run
from ratioscope.collectors.writing.live_scalars import LOGGED, STEP
from ratioscope.layout import FIRST_ROWS
from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.dialects import dialect
from ratioscope.metrics.engines.step_values import step_values
from ratioscope.record import GAPS


def batch(seed: int, rows: int = 6, tokens: int = 40) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    rollout = random.normal(-1.5, 1, (rows, tokens)).clip(max=0).astype(np.float32)
    near = [(rollout + random.normal(0, 0.05, rollout.shape)).clip(max=0).astype(np.float32) for _ in range(2)]
    return {
        "rollout_logprobs": rollout,
        "old_logprobs": near[0],
        "current_logprobs": near[1],
        "mask": random.random(rollout.shape) < 0.9,
        "sequence_ids": [f"{seed}-{row}" for row in range(rows)],
    }


def events(root: Path) -> list[tuple[str, str]]:
    return open_run(root).events.select("event", "note").rows()


@settings(max_examples=10)
@given(st.integers(0, 1000), st.integers(1, 5))
def test_values_read_in_the_writer_are_those_of_the_metric_frame(tmp_path_factory: Any, seed: int, parts: int) -> None:
    root = tmp_path_factory.mktemp("run")
    with Collector(root) as collector:
        for part in range(parts):
            collector.log(step=3, **batch(seed + part))
            collector.flush()
    segment = next((root / "statistics").glob("*.parquet"))
    found, expected = step_values(pq.read_table(segment)), open_run(root).metrics().row(0, named=True)
    names = {name for name in expected if name != "step" and expected[name] is not None}
    assert set(found) == names
    for name in names:
        assert found[name] == pytest.approx(expected[name], rel=1e-5, abs=1e-12, nan_ok=True), (
            name
        )  # differences of sums


def test_the_logger_gets_each_step_once_under_our_names_and_the_trainers(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", scalars=True, dialect="verl") as collector:
        assert collector.scalars(5) == {}
        for step in (1, 2):
            collector.log(step=step, **batch(step))
        collector.flush()
        assert collector.scalars(0) == {}
        first = collector.scalars(1, known=("rollout_corr/kl",))
        assert first[STEP] == 1 and "rollout_corr/kl" not in first
        second = collector.scalars(7)
        assert second[STEP] == 2 and collector.scalars(7) == {}
    metrics = open_run(tmp_path / "run").metrics().row(1, named=True)
    ours = {name.removeprefix("ratioscope/") for name in second if name.startswith("ratioscope/")} - {"step"}
    assert {name.rpartition("/")[2].removesuffix("_se") for name in ours} <= set(LOGGED) <= {m.name for m in METRICS}
    assert {name.partition("/")[0] for name in ours} == set(GAPS)
    assert all(second[f"ratioscope/{name}"] == pytest.approx(metrics[name], nan_ok=True) for name in ours)
    asked = {name: value for name, value in batch(2).items() if name != "sequence_ids"}
    theirs = dialect("verl").evaluate(asked).metrics
    assert theirs and all(second[name] == pytest.approx(value, rel=1e-5, abs=1e-7) for name, value in theirs.items())


def test_the_logger_gets_nothing_unless_asked(tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **batch(1))
        collector.flush()
        assert collector.scalars(1) == {}


def test_the_first_rows_say_what_they_are_and_that_they_line_up(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", versions="tags of the batch") as collector:
        for step in (1, 2):
            collector.log(step=step, rollout_versions=step, trainer_version=step, **batch(step))
    ((kind, note),) = events(tmp_path / "run")
    assert kind == FIRST_ROWS
    for part in (
        "6 rows, 238 tokens, of rollout, old, current",
        "from tags of the batch",
        "rollout and old look aligned",
    ):
        assert part in note


@pytest.mark.parametrize("shift", [-2, -1, 1, 2])
def test_a_shift_between_the_sides_is_said_at_once(tmp_path: Path, shift: int) -> None:
    values = batch(0)
    values["old_logprobs"] = np.roll(values["old_logprobs"], shift, axis=1)
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **values)
    assert f"rollout and old LOOK SHIFTED by {shift:+d} tokens" in events(tmp_path / "run")[0][1]


def test_two_sides_of_different_tokens_are_said_at_once(tmp_path: Path) -> None:
    values = batch(0) | {"old_logprobs": batch(1)["old_logprobs"]}
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **values)
    assert "rollout and old correlate little" in events(tmp_path / "run")[0][1]


def test_one_policy_alone_cannot_be_aligned_and_other_ranks_stay_quiet(tmp_path: Path) -> None:
    alone = {name: batch(0)[name] for name in ("current_logprobs", "sequence_ids")}
    for rank in (0, 1):
        with Collector(tmp_path / "run", rank=rank, attempt=0) as collector:
            collector.log(step=1, minibatch=0, **alone)
    ((_, note),) = events(tmp_path / "run")
    for part in ("rollout, old not in them", "rollout versions unknown", "cannot be told"):
        assert part in note


def test_a_step_without_a_token_that_counts_has_no_values_of_the_trainer_and_fails_nothing(tmp_path: Path) -> None:
    given_rows = batch(0)
    with Collector(tmp_path, scalars=True, dialect="trl", writer="thread") as collector:
        collector.log(step=0, **{**given_rows, "mask": np.zeros_like(given_rows["mask"])}, advantages=[1.0] * 6)
        assert collector.flush()
        assert not any(name.startswith("sampling") for name in collector.scalars(0))
    assert not collector.counts.failures
