"""Equal log-probs: a share that rounding explains is a measurement, any other one is none."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from ratioscope.arrays import Floats
from ratioscope.collectors.budget import Budget
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.copies import copied_steps
from ratioscope.ingest.analysis.coverage import coverage_of
from ratioscope.ingest.analysis.ties import ties
from ratioscope.ingest.run import open_run

ROWS, TOKENS = 16, 60


def bfloat16(values: Floats) -> Floats:
    bits = (values.astype(np.float32).view(np.uint32) + 0x8000) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def sides(seed: int, temperature: float = 1.0, noise: float = 0.01) -> tuple[Floats, Floats]:
    """float32 log-probs of two engines, whose logits differ by noise: a peaked distribution over few words."""
    draws = np.random.default_rng(seed)
    logits = draws.normal(0, 4, (ROWS, TOKENS, 24))
    chosen = (logits / temperature + draws.gumbel(size=logits.shape)).argmax(-1)[..., None]

    def log_probs() -> Floats:
        own = ((logits + draws.normal(0, noise, logits.shape)) / temperature).astype(np.float32)
        own -= own.max(-1, keepdims=True)
        return np.asarray(np.take_along_axis(own - np.log(np.exp(own).sum(-1, keepdims=True)), chosen, -1)[..., 0])

    return log_probs(), log_probs()


def run_of(folder: Path, *steps: tuple[Floats, Floats], **options: object) -> Path:
    with Collector(folder, writer="thread", **options) as collector:  # type: ignore[arg-type]
        for step, (rollout, old) in enumerate(steps):
            collector.log(step=step, rollout_logprobs=rollout, old_logprobs=old)
    return folder


ROUNDED: Mapping[str, tuple[Floats, Floats]] = {
    "float32": sides(0),
    "very cold": sides(1, temperature=0.2),
    "nearly greedy": sides(2, temperature=0.1),
    "bfloat16": (bfloat16(sides(3)[0]), bfloat16(sides(3)[1])),
    "4 decimals": (np.round(sides(4, noise=1e-4)[0], 4), np.round(sides(4, noise=1e-4)[1], 4)),
    "an aligned stack with other last bits": (sides(5)[0], np.nextafter(sides(5)[0], -1, dtype=np.float32)),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_equal_tokens_that_rounding_explains_are_measured(name: str, tmp_path: Path) -> None:
    run = open_run(run_of(tmp_path / "run", ROUNDED[name], ROUNDED[name]))
    assert ties(run).is_empty() and coverage_of(run, 0.9).is_measured


def test_short_rows_that_chance_makes_equal_are_measured(tmp_path: Path) -> None:
    """Most tokens are equal, here and there. Rows of four are equal as a whole now and then, and rows of 40 are copies."""
    draws = np.random.default_rng(8)
    for length, is_measured in ((4, True), (40, False)):
        rollout = -draws.exponential(1.0, (64, length)).astype(np.float32).astype(np.float64) - 0.01
        equal = draws.random((64, length)) < 0.6
        if length == 40:
            equal[:16] = True
        old = np.where(equal, rollout, rollout + draws.normal(0, 0.01, rollout.shape))
        found = coverage_of(open_run(run_of(tmp_path / f"run_{length}", (rollout, old))), 0.9)
        assert found.is_measured is is_measured, found


@pytest.mark.parametrize("budget", [None, Budget(step_bytes=0, worst=0)])
def test_copied_rows_are_not_measured_though_one_row_is(budget: Budget | None, tmp_path: Path) -> None:
    rollout, old = sides(0)
    some = (rollout, np.where(np.arange(ROWS)[:, None] < 4, old, rollout))
    run = open_run(run_of(tmp_path / "run", (rollout, old), some, some, budget=budget))
    found = coverage_of(run, 0.9)
    assert found.word == "partly measured" and "Less than 90% were measured at 2 steps from 1 to 2" in found.why
    assert found.share is not None and found.share < 0.8 and "computed_apart" in found.remedy


def test_copied_rows_of_two_computations_are_measured(tmp_path: Path) -> None:
    rollout, old = sides(0)
    some = (rollout, np.where(np.arange(ROWS)[:, None] < 4, old, rollout))
    assert coverage_of(open_run(run_of(tmp_path / "run", some, computed_apart=True)), 0.9).is_measured


def test_zeros_are_placeholders_where_no_token_is_nearly_certain(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    rollout = -draws.gamma(1.0, 0.7, (ROWS, TOKENS))
    nobody = draws.random(rollout.shape) < 0.05
    zeros = (np.where(nobody, 0, rollout), np.where(nobody, 0, rollout - 0.01 * draws.random(rollout.shape)))
    found = coverage_of(open_run(run_of(tmp_path / "run", zeros, computed_apart=True)), 0.9)
    assert found.word == "partly measured" and "exactly 0 on both sides" in found.why and "mask=" in found.remedy


def test_zeros_of_a_policy_that_collapses_are_measured(tmp_path: Path) -> None:
    """At its last step every token is certain: the steps before it show that the policy came near certainty."""
    warm, cold = sides(6, temperature=0.2), sides(6, temperature=0.001)
    assert (cold[0] == 0).mean() > 0.9
    alone, after = (
        open_run(run_of(tmp_path / name, *steps)) for name, steps in (("a", (cold,)), ("b", (warm, warm, cold)))
    )
    assert coverage_of(alone, 0.9).word != "healthy" and coverage_of(after, 0.9).is_measured


def test_a_low_temperature_on_record_allows_more_zeros(tmp_path: Path) -> None:
    cold = sides(7, temperature=0.01)
    zeros, near = (cold[0] == 0).sum(), ((cold[0] < 0) & (cold[0] > -1e-5)).sum()
    assert 10 * near < zeros < 900 * near
    folder = run_of(tmp_path / "told", cold, cold, config={"sampling": {"temperature": 0.01}})
    assert coverage_of(open_run(folder), 0.9).is_measured
    assert not coverage_of(open_run(run_of(tmp_path / "untold", cold, cold)), 0.9).is_measured


def test_a_step_of_few_tokens_that_chance_makes_equal_is_no_copy(tmp_path: Path) -> None:
    """Half of the tokens of the other steps are equal, so that four of them may all be; forty are not by chance."""
    draws = np.random.default_rng(9)

    def step(tokens: int, share: float) -> tuple[Floats, Floats]:
        rollout = -draws.exponential(1.0, (1, tokens)) - 0.01
        return rollout, np.where(draws.random(rollout.shape) < share, rollout, rollout + 0.01)

    for tokens, is_copy in ((4, False), (40, True)):
        folder = run_of(tmp_path / f"run_{tokens}", *[step(60, 0.5)] * 8, step(tokens, 1.0))
        assert bool(copied_steps(open_run(folder))) is is_copy


def test_many_short_steps_are_read_until_they_show_certain_tokens(tmp_path: Path) -> None:
    """A collapsed policy has a log-prob beside 0 now and then, which four steps of six tokens need not have."""
    draws = np.random.default_rng(10)
    lowest = np.repeat([0.0, 1e-6, 1.0], [30, 8, 22])[:, None, None]
    rollout = -lowest * draws.uniform(0.5, 2, (60, 2, 3))
    rollout[:, 0, 0] = 0.0
    rollout[30:38, 0, 1] = 0.0
    rollout[:, 1, 2] = -1.0  # no step is equal as a whole
    steps = [(each, each * 1.01) for each in rollout]
    assert coverage_of(open_run(run_of(tmp_path / "run", *steps)), 0.9).is_measured


def test_few_log_probs_beside_zero_may_be_more_by_chance(tmp_path: Path) -> None:
    """Twelve zeros for each of 25 log-probs beside 0 are certain tokens, and for each of 900 they are not."""
    for near, is_measured in ((25, True), (900, False)):
        rollout = np.concatenate([np.zeros(12 * near), np.full(near, -1e-6), np.full(3 * near, -1.0)]).reshape(4, -1)
        folder = run_of(tmp_path / f"run_{near}", (rollout, rollout * 1.01))
        assert coverage_of(open_run(folder), 0.9).is_measured is is_measured
