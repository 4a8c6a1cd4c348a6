"""The bank: some of its runs are scored here, all by `make bank`; the thresholds are what was reached, and only tighten."""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import ROOT
from support.sizes import FULL

from bank import score
from bank.accepted import ACCEPTED, HEALTHY, truth
from bank.case import DATA, Case, families, read, write
from bank.network import Reading, Rows, Sampling, Shape, Weights, log_softmax, passed, rounded, weights_of
from bank.record_faults import filled
from bank.score import RESULTS, Score, cases_of, found_in, interval, results, scored_all, summary
from bank.simulation import Fault, Job, simulated
from bank.weight_faults import version_lag
from ratioscope.metrics.diagnosis.catalogue import CAUSES

EVERY, FEWER = 10, 31
"""`make test-release` scores one run in EVERY, `make test` one in FEWER."""
MOST = {"wrong at high": 0.015, "healthy not calm": 0.14}
"""Shares of the faulty and of the healthy runs: a sample has few of either. Only to be tightened."""
LEAST = {"coverage": 0.78}


@cache
def scores(full: bool) -> tuple[Score, ...]:
    """The scores of one run in EVERY of each family, or in FEWER."""
    every = EVERY if full else FEWER
    return tuple(scored_all([case for family in found_in(DATA) for case in cases_of(family, DATA, every)], 1))


def test_the_bank_takes_at_most_20_megabytes_and_has_families_and_300_odd_healthy_runs() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir()) <= 20_000_000
    assert {"agentic", "odd", "recurrent", "smollm2"} <= {*found_in(DATA)}
    assert len(read("odd")) >= 300


@pytest.mark.parametrize("family", families())
def test_a_case_says_what_it_is(family: str) -> None:
    for case in read(family, every=EVERY):
        assert case.name.startswith(f"{family}.") and case.family == family
        assert case.fault in ACCEPTED and case.side in ("engine", "trainer", "neither")
        assert (case.fault == HEALTHY) == (case.side == "neither") == (case.strength == "none")
        assert case.injected and case.tokens > 0


def test_every_right_cause_is_in_the_catalogue() -> None:
    known = {cause.code for cause in CAUSES}
    for fault, own in ACCEPTED.items():
        assert own.first | own.generic <= known, fault
        assert bool(own.first) == (fault != HEALTHY) and not own.first & own.generic, fault


def test_generic_causes_count_only_where_the_record_cannot_say_more() -> None:
    assert "different_weights" not in truth("sync_broke", decided=True)
    assert "different_weights" in truth("sync_broke", decided=False)


def test_few_answers_are_wrong_with_high_confidence() -> None:
    f = summary(scores(FULL))
    assert f["high wrong"] <= MOST["wrong at high"] * f["faulty"], "\n".join(score.wrong(scores(FULL)))


def test_few_healthy_runs_have_a_cause_or_are_not_green() -> None:
    f = summary(scores(FULL))
    healthy = [each for each in scores(FULL) if each.fault == HEALTHY]
    assert f["healthy not calm"] <= MOST["healthy not calm"] * len(healthy), "\n".join(score.wrong(healthy))


def test_the_truth_is_mostly_in_the_first_set() -> None:
    f = summary(scores(FULL))
    assert f["coverage"] >= LEAST["coverage"], "\n".join(score.wrong(scores(FULL)))


def test_the_results_on_file_are_of_the_runs_in_the_bank() -> None:
    names = [case.name for family in found_in(DATA) for case in cases_of(family, DATA)]
    assert [each.name for each in results(RESULTS)] == names


def test_the_page_shows_the_results_on_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import _bank  # type: ignore[import-not-found]  # the path has just been added

    monkeypatch.delitem(sys.modules, "_bank")
    page = (ROOT / "docs" / "diagnosis.md").read_text()
    assert "\n".join(_bank.page(results(RESULTS))) in page, "run make docs"


def case_of_two_steps() -> Case:
    job = Job(Shape(vocab=60, hidden=12), 3, steps=2, groups=2, samples=2, response=6, turns=2)
    run = simulated(job, Fault())
    return Case(
        "recurrent.none.none.0",
        "recurrent",
        HEALTHY,
        "neither",
        "none",
        "nothing",
        False,
        {"a": 1},
        run.logs,
        [(0, "sync", {"version": 1})],
    )


def test_a_case_is_read_as_it_was_written(tmp_path: Path) -> None:
    case = case_of_two_steps()
    write("own", [case, case_named("second")], tmp_path)
    first, second = read("own", tmp_path)
    assert (first.name, first.config, first.events, second.name) == (case.name, case.config, case.events, "second")
    for own, back in zip(case.logs, first.logs, strict=True):
        assert {name for name, value in own.items() if value is not None} == set(back)
        for name in ("rollout_logprobs", "old_logprobs", "mask", "token_ids"):
            assert all(np.array_equal(a, b) for a, b in zip(own[name], back[name], strict=True)), name
    assert len(read("own", tmp_path, every=2)) == 1


def case_named(name: str) -> Case:
    return Case(**{**vars(case_of_two_steps()), "name": name})


