"""The floor of a gap is that of the run's beginning: it never moves with what is graded against it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edge_runs import records_of
from support.frames import frame_of
from support.run_folders import FakeWriter

from ratioscope.ingest.analysis.grades import floors_of, signal_grades, step_grades
from ratioscope.ingest.run import open_run
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.grading.floor import FIRST_STEPS, floors
from ratioscope.metrics.grading.run_verdict import verdict
from ratioscope.metrics.grading.severity import grade_signals, reading
from ratioscope.metrics.grading.signals import SIGNALS

OVER = next(signal for signal in SIGNALS if signal.name == "kl_k3_over_floor")
K3 = st.floats(1e-9, 1.0)
ERRORS = st.one_of(st.just(float("nan")), st.floats(0.0, 0.5))


def growing_run(folder: Path, lags: Sequence[int] | None) -> Path:
    """80 steps whose KL grows smoothly from 0.0002 to 0.008; lags: of the sequences of a step in turn, None: no versions."""
    steps = np.repeat(np.arange(80), 8)
    return written_run(folder, steps, 0.02 * 6.2 ** (steps / 79), None if lags is None else np.tile(lags, 640)[:640])


def written_run(folder: Path, steps: np.ndarray, off: np.ndarray, lags: np.ndarray | None) -> Path:
    """A run of a sequence per step given, whose log-probs are `off` by so much; its statistics of all steps alone."""
    draws = np.random.default_rng(7)
    rollout = -draws.exponential(1.0, (len(steps), 60)) - 0.5
    rows = records_of(steps, rollout, rollout + off[:, None] * draws.normal(0, 1, rollout.shape))
    if lags is not None:
        known = {"trainer_version": steps, "rollout_version_min": steps - lags, "rollout_version_max": steps - lags}
        for name, values in known.items():
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, name, pa.array(values, rows.schema.field(at).type))
    writer = FakeWriter(folder, segment_steps=80).open()
    writer.add_statistics(statistics(rows))
    writer.step(rows.slice(0, 2), with_statistics=False)
    writer.close()
    return folder


def flagged(path: Path) -> list[int]:
    grades = step_grades(open_run(path))
    return grades.filter(pl.col("severity") != "healthy")["step"].to_list()


@pytest.mark.parametrize("lags", [(0,), (0, 0, 1, 2), (3,)], ids=["fresh", "mixed", "stale from the first"])
def test_versions_on_record_do_not_hide_a_gap_that_grows(tmp_path: Path, lags: Sequence[int]) -> None:
    without = flagged(growing_run(tmp_path / "without", None))
    assert 30 < len(without) < 60, "from three times the beginning on"
    assert len(set(without) ^ set(flagged(growing_run(tmp_path / "with", lags)))) <= 4


def test_a_run_is_compared_with_the_fresh_samples_of_its_first_steps(tmp_path: Path) -> None:
    """Half of the tokens are stale, and far off, from the first step on: they are no floor where fresh ones are known."""
    steps = np.repeat(np.arange(6), 8)
    off = np.where(np.arange(48) % 2, 0.12, 0.02) * np.where(steps < 3, 1.0, 1.4)
    run = open_run(written_run(tmp_path, steps, off, np.tile([0, 3], 24)))
    assert floors(run.metrics())["mismatch"] > 0.003
    assert floors_of(run)["mismatch"] < 0.0005


def test_a_few_fresh_tokens_that_agree_by_chance_are_no_floor() -> None:
    whole = frame_of({"kl_k3": [0.002] * 3, "kl_k3_se": [1e-4] * 3})
    for tokens, lowers in ((5.0, False), (199.0, False), (200.0, True)):
        few = frame_of({"kl_k3": [1e-9] * 3, "kl_k3_se": [1e-12] * 3, "tokens": [tokens] * 3})
        assert (floors(whole, few)["mismatch"] < 0.002) == lowers


@given(st.lists(st.tuples(K3, ERRORS), min_size=FIRST_STEPS, max_size=6), st.lists(st.tuples(K3, ERRORS), max_size=6))
def test_later_steps_never_change_a_floor(first: list[tuple[float, float]], later: list[tuple[float, float]]) -> None:
    def of(rows: list[tuple[float, float]]) -> dict[str, float]:
        return floors(frame_of({"kl_k3": [k3 for k3, _ in rows], "kl_k3_se": [error for _, error in rows]}))

    assert of(first + later) == of(first) == of(first[:FIRST_STEPS])


@given(st.lists(K3, min_size=FIRST_STEPS, max_size=FIRST_STEPS), st.lists(K3, max_size=4))
def test_fresh_samples_lower_a_floor_and_later_ones_never_do(all_tokens: list[float], later: list[float]) -> None:
    def of(values: list[float]) -> pl.DataFrame:
        return frame_of({"kl_k3": values, "kl_k3_se": [value / 100 for value in values]})

    own = of([value / 2 for value in [*all_tokens, *later]])
    known = floors(of([*all_tokens, *later]), own)
    assert known == floors(of(all_tokens), own) and known["mismatch"] < floors(of(all_tokens))["mismatch"]


def test_a_gap_that_is_recorded_late_has_the_floor_of_its_own_first_steps() -> None:
    level = [float("nan")] * 5 + [0.002, float("inf"), 0.003, 0.0005, 0.0001]
    frame = frame_of({"kl_k3": level, "kl_k3_se": [0.0] * 10})
    assert floors(frame) == {"mismatch": pytest.approx(0.0005)}


def test_a_sick_beginning_is_no_floor() -> None:
    level = [0.3] * 3 + [0.002] * 3 + [0.9] * 3
    rows = grade_signals(frame_of({"kl_k3": level, "kl_k3_se": [k / 100 for k in level]}))
    assert rows.filter(signal="kl_k3_over_floor").is_empty()
    assert "kl_k3_over_floor, because the run's first steps do not surely lie below 0.01" in verdict(rows).checked


def test_engines_that_agreed_to_the_last_bit_have_a_floor_too() -> None:
    level = [0.0] * 4 + [0.004, 0.006] + [0.02, 0.03]
    rows = grade_signals(frame_of({"kl_k3": level, "kl_k3_se": [k / 100 for k in level]}))
    over = rows.filter(signal="kl_k3_over_floor")
    assert over["severity"].to_list() == ["healthy"] * 4 + ["watch"] * 2 + ["act"] * 2
    assert reading(OVER, over.row(5, named=True)).endswith("over 1000 times the floor of the run's first steps (0)")


def test_of_steps_below_the_act_bound_the_worst_is_the_one_with_the_largest_gap() -> None:
    """Both are ten times the floor and more, and no more than watch: which is the worse may not be told by a cap."""
    level = [0.0002] * 3 + [0.0025, 0.0024, 0.0077, 0.0030]
    rows = grade_signals(frame_of({"kl_k3": level, "kl_k3_se": [k / 100 for k in level]}))
    over = rows.filter(signal="kl_k3_over_floor")
    assert over["severity"].to_list() == ["healthy"] * 3 + ["watch"] * 4
    assert over.sort("tested")["step"].to_list()[-4:] == [4, 3, 6, 5]


def test_the_floor_of_a_run_is_the_one_that_its_signals_are_graded_by(tmp_path: Path) -> None:
    run = open_run(growing_run(tmp_path / "run", (0,)))
    shown = signal_grades(run).filter(signal="kl_k3_over_floor")["floor"].unique().to_list()
    assert shown == [floors_of(run)["mismatch"]] and shown[0] < 0.0004
