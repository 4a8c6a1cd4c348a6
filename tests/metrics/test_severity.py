"""Severity reads the labelled real runs as their labels say, and small samples prove nothing."""

import math

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special  # type: ignore[import-untyped]  # it ships no types
from support.frames import frame_of
from support.real_runs import HEALTHY, INDEX, records

from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.frame import metric_frame
from ratioscope.metrics.grading.finding import Severity
from ratioscope.metrics.grading.floor import at_lag_zero, floors
from ratioscope.metrics.grading.run_verdict import verdict
from ratioscope.metrics.grading.severity import SIGNALS, grade, grade_signals, reading, signal_named
from ratioscope.metrics.grading.signals import at_least, at_most

FAULTY = tuple(name for name in INDEX if name not in HEALTHY)
CAUSE = {
    "trl_vllm_stale4": "kl_k3_over_floor",
    "vllm_T07_rollout_raw": "mean_weight",
    "vllm_no_gen_prompt": "kl_k3",
    "vllm_rollout_shift1": "alignment",
    "vllm_topp09_processed": "mean_weight",
    "vllm_topp09_raw": "surprisal",
}


def table_of(records: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(statistics(records))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_real_run_is_healthy_at_every_step(name: str) -> None:
    table = table_of(records(name))
    frame = metric_frame(table)
    for known in (None, floors(frame, at_lag_zero(metric_frame(table, by=("step", "lag"))))):
        grades = grade(frame, known)
        assert set(grades["severity"]) == {"healthy"}
        assert verdict(grades).severity == Severity.HEALTHY
    assert len(grades) == records(name)["step"].to_pandas().nunique()


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_real_run_is_called_out_for_its_fault(name: str) -> None:
    finding = verdict(grade(metric_frame(table_of(records(name)))))
    assert finding.severity == Severity.ACT
    assert finding.signal == CAUSE[name]
    assert finding.confidence == "high"


def test_stale_weights_are_act_at_the_peaks_and_healthy_after_each_sync() -> None:
    grades = grade(metric_frame(table_of(records("trl_vllm_stale4"))))
    by_step = dict(zip(grades["step"], grades["severity"], strict=True))
    assert {by_step[step] for step in (0, 8, 16)} == {"healthy"}
    assert {by_step[step] for step in (6, 14, 22)} == {"act"}


def correlated(**own: float) -> pl.DataFrame:
    known = {
        "kl_k3": 0.05,
        "kl_k3_se": 0.001,
        "kl_k2": 0.05,
        "mean_log_ratio": 0.0,
        "shift_correlation_+1": 0.1,
        "tokens": 5000.0,
    }
    frame = grade_signals(frame_of({name: [value] * 3 for name, value in (known | own).items()}))
    return frame.filter(pl.col("signal").is_in(["alignment", "correlation"]) & (pl.col("severity") != "healthy"))


def test_a_low_correlation_is_said_as_such_and_other_tokens_only_where_a_shift_is_proven() -> None:
    stale = correlated(logprob_correlation=0.85)
    assert set(stale["signal"]) == {"correlation"} and set(stale["severity"]) == {"watch"}
    row = stale.row(0, named=True)
    assert reading(signal_named("correlation"), row) == "mismatch: log-probs correlate only at 0.85"
    shifted = correlated(logprob_correlation=0.26, kl_k2=4.0, kl_k3=4.0, **{"shift_correlation_+1": 0.98})
    assert dict(zip(shifted["signal"], shifted["severity"], strict=True)) == {
        "alignment": "act",
        "correlation": "watch",
    }
    swapped = correlated(logprob_correlation=0.2, kl_k2=4.0, kl_k3=4.0)
    assert set(swapped["signal"]) == {"correlation"}


def test_a_correlation_is_no_evidence_where_log_probs_hardly_vary() -> None:
    """A near-uniform policy of 97 tokens: log-probs of -4.55 vary by 0.15 nats, and the gap of old weights by 0.19."""
    assert correlated(logprob_correlation=0.22, kl_k2=0.018, kl_k3=0.018).is_empty()


def test_the_hidden_top_p_is_seen_by_the_surprisal_gap_alone() -> None:
    graded = grade_signals(metric_frame(table_of(records("vllm_topp09_raw"))))
    assert set(graded.filter(pl.col("severity") != "healthy")["signal"]) == {"surprisal"}


def test_one_enormous_token_is_no_grade_and_a_sure_mean_is() -> None:
    frame = frame_of({"kl_k3": [0.2, 0.2, 0.2], "kl_k3_se": [0.19, 0.08, 0.001]})
    graded = grade_signals(frame).filter(signal="kl_k3")
    assert graded["severity"].to_list() == ["healthy", "watch", "act"]


@given(st.floats(1.0, 1e4))
def test_the_ends_of_an_interval_are_those_of_a_poisson_count(count: float) -> None:
    value, error = np.array([3.0]), np.array([3.0 / np.sqrt(count)])
    chance = special.ndtr(-2.0)
    low, high = special.gammaincinv(count, chance) / count, special.gammaincinv(count + 1, 1 - chance) / count
    np.testing.assert_allclose(at_least(value, error) / 3, [low], rtol=0.02, atol=0.02)
    np.testing.assert_allclose(at_most(value, error) / 3, [high], rtol=0.02)
    assert at_least(value, np.array([np.nan])) == 1.5 and at_most(value, np.array([np.nan])) == 6.0


def of_few_tokens(level: list[float], error: float, tokens: float = 6.0) -> list[str]:
    frame = frame_of({"kl_k3": level, "kl_k3_se": [k * error for k in level], "tokens": [tokens] * len(level)})
    return list(grade_signals(frame).filter(signal="kl_k3")["severity"])


def test_a_step_of_six_tokens_is_graded_with_those_before_it() -> None:
    quiet = [0.0004] * 40
    assert of_few_tokens([*quiet, 1.3, *quiet], 0.9) == ["healthy"] * 81, "one token of a hundred and more"
    assert of_few_tokens([*quiet, 1.3, *quiet], 0.3, tokens=600.0)[40] == "act"
    assert set(of_few_tokens([0.03] * 80, 0.3)) == {"watch"}, "a gap at every step is no chance"
    assert set(of_few_tokens([*quiet, *[0.3] * 80], 0.3)[80:]) == {"act"}, "and is seen once the pool is of it"


def test_steps_prove_together_what_none_of_them_proves() -> None:
    level = [0.0004, 0.06] * 10
    frame = frame_of({"kl_k3": level, "kl_k3_se": [k * 0.7 for k in level]})
    grades = list(grade_signals(frame).filter(signal="kl_k3")["severity"])
    assert grades == ["healthy"] * 4 + ["healthy", "watch"] * 8, "a step beside them is no worse than its own value"


def test_a_step_without_a_number_of_tokens_is_graded_by_itself() -> None:
    frame = frame_of({"kl_k3": [0.0004, 0.5, 0.0004], "kl_k3_se": [1e-5] * 3, "tokens": [600.0, math.nan, 600.0]})
    assert list(grade_signals(frame).filter(signal="kl_k3")["severity"]) == ["healthy", "act", "healthy"]


def test_an_enormous_step_of_few_tokens_does_not_hide_those_after_it() -> None:
    assert set(of_few_tokens([1e200, *[0.03] * 80], 0.3)[40:]) == {"watch"}
    for tokens in (6.0, 600.0):
        grades = of_few_tokens([*[0.0004] * 20, math.inf, *[0.0004] * 20], math.nan, tokens)
        assert grades == ["healthy"] * 20 + ["act"] + ["healthy"] * 20, "an infinite mean is no chance"


@pytest.mark.parametrize(
    ("tokens", "gap", "z", "severity"),
    [
        (192.0, -0.03, -4.5, "healthy"),  # no surprise was drawn: the tokens understate their scatter
        (192.0, 0.03, 4.5, "watch"),  # a surprise that was drawn is part of the scatter
        (20_000.0, -0.03, -12.0, "watch"),  # so many tokens would have had some
        (20_000.0, -0.3, -30.0, "act"),
    ],
)
def test_a_policy_near_certainty_is_seldom_surprised(tokens: float, gap: float, z: float, severity: str) -> None:
    frame = frame_of({"surprisal_gap": [gap], "surprisal_gap_z": [z], "tokens": [tokens]})
    assert list(grade_signals(frame).filter(signal="surprisal")["severity"]) == [severity]


def test_a_rise_over_the_floor_counts_only_on_adjacent_steps() -> None:
    level = [0.002] * 3 + [0.05] + [0.002] * 3 + [0.05, 0.06] + [0.002]
    frame = frame_of({"kl_k3": level, "kl_k3_se": [k / 100 for k in level]})
    graded = grade_signals(frame).filter(signal="kl_k3_over_floor")
    assert graded["severity"].to_list() == ["healthy"] * 7 + ["act", "act"] + ["healthy"]


def test_a_gap_that_falls_from_the_first_steps_on_has_not_grown() -> None:
    level = [0.02, 0.005, 0.0001, 0.0001, 0.02, 0.02]
    graded = grade_signals(frame_of({"kl_k3": level, "kl_k3_se": [k / 100 for k in level]}))
    grown = graded.filter(signal="kl_k3_over_floor")
    assert grown["severity"].to_list() == ["healthy"] * 4 + ["act"] * 2
    assert graded.filter(signal="kl_k3")["severity"].to_list() == ["watch"] + ["healthy"] * 3 + ["watch"] * 2


def test_a_rise_that_stays_far_below_any_harm_is_not_graded() -> None:
    level = [1e-9] * 3 + [5e-4] * 5
    frame = frame_of({"kl_k3": level, "kl_k3_se": [k / 100 for k in level]})
    assert set(grade(frame)["severity"]) == {"healthy"}


def test_the_floor_is_the_lowest_of_the_first_steps_with_its_uncertainty() -> None:
    frame = frame_of({"kl_k3": [0.004, 0.002, 0.003, 0.0001], "kl_k3_se": [0.0, 0.0, 0.0, 0.0]})
    assert floors(frame) == {"mismatch": pytest.approx(0.002)}


def test_non_finite_logprobs_are_graded_by_their_share() -> None:
    frame = frame_of({"kl_k3": [1e-3] * 3, "kl_k3_se": [1e-5] * 3, "non_finite": [1.0, 50.0, 500.0]})
    assert grade(frame)["severity"].to_list() == ["healthy", "watch", "act"]
    assert grade(frame)["signal"].to_list() == ["kl_k3", "non_finite", "non_finite"]


def test_a_sequence_level_weight_loss_is_at_most_watch() -> None:
    frame = frame_of({"kl_k3": [1e-3] * 2, "kl_k3_se": [1e-5] * 2, "ess_sequence": [1e-6] * 2})
    assert set(grade(frame)["severity"]) == {"watch"}


def test_the_verdict_names_signal_first_step_and_what_to_try() -> None:
    level = [0.002] * 4 + [0.3] * 3
    finding = verdict(grade(frame_of({"kl_k3": level, "kl_k3_se": [k / 100 for k in level]})))
    assert (finding.severity, finding.signal, finding.since_step) == (Severity.ACT, "kl_k3", 4)
    assert "since step 4" in finding.sentence
    assert "0.3 nats/token" in finding.evidence
    assert finding.meaning and finding.remedy


def test_the_verdict_is_since_the_first_step_out_of_bounds_not_the_first_at_its_grade() -> None:
    level = [0.002] * 3 + [0.012, 0.002, 0.012, 0.012, 0.3, 0.3, 0.3]
    finding = verdict(grade(frame_of({"kl_k3": level, "kl_k3_se": [k / 100 for k in level]})))
    assert finding.since_step == 5, "six times the floor is watch; step 3 stands alone"
    assert (finding.until_step, finding.now) == (None, Severity.ACT) and finding.when == "since step 5"


def test_nothing_on_record_is_no_evidence_of_health() -> None:
    empty = grade(pl.DataFrame({"step": []}, schema={"step": pl.Int64}))
    finding = verdict(empty)
    assert finding.confidence == "low"
    assert finding.word == "not measured" and not finding.is_healthy


def test_readings_have_three_digits_whatever_their_size() -> None:
    row = {"gap": "mismatch", "floor": None, "at_least": False}
    signals = {signal.name: signal for signal in SIGNALS}
    said = [reading(signals["mean_weight"], {**row, "value": value}) for value in (1.0213, 12_345.678, 0.0004217)]
    assert [words.split(" is ")[1] for words in said] == ["1.02, not 1", "12,300, not 1", "0.000422, not 1"]
    said = [reading(signals["surprisal"], {**row, "value": value}) for value in (0.42, -1.2345)]
    assert [words.split(" is ")[1] for words in said] == ["+0.42 nats", "−1.23 nats"]


def test_every_signal_says_its_source() -> None:
    assert all(signal.source and signal.meaning and signal.remedy for signal in SIGNALS)
    assert len({signal.name for signal in SIGNALS}) == len(SIGNALS)


def test_chi_squared_says_at_least_where_the_tail_is_not_known() -> None:
    frame = frame_of({"ess_token": [0.01, 0.01], "ess_token_se": [0.001, math.nan]})
    signal = next(one for one in SIGNALS if one.name == "chi2_of_ess_token")
    rows = grade_signals(frame).filter(signal=signal.name).iter_rows(named=True)
    assert [reading(signal, row) for row in rows] == [
        "mismatch: the effective sample size is 0.01 of the tokens",
        "mismatch: the effective sample size is at most 0.01 of the tokens",
    ]


def test_a_large_gap_is_said_to_have_more_than_one_cause_and_how_to_tell_them_apart() -> None:
    meaning = next(signal for signal in SIGNALS if signal.name == "kl_k3").meaning
    reading = next(metric for metric in METRICS if metric.name == "kl_k3").bands[-1].reading
    assert all(cause in meaning for cause in ("old", "other inputs", "lag 0", "after a sync"))
    assert "stale" in reading and "wrong input" in reading


@pytest.mark.parametrize(("tokens", "grade"), [(32.0, "healthy"), (5000.0, "act")])
def test_a_step_of_few_tokens_is_no_evidence_of_growth(tokens: float, grade: str) -> None:
    level = [0.0006, 0.0005, 0.0007, 0.0205, 0.0207]
    frame = frame_of({"kl_k3": level, "kl_k3_se": [k / 20 for k in level], "tokens": [tokens] * 5})
    graded = grade_signals(frame).filter(signal="kl_k3_over_floor")
    assert graded["severity"].to_list()[-1] == grade


def test_a_z_of_few_tokens_counts_for_less() -> None:
    # Four tokens that are nearly equal have a z of 400 once in a long run.
    for tokens, z, word in ((40.0, -9.0, "healthy"), (4.0, -400.0, "healthy"), (2000.0, -9.0, "act")):
        frame = frame_of({"surprisal_gap": [-1.39] * 2, "surprisal_gap_z": [z] * 2, "tokens": [tokens] * 2})
        assert grade_signals(frame).filter(signal="surprisal")["severity"].to_list() == [word] * 2


def test_a_correlation_is_graded_with_its_sampling_error() -> None:
    assert not correlated(logprob_correlation=0.89, kl_k2=0.4, kl_k3=0.4).is_empty()
    assert correlated(logprob_correlation=0.89, kl_k2=0.4, kl_k3=0.4, tokens=300.0).is_empty()