def test_a_simulation_is_the_same_each_time() -> None:
    first, second = (case_of_two_steps().logs[1]["rollout_logprobs"] for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("first_step", [0, 1])
def test_the_versions_on_record_are_those_that_sampled(first_step: int) -> None:
    job, fault, _ = version_lag(Job(first_step=first_step), (0.01, 3), np.random.default_rng(0))
    for step in range(job.steps):
        numbers: Any = range(step + 1)  # each version of the weights is its own number here
        assert fault.versions(job.first_step + step, 16) == fault.engine(numbers, step)


def test_a_run_of_missing_log_probs_lacks_one_of_a_sampled_token_however_few_chance_takes() -> None:
    job = Job(Shape(vocab=60, hidden=12), 3, steps=2, groups=2, samples=2, response=6, turns=2)
    job, fault, _ = filled(float("nan"))(job, 1e-3, np.random.default_rng(1))
    logs = simulated(job, fault).logs
    lost = [
        np.isnan(own[mask]).sum()
        for log in logs
        for own, mask in zip(log["rollout_logprobs"], log["mask"], strict=True)
    ]
    assert 1 <= sum(lost) <= 2


def rows_of(seed: int = 0, sequences: int = 64, tokens: int = 12) -> Rows:
    rng = np.random.default_rng(seed)
    return Rows.of([[1, *rng.integers(4, 60, 5).tolist()] for _ in range(sequences)], np.full((sequences, tokens), -1))


@pytest.mark.parametrize("gated", [True, False])
def test_the_engine_and_the_trainer_agree_where_nothing_is_wrong(gated: bool) -> None:
    shape = Shape(vocab=60, gated=gated)
    weights = weights_of(shape, np.random.default_rng(1))
    made = passed(shape, weights, Reading(), rows_of(), np.random.default_rng(2), sampling=Sampling())
    again = passed(
        shape, weights, Reading(), Rows(rows_of().prompts, rows_of().start, made.tokens), np.random.default_rng(3)
    )
    assert np.array_equal(made.logps, again.logps)


def test_tokens_are_drawn_from_the_log_probs_that_are_reported() -> None:
    """The mean of -log p less the entropy has mean 0, and the mean weight of a wrong policy is 1."""
    shape = Shape(vocab=60)
    weights, other = (weights_of(shape, np.random.default_rng(seed)) for seed in (1, 2))
    made = passed(shape, weights, Reading(), rows_of(0, 2000), np.random.default_rng(2), sampling=Sampling())
    surprise = -made.logps - made.entropy
    assert abs(surprise.mean()) < 4 * surprise.std() / np.sqrt(surprise.size)
    off: Weights = {name: 0.9 * weights[name] + 0.1 * other[name] for name in weights}
    wrong = passed(
        shape,
        off,
        Reading(),
        Rows(rows_of(0, 2000).prompts, rows_of(0, 2000).start, made.tokens),
        np.random.default_rng(3),
    )
    weight = np.exp(wrong.logps - made.logps)
    assert abs(weight.mean() - 1) < 4 * weight.std() / np.sqrt(weight.size)


def test_padding_changes_nothing_unless_it_is_seen() -> None:
    shape = Shape(vocab=60)
    weights, rng = weights_of(shape, np.random.default_rng(1)), np.random.default_rng(2)
    forced = rng.integers(4, 60, (2, 6))
    alone = passed(shape, weights, Reading(), Rows.of([[1, 9, 8]], forced[:1]), rng)
    beside = Rows.of([[1, 9, 8], [1, 9, 8, 7, 6, 5, 9, 4]], forced)
    padded = passed(shape, weights, Reading(), beside, rng)
    assert np.allclose(alone.logps[0], padded.logps[0], atol=1e-5)
    seen = passed(shape, weights, Reading(sees_padding=True), beside, rng)
    assert np.abs(seen.logps[0] - padded.logps[0]).max() > 1e-3 and np.allclose(
        seen.logps[1], padded.logps[1], atol=1e-5
    )


@given(st.floats(-1e6, 1e6, width=32).filter(lambda x: abs(x) > 1e-30), st.integers(3, 23))
def test_a_rounded_number_is_the_nearest_with_so_many_bits(x: float, bits: int) -> None:
    found = float(rounded(np.array([x], np.float32), bits)[0])
    mantissa, exponent = np.frexp(np.float64(x))
    assert found == np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(top_k=2), [0, 1]),
        (Sampling(top_p=0.6), [0, 1]),
        (Sampling(min_p=0.5), [0, 1]),
        (Sampling(banned=(0,)), [1, 2, 3]),
    ],
)
def test_truncation_leaves_the_likeliest_tokens(sampling: Sampling, kept: Sequence[int]) -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05]], np.float32))
    p = np.exp(log_softmax(sampling.logits(logits, 0, np.zeros((1, 4), bool))))[0]
    assert np.flatnonzero(p > 0).tolist() == list(kept) and p.sum() == pytest.approx(1)


def test_an_interval_holds_the_rate_and_narrows() -> None:
    low, high = interval(3, 300)
    assert low < 0.01 < high and interval(0, 300)[0] == 0 and interval(0, 300)[1] < 0.013


def test_a_score_counts_the_truth_in_the_first_set_as_right() -> None:
    common: dict[str, Any] = {
        "family": "own",
        "side": "engine",
        "strength": "strong",
        "decided": True,
        "tokens": 9,
        "kl_k3": 0.1,
        "severity": "",
    }
    right = Score(
        name="a",
        fault="sync_broke",
        right=["sync_broke"],
        named=[("never_synced", "high", 1.0)],
        first=["never_synced", "sync_broke"],
        **common,
    )
    wrong = Score(
        name="b",
        fault="sync_broke",
        right=["sync_broke"],
        named=[("shifted", "high", 1.0)],
        first=["shifted"],
        **common,
    )
    silent = Score(name="c", fault="sync_broke", right=["sync_broke"], **common)
    f = summary([right, wrong, silent])
    assert (f["high right"], f["high wrong"], f["no cause"], f["set size"]) == (1, 1, 1, 1.5)
    assert f["coverage"] == pytest.approx(1 / 3) and f["first"] == 0 and f["decided high"] == pytest.approx(1 / 3)
