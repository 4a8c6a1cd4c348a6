"""The odd one of rollout, old and current at equal weights: a trainer that disagrees with itself, and an old that is off."""

from pathlib import Path

import numpy as np
import pytest

from ratioscope import Collector, open_run
from ratioscope.ingest.analysis.diagnosis import RunDiagnosis, diagnosis_of
from ratioscope.metrics.diagnosis.on_record import STALENESS

NOISE = 0.3
"""Spread of a fault of the log-ratio, in nats."""


def diagnosed(folder: Path, how: str, *, minibatch: int = 0) -> RunDiagnosis:
    """The diagnosis of a run whose trainer draws at random, has an old of other weights, or has updated current before."""
    rng = np.random.default_rng(5)
    with Collector(folder, writer="thread") as collector:
        for step in range(6):
            truth = rng.normal(-2.5, 0.7, (16, 30)).clip(max=-0.05)
            fault, other = rng.normal(-(NOISE**2) / 2, NOISE, (2, 16, 30))
            old, current = {
                "random": (truth + fault, truth + other),
                "old is off": (truth + fault, truth),
                "updated": (truth + fault, truth + fault + other),
                "engine": (truth + fault, truth + fault),
            }[how]
            collector.log(
                step=step, minibatch=minibatch, rollout_logprobs=list(truth), old_logprobs=list(old),
                current_logprobs=list(current), mask=[np.ones(30, np.int8)] * 16,
            )  # fmt: skip
    return diagnosis_of(open_run(folder))


def test_a_trainer_that_disagrees_with_itself_around_the_sampler_draws_at_random(tmp_path: Path) -> None:
    found = diagnosed(tmp_path / "run", "random")
    first = found.diagnosis.likely[0]
    assert (first.cause.code, first.confidence, first.side) == ("train_mode", "high", "trainer")
    assert "at the same weights the trainer disagrees with itself" in first.fact


def test_an_old_that_alone_is_off_is_the_trainers_and_no_stale_engine(tmp_path: Path) -> None:
    found = diagnosed(tmp_path / "run", "old is off")
    assert found.record.side == "trainer" and "old is the odd one" in found.record.side_because
    assert {*STALENESS, "different_prompt"} <= {*found.record.ruled_out}, "both passes of the trainer read one prompt"
    assert all(item.side == "trainer" for item in found.diagnosis.likely)


@pytest.mark.parametrize(("how", "minibatch"), [("updated", 0), ("engine", 0), ("random", 1), ("old is off", 2)])
def test_updates_and_later_minibatches_decide_nothing(tmp_path: Path, how: str, minibatch: int) -> None:
    found = diagnosed(tmp_path / "run", how, minibatch=minibatch)
    assert found.record.side is None and not found.record.shown
    assert "train_mode" not in [item.cause.code for item in found.diagnosis.likely]
