"""How long rows wait in memory for more of their step."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ratioscope
from ratioscope.collectors.writing.writer_thread import LEAST_SECONDS, TIMES, StepPatience

MOST = 30.0


def patience(*batches: tuple[int, float]) -> float:
    """Seconds of patience after batches of (step, seconds since the batch before)."""
    now, made = 0.0, StepPatience()
    for step, since in batches:
        now += since
        made.came(step, now)
    return made.seconds(MOST)


def test_rows_wait_longest_until_one_step_was_seen_whole() -> None:
    assert patience() == patience((1, 0.0)) == patience((1, 0.0), (1, 0.1), (1, 0.1)) == MOST


def test_a_trainer_that_logs_a_step_in_one_call_is_not_waited_for() -> None:
    assert patience((1, 0.0), (2, 400.0), (3, 400.0)) == LEAST_SECONDS


def test_a_trainer_that_logs_a_step_in_parts_is_waited_for() -> None:
    assert patience((1, 0.0), (1, 3.0), (1, 1.0), (2, 400.0)) == TIMES * 3.0
    assert patience((1, 0.0), (1, 20.0), (2, 1.0)) == MOST
    assert patience((1, 0.0), (2, 1.0), (2, 2.0)) == TIMES * 2.0


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), max_size=30))
def test_patience_is_bounded_and_never_less_than_what_was_seen(batches: list[tuple[int, float]]) -> None:
    ordered = sorted(batches, key=lambda batch: batch[0])
    seconds = patience(*ordered)
    within = [since for (before, _), (step, since) in zip(ordered, ordered[1:], strict=False) if before == step]
    assert LEAST_SECONDS <= seconds <= MOST
    assert seconds >= min(MOST, max(within, default=0.0))


def test_a_reader_has_a_step_before_the_next_one_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratioscope.collectors.writing.writer_thread.LEAST_SECONDS", 0.01)
    run = tmp_path / "run"
    with ratioscope.Collector(run) as collector:
        for step in (1, 2):
            collector.log(step=step, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.5]])
        deadline = time.monotonic() + 60
        while not (run / "tokens" / "step=000000002").is_dir():
            assert time.monotonic() < deadline
        collector.log(step=2, rollout_logprobs=[[-2.0]], old_logprobs=[[-2.5]])
    frame = ratioscope.open_run(run).metrics()
    assert frame["step"].to_list() == [1, 2] and frame["mismatch/tokens"].to_list() == [1, 2]
