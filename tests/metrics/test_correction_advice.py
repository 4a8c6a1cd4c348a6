"""What is advised: never against the verdict, never more sure than the steps are, and by the risk it says."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from support.real_runs import records

from ratioscope.metrics.corrections.advice import RECORDS, advice, risk, risk_per_step
from ratioscope.metrics.corrections.correction import CORRECTIONS, NONE
from ratioscope.metrics.corrections.effect import SUMS, correction_sums, effect_values
from ratioscope.metrics.grading.coverage import MEASURED
from ratioscope.metrics.grading.finding import Finding, Severity
from ratioscope.metrics.grading.signals import SIGNALS

ACT = Finding(
    Severity.ACT,
    "engine and trainer disagree on the same tokens",
    "kl_k3",
    "mismatch",
    3,
    "high",
    "KL",
    "meaning",
    "Look where.",
    MEASURED,
)
HEALTHY = replace(ACT, severity=Severity.HEALTHY, title="no signal is out of its bounds")


def values(mean: float, steps: int = 40, noise: float = 0.01, seed: int = 0) -> Any:
    return mean + noise * np.random.default_rng(seed).normal(size=steps)


def test_the_risk_is_squared_bias_and_one_over_the_draws_in_effect() -> None:
    draws = np.random.default_rng(0)
    w = np.exp(draws.normal(0, 0.3, (16, 50)))
    v = np.minimum(w, 1.2)
    bias, ess = np.abs(v - w).mean(), v.sum() ** 2 / (v.size * (v**2).sum())
    found = risk(np.array([bias, bias]), np.array([ess, ess]), np.array([16.0, 0.0]))
    assert found[0] == pytest.approx(bias**2 + (v**2).mean() / v.mean() ** 2 / 16) and np.isnan(found[1])
    nothing_left = risk(np.array([1.0, 0.5]), np.array([np.nan, 1e-9]), np.array([16.0, 16.0]))
    assert nothing_left.tolist() == [2.0, 1.25]


def test_the_risk_of_each_step_is_of_its_own_sequences() -> None:
    effects = pl.DataFrame({"step": [3, 1, 2], "bias": [0.0, 0.1, 0.2], "ess_after": [0.5, 1.0, None]})
    sizes = pl.DataFrame({"step": [1, 2], "sequences": [10, 10]})
    first, second, third = risk_per_step(effects, sizes)
    assert (first, second) == pytest.approx((0.1**2 + 0.1, 0.2**2 + 1)) and np.isnan(third)


def test_making_the_step_smaller_is_no_help() -> None:
    """Mask all but a few weights and the sum of squares falls; the risk must not."""
    w = np.exp(np.random.default_rng(1).normal(0, 0.2, 4000))
    v = np.where(np.abs(np.log(w)) < 0.05, w, 0.0)
    ess = [x.sum() ** 2 / (x.size * (x**2).sum()) for x in (w, v)]
    bias = [0.0, np.abs(v - w).mean()]
    raw, masked = risk(np.array(bias), np.array(ess), np.array([2.0, 2.0]))
    assert masked > raw


def test_the_clear_winner_is_named_with_its_margin() -> None:
    found = advice({"a": values(0.5, seed=1), "b": values(0.7, seed=2)}, values(1.0), ACT)
    assert (found.outcome, found.best, found.confidence) == ("one helps", "a", "high")
    assert "below that of no correction, and lower at 40 of 40 steps" in found.why and "Next is b" in found.why
    assert found.why.endswith("leaves its cause, which the diagnosis names.")


def test_what_is_too_close_is_as_good_and_leaves_no_doubt_that_the_best_helps() -> None:
    found = advice({"a": values(0.5, seed=1), "b": values(0.5, seed=2), "c": values(0.9, seed=3)}, values(1.0), ACT)
    other = "b" if found.best == "a" else "a"
    assert (found.outcome, found.title, found.as_good) == ("one helps", f"{found.best} helps", (other,))
    assert f"As good, too close to call: {other}, " in found.why and "Next is" not in found.why
    assert found.confidence == "high"
    same = values(0.5)
    assert advice({"a": same, "b": same}, values(1.0), ACT).as_good == ("b",)


def test_the_confidence_is_that_the_best_helps() -> None:
    rng = np.random.default_rng(0)
    gains = rng.normal(0, 1, 40)
    gains = (gains - gains.mean()) / gains.std(ddof=1) * 40**0.5 * 0.1 / 2.5 + 0.1  # 2.5 standard errors above 0
    found = advice({"a": 1 - gains}, np.ones(40), ACT)
    assert (found.title, found.confidence, found.as_good) == ("a helps most", "medium", ())


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_few_steps_say_nothing_for_sure(steps: int) -> None:
    found = advice({"a": values(0.5, steps)}, values(1.0, steps), ACT)
    assert found.best is None and found.confidence == "low"


def test_what_is_no_better_than_nothing_is_not_advised() -> None:
    found = advice({"a": values(1.0, seed=1), "b": values(1.5, seed=2)}, values(1.0), ACT)
    assert found.outcome == "none makes a difference" and found.best is None and found.confidence == "high"
    vague = advice({"a": values(1.0, noise=1.0, seed=1)}, values(1.0, noise=1.0, seed=5), ACT)
    assert vague.outcome == "none helps for sure" and vague.best is None


def test_a_difference_too_small_to_matter_needs_no_correction_however_sure_it_is() -> None:
    found = advice({"truncate token at 2": values(0.985, noise=1e-4)}, values(1.0, noise=1e-4, seed=1), ACT)
    assert found.outcome == "none makes a difference" and found.best is None and "helps" not in found.title
    assert "1.5% below that of no correction" in found.why and "below 5% it makes no difference" in found.why
    assert found.confidence == "high" and ACT.remedy in found.why
    assert advice({"a": values(0.9, noise=1e-4)}, values(1.0, noise=1e-4, seed=1), ACT).outcome == "one helps"
    assert advice({"a": values(0.0, noise=0)}, values(0.0, noise=0), ACT).best is None


def test_a_healthy_run_needs_none_and_bad_records_are_repaired_first() -> None:
    assert advice({"a": values(0.5)}, values(1.0), HEALTHY).outcome == "none is needed"
    assert RECORDS <= {signal.name for signal in SIGNALS}
    for name in RECORDS:
        signal = next(signal for signal in SIGNALS if signal.name == name)
        verdict = replace(ACT, signal=name, title=signal.title, remedy=signal.remedy)
        found = advice({"a": values(0.5)}, values(1.0), verdict)
        assert found.outcome == "repair the records first" and found.best is None and signal.remedy in found.why


def test_nothing_measured_gives_no_advice() -> None:
    empty = np.array([np.nan, np.nan])
    for risks in ({}, {"a": empty}):
        assert advice(risks, empty, ACT).best is None


def test_on_a_stale_real_run_token_truncation_beats_sequence_weights_and_nothing() -> None:
    sums = correction_sums(records("trl_vllm_stale4"), CORRECTIONS)
    names = np.array(sums["correction"].to_pylist())
    risks = {}
    for correction in CORRECTIONS:
        rows = sums.filter(names == correction.name)
        found = effect_values({name: rows[name].to_numpy() for name in SUMS})
        sequences = rows["sequences"].to_numpy()
        risks[correction.name] = risk(found["bias"], found["ess_after"], sequences)
    nothing = risks.pop(NONE.name)
    found_advice = advice(risks, nothing, ACT)
    assert found_advice.best is not None and found_advice.best.startswith(("token", "veto"))
    assert risks["sequence TIS 2"].mean() > nothing.mean()
