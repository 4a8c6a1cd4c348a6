"""Facts of the sequences over the steps: means with their errors, against a plain loop."""

import math
from pathlib import Path

import numpy as np
import pytest

from ratioscope import Collector, open_run
from ratioscope.ingest.analysis.fact_courses import MOST, fact_course, recorded_facts

REWARD = "the mean reward"


def _recorded(folder: Path, rewards: list[list[float]]) -> Path:
    with Collector(folder) as collector:
        for step, own in enumerate(rewards):
            logprobs = [[-1.0, -2.0]] * len(own)
            collector.log(step=step, rollout_logprobs=logprobs, old_logprobs=logprobs, rewards=own)
    return folder


def test_a_mean_and_its_error_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    rewards = [[0.0, 1.0, 0.5], [1.0], [math.nan, 2.0, 4.0], [math.nan]]
    run = open_run(_recorded(tmp_path / "run", rewards))
    assert REWARD in [fact.words for fact in recorded_facts(run)]
    found = fact_course(run, REWARD, None).rows()
    finite = [[value for value in own if math.isfinite(value)] for own in rewards]
    wanted = [(step, float(np.mean(own)), own) for step, own in enumerate(finite) if own]
    assert [row[0] for row in found] == [step for step, *_ in wanted], "a step without a reward has no row"
    for (_, value, error, sequences), (_, mean, own) in zip(found, wanted, strict=True):
        assert value == pytest.approx(mean) and sequences == len(own)
        if len(own) > 1:
            assert error == pytest.approx(np.std(own, ddof=1) / len(own) ** 0.5)
        else:
            assert math.isnan(error)


def test_many_steps_are_thinned_evenly_and_the_newest_is_kept(tmp_path: Path) -> None:
    run = open_run(_recorded(tmp_path / "run", [[float(step), float(step)] for step in range(3 * MOST)]))
    found = fact_course(run, REWARD, None)
    assert len(found) == MOST and found["step"].is_sorted() and found["step"][-1] == 3 * MOST - 1
    assert found["value"].to_list() == [float(step) for step in found["step"]]
    assert fact_course(run, REWARD, range(5, 8))["step"].to_list() == [5, 6, 7]


def test_a_run_without_rewards_offers_none(tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
    assert REWARD not in [fact.words for fact in recorded_facts(open_run(tmp_path / "run"))]
