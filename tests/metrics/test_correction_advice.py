"""What is advised: never against the verdict, never more sure than the steps are, and by the risk it says."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.real_runs import records

from ratioscope.metrics.corrections.advice import RECORDS, Own, advice, ranked, risk, risk_per_step
from ratioscope.metrics.corrections.correction import CORRECTIONS, NONE
from ratioscope.metrics.corrections.effect import SUMS, correction_sums, effect_values
from ratioscope.metrics.grading.coverage import MEASURED, Coverage, Known
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
    partly = advice({"a": values(0.5)}, values(1.0), replace(HEALTHY, coverage=Coverage(Known.PARTLY)))
    assert partly.title == "No correction is needed in what was measured"
    copied = advice({"a": values(0.5)}, values(1.0), replace(HEALTHY, coverage=Coverage(Known.NOT_MEASURED)))
    assert (copied.outcome, copied.best, copied.confidence) == (
        "not known",
        None,
        "low",
    ) and "needed" not in copied.title
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


OWN = Own("x (own)", 0.0085, 0.0)


def test_the_runs_own_correction_is_judged_in_one_sentence_and_is_never_advised_anew() -> None:
    for own, rival, more in (
        (0.5, 0.49, "r would lower it by a further 2"),
        (0.5, 0.7, "none of the others lowers it"),
    ):
        risks = {"x (own)": values(own, seed=1), "r": values(rival, seed=2)}
        found = advice(risks, values(1.0), ACT, OWN)
        assert (found.outcome, found.best, found.confidence, found.gain) == (
            "its own is as good",
            "x (own)",
            "high",
            0.0,
        )
        assert found.own.startswith(
            "The run's own x clips 0.85% of the tokens and lowers the gradient's squared error by "
        )
        assert (
            more in found.own and found.own.endswith("; the cause stays.") and "x (own)" not in found.title + found.why
        )
    healthy = advice({"x (own)": values(0.99), "r": values(1.1)}, values(1.0), HEALTHY, OWN)
    assert healthy.outcome == "none is needed" and healthy.own and "the cause stays" not in healthy.own


def test_a_better_one_is_advised_with_what_it_gains_over_the_runs_own() -> None:
    masks = Own("x (own)", 0.02, 0.02)
    for own, effect in ((0.8, "lowers"), (1.5, "raises")):
        found = advice({"x (own)": values(own, seed=1), "r": values(0.4, seed=2)}, values(1.0), ACT, masks)
        assert (found.outcome, found.best) == ("one helps", "r") and found.gain == pytest.approx(
            1 - 0.4 / own, abs=0.02
        )
        assert f"The run's own x removes 2% of the tokens and {effect} the gradient's squared error by " in found.own
        further = "a further " if own < 1 else ""
        assert f"r would lower it by {further}{found.gain:.1%}; the cause stays." in found.own
    vague = advice({"x (own)": values(1.0, noise=1.0, seed=1), "r": values(0.8, noise=1.0)}, values(1.0), ACT, masks)
    assert "which is not sure" in vague.own


@given(st.lists(st.floats(0.01, 10), min_size=3, max_size=3), st.integers(0, 2))
def test_the_order_and_the_names_of_corrections_do_not_change_the_advice(sizes: list[float], own: int) -> None:
    names = ["a", "b", "c"]
    names[own] += " (own)"
    risks = {name: values(size, seed=at) * size for at, (name, size) in enumerate(zip(names, sizes, strict=True))}
    used = Own(names[own], 0.1, 0.0)
    found = advice(risks, values(1.0), ACT, used)
    assert found == advice(dict(reversed([*risks.items()])), values(1.0), ACT, used)
    assert found.best != names[own] or found.outcome == "its own is as good"


def test_corrections_are_ranked_over_the_steps_that_all_have() -> None:
    def effects(bias: float, steps: range) -> pl.DataFrame:
        rows = {"step": [*steps], "bias": [bias + 0.01 * (step % 3) for step in steps], "ess_after": [0.9] * len(steps)}
        return pl.DataFrame(rows).with_columns(
            weights=pl.col("step"), clipped_share=pl.col("step") / 100, removed_share=0.0
        )

    sizes = pl.DataFrame({"step": [*range(20)], "sequences": [32.0] * 20})
    found = ranked(
        {"a (own)": effects(0.1, range(4, 20)), "b": effects(0.3, range(12))},
        effects(1.0, range(20)),
        sizes,
        ACT,
        "a (own)",
    )
    assert found.outcome == "its own is as good"
    share = sum(step**2 for step in range(4, 12)) / sum(range(4, 12)) / 100
    assert f"clips {100 * share:.3g}% of the tokens" in found.own


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
