"""Courses over the steps: simulated ones with known noise are told apart or named together, and a setting keeps its size."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sizes import examples

from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.diagnosis.causes.courses import history_of
from ratioscope.metrics.diagnosis.causes.over_steps import never_synced
from ratioscope.metrics.diagnosis.constancy import moved
from ratioscope.metrics.diagnosis.decomposition import diagnose
from ratioscope.metrics.diagnosis.evidence import Evidence
from ratioscope.metrics.diagnosis.history import Course, History, course
from ratioscope.metrics.diagnosis.on_record import OnRecord
from ratioscope.metrics.diagnosis.sharpening import sharpening
from ratioscope.metrics.diagnosis.step_noise import log_error

FLOOR = 1e-4
GROWTHS = ("random walk", "directed", "saturating")
"""Laws of a squared distance that grows since an onset."""


def simulated(kind: str, steps: int, seed: int, scatter: float) -> tuple[History, int]:
    """(a history of this course with lognormal noise, its onset). The laws are those of physics, not those of the fit."""
    draws = np.random.default_rng(seed)
    at, onset = np.arange(steps), int(draws.integers(max(3, steps // 4), 3 * steps // 4))
    since = np.maximum(at - onset + 1, 0) / steps
    height = FLOOR * np.exp(draws.uniform(np.log(50), np.log(2000)))
    levels = {
        "flat": np.full(steps, FLOOR),
        "jump": np.where(at >= onset, height, FLOOR),
        "random walk": FLOOR + height * since,
        "directed": FLOOR + height * since**2,
        "saturating": FLOOR + height * -np.expm1(-8 * since),
        "never synced": FLOOR + height * at / steps,
        "an adapter from zero": np.where(at == 0, FLOOR / 100, height * np.maximum(at, 1) / steps),
        "sawtooth": FLOOR + height * (at % 6) / 6,
    }
    level = levels[kind] * np.exp(scatter * draws.normal(size=steps))
    return History(at, level, np.full(steps, 0.8 * scatter), np.full(steps, 3000.0)), onset


def name(own: Course) -> str:
    return "from start" if own.from_start else own.kind


def told(own: Course) -> set[str]:
    return {name(own), *map(name, own.alternatives)}


RIGHT = {"flat": "flat", "jump": "jump", "sawtooth": "sawtooth", **dict.fromkeys(GROWTHS, "rise")}


@pytest.mark.parametrize("steps", [20, 60])
@pytest.mark.parametrize("scatter", [0.1, 0.3])
def test_a_simulated_course_is_in_the_set_and_mostly_alone(steps: int, scatter: float) -> None:
    """The confusion of courses: rows are what was simulated, and the truth is told in nine of ten, and first in three of four."""
    for kind in (*RIGHT, "never synced", "an adapter from zero"):
        right = RIGHT.get(kind, "from start")
        found = [course(simulated(kind, steps, seed, scatter)[0]) for seed in range(20)]
        sets = [told(each) for each in found]
        assert sum(right in each for each in sets) >= 18, (kind, sets)
        assert sum(name(each) == right for each in found) >= 15, (kind, sets)
        assert np.mean([len(each) for each in sets]) <= 1.6, (kind, sets)


@pytest.mark.parametrize("kind", ["never synced", "an adapter from zero", *GROWTHS])
def test_a_growth_is_never_a_jump_that_stays(kind: str) -> None:
    for seed in range(30):
        found = course(simulated(kind, 30, seed, 0.2)[0])
        assert found.kind == "rise" or "rise" in {each.kind for each in found.alternatives}, seed


@pytest.mark.parametrize("kind", ["jump", "random walk", "saturating"])
def test_the_interval_of_the_onset_holds_it(kind: str) -> None:
    runs = [simulated(kind, 60, seed, 0.15) for seed in range(30)]
    found = [(course(known), onset) for known, onset in runs]
    assert sum(each.earliest <= onset <= each.latest for each, onset in found) >= 27
    assert np.median([each.latest - each.earliest for each, _ in found]) <= 4


@examples(25)
@given(
    kind=st.sampled_from(["flat", "jump", "random walk", "directed", "never synced", "sawtooth"]),
    seed=st.integers(0, 50), stride=st.integers(1, 1000), begin=st.integers(0, 10**6), size=st.floats(1e-4, 1e3),
)  # fmt: skip
def test_neither_the_unit_of_steps_nor_that_of_the_gap_changes_a_course(
    kind: str, seed: int, stride: int, begin: int, size: float
) -> None:
    known, _ = simulated(kind, 24, seed, 0.15)
    own = course(known)
    moved_ = course(replace(known, steps=known.steps * stride + begin, level=known.level * size))
    assert (moved_.kind, told(moved_)) == (own.kind, told(own))
    if own.kind != "flat":
        assert moved_.onset == own.onset * stride + begin
        assert moved_.factor == pytest.approx(own.factor, rel=1e-3)


@examples(25)
@given(kind=st.sampled_from(["flat", "jump", "random walk"]), seed=st.integers(0, 50))
def test_one_more_step_as_the_course_predicts_changes_no_name(kind: str, seed: int) -> None:
    known, _ = simulated(kind, 40, seed, 0.15)
    assert told(course(known)) & told(course(known.part(slice(None, -1))))


def test_a_level_that_one_sequence_has_alone_is_no_reset() -> None:
    sizes = np.array([3.8e-4, 4.6e-2, 2.9e-4, 3.2e-4, 3.7e-4, 3.5e-4, 2.5e-2, 3.1e-4])
    alone = sizes > 1e-3
    known = History(np.arange(8), sizes, np.where(alone, log_error(np.ones(8)), 0.2), np.full(8, 192.0))
    assert course(known).kind == "flat"
    assert course(replace(known, error=np.full(8, 0.2))).kind == "sawtooth"


def test_a_step_of_six_tokens_that_are_nearly_certain_is_no_reset() -> None:
    sizes = np.array([1e-4, 2e-4, 1e-4, 8e-8, 3e-4, 1e-4, 5e-8, 2e-4] * 2)
    for tokens, kind in ((6.0, "flat"), (600.0, "sawtooth")):
        assert course(History(np.arange(16), sizes, np.full(16, 0.5), np.full(16, tokens))).kind == kind


def test_three_steps_have_no_course() -> None:
    assert course(History(np.arange(3), np.array([1e-4, 1e-2, 1.0]), np.full(3, 0.1), np.full(3, 1e3))) == Course(
        "flat"
    )


def _evidence(
    sharper: np.ndarray, apart: np.ndarray, seed: int, rows: int = 16, length: int = 16, vocabulary: int = 60
) -> Evidence:
    """Tokens sampled from softmax(z), scored by softmax(sharper z + apart u) at each step; z and u are normal logits."""
    draws = np.random.default_rng(seed)
    size = rows * length
    parts = []
    for at, (scale, distance) in enumerate(zip(sharper, apart, strict=True)):
        z = 1.5 * draws.normal(size=(size, vocabulary))
        w = scale * z + distance * draws.normal(size=z.shape) + 0.003 * draws.normal(size=z.shape)
        p, q = (each - np.logaddexp.reduce(each, axis=1, keepdims=True) for each in (z, w))
        token = (p + draws.gumbel(size=p.shape)).argmax(axis=1)
        own = np.arange(size)
        entropy = -(np.exp(q) * q).sum(axis=1)
        parts.append((p[own, token], q[own, token], entropy, token, np.full(size, at)))
    earlier, later, entropy, token, step = (np.concatenate(each) for each in zip(*parts, strict=True))
    row = np.repeat(np.arange(rows * len(sharper)), length)
    facts = {"entropy": entropy, "token": token, "step": step}
    return Evidence(earlier, later, row, np.tile(np.arange(length), rows * len(sharper)), facts, {})


@settings(max_examples=8, deadline=None)
@given(temperature=st.floats(0.7, 1.5).filter(lambda t: abs(t - 1) > 0.05), seed=st.integers(0, 100))
def test_a_temperature_of_any_size_is_constant(temperature: float, seed: int) -> None:
    evidence = _evidence(np.full(8, 1 / temperature), np.zeros(8), seed)
    cause = CAUSE["trainer_temperature"]
    result = cause.test(evidence)
    assert result.holds and moved(cause, evidence, result) == ""
    assert float(result.parameters["temperature"]) == pytest.approx(1 / temperature, rel=0.05)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("begin", [0, 4])
def test_a_policy_that_learns_against_a_stale_engine_has_no_temperature(seed: int, begin: int) -> None:
    """It gets sharper than the other side, and apart from it, so that slope and correlation fall together."""
    since = np.maximum(np.arange(12) - begin, 0) / 11
    found = diagnose(_evidence(1 + 1.2 * since, 0.9 * since, seed))
    assert found.likely[0].cause.code in ("never_synced", "sync_broke"), found.answer
    assert "temperature" not in found.answer


def test_a_slope_that_moves_is_no_setting_even_if_the_two_sides_correlate() -> None:
    evidence = _evidence(np.linspace(1, 2.2, 12), np.zeros(12), 0)
    cause = CAUSE["trainer_temperature"]
    result = cause.test(evidence)
    assert result.holds and "moves over the steps" in moved(cause, evidence, result)
    later = _evidence(np.where(np.arange(12) < 5, 1.0, 0.8), np.zeros(12), 0)  # a setting that was changed at step 5
    assert moved(cause, later, cause.test(later)) == ""


def test_a_growth_of_the_usual_size_shows_beneath_few_tokens_with_most_of_k3() -> None:
    plain = _evidence(np.ones(12), np.geomspace(0.01, 0.15, 12), 0)
    draws = np.random.default_rng(1)
    rare = np.where(draws.random(len(plain)) < 0.01, draws.exponential(2.0, len(plain)), 0.0)
    heavy = plain.with_earlier(plain.earlier + rare)
    known = history_of(heavy)
    assert known is not None and course(known).kind == "flat"
    result = never_synced(heavy)
    # most rare tokens keep their part of the gap, so that the course explains a part of it alone
    part = plain.distance.sum() / heavy.distance.sum()
    assert result.holds and result.share is not None and 0.7 * part < result.share.share < 0.75
    still = _evidence(np.ones(12), np.full(12, 0.05), 0)
    assert not never_synced(still.with_earlier(still.earlier + rare)).holds


def test_a_jump_that_few_tokens_have_alone_is_no_load_of_wrong_weights() -> None:
    plain = _evidence(np.ones(12), np.full(12, 0.02), 0)
    rare = np.random.default_rng(1).random(len(plain)) < np.where(plain.facts["step"] > 6, 0.08, 0.0)
    test = CAUSE["corrupted_load"].test
    result = test(plain.with_earlier(plain.earlier - rare * 1.0))
    assert not result.holds and "only at rare tokens" in result.effect
    assert test(_evidence(np.ones(12), np.where(np.arange(12) > 6, 0.3, 0.02), 0)).holds


def test_a_small_gap_is_named_where_it_was_far_smaller_before() -> None:
    """Two sides in float32, and one of them with older weights since step 4; then the same gap at every step, as of 16 bits."""
    late = np.arange(12) >= 4
    sides = _evidence(np.ones(12), np.where(late, 0.008, 0.0), 0)
    exact = sides.with_earlier(np.where(late[sides.facts["step"]], sides.earlier, sides.later - 1e-4))
    assert exact.mean(exact.distance) < 1e-4
    assert diagnose(exact).likely[0].cause.code == "corrupted_load"
    assert not diagnose(_evidence(np.ones(12), np.full(12, 0.008), 0)).likely
    coarser = diagnose(_evidence(np.ones(12), np.where(late, 0.015, 0.0005), 0))
    assert coarser.likely[0].cause.code == "corrupted_load" and coarser.gap < 2e-4


def test_rounding_does_not_grow_while_no_weight_changes() -> None:
    grown = _evidence(np.ones(12), np.geomspace(0.01, 0.033, 12), 0)
    assert not CAUSE["ageing_state"].test(grown).holds
    result = CAUSE["ageing_state"].test(
        replace(grown, record=OnRecord(fixed_weights="the learning rate on record is 0"))
    )
    assert result.holds and "although the learning rate on record is 0" in result.effect


def test_a_sawtooth_is_of_missed_syncs_only_where_all_prompts_of_a_step_have_its_level() -> None:
    test, apart = CAUSE["missed_syncs"].test, np.tile([0.02, 0.4, 0.6], 4)
    plain = _evidence(np.ones(12), apart, 0)
    whole = replace(plain, facts={**plain.facts, "group": plain.row // 4})
    assert test(whole).holds and test(whole).alike == ()
    half = whole.with_earlier(whole.later - whole.log_ratio * np.where(whole.facts["group"] % 2, 1.0, 0.02))
    assert not test(half).holds and "the prompts of a step have several levels" in test(half).effect
    alone = replace(plain, facts={**plain.facts, "group": plain.row // 16})
    assert test(alone).holds and test(alone).alike == ("outlier_prompts",)
    lags = replace(whole, facts={**whole.facts, "lag": whole.facts["step"] % 3})
    assert "the version lag is tested instead" in test(lags).effect


@pytest.mark.parametrize("scale", [1.0, 1.5, 3.0])
def test_sharpening_is_the_scale_of_the_logits(scale: float) -> None:
    """The oracle scales the logits; the estimate reads entropies and log-probs alone."""
    draws = np.random.default_rng(0)
    z, parts = draws.normal(size=(4000, 60)), []
    for each in np.geomspace(1, scale, 10):
        p = each * z - np.logaddexp.reduce(each * z, axis=1, keepdims=True)
        token = (p + draws.gumbel(size=p.shape)).argmax(axis=1)
        parts.append((p[np.arange(4000), token], -(np.exp(p) * p).sum(axis=1)))
    later, entropy = (np.concatenate(each) for each in zip(*parts, strict=True))
    row = np.arange(len(later))
    facts = {"entropy": entropy, "step": np.repeat(np.arange(10), 4000)}
    found = sharpening(Evidence(later, later, row, np.zeros(len(row), np.int64), facts, {}))
    assert found == pytest.approx(np.log(scale), abs=0.06)


def test_rounding_that_grows_with_the_sharpness_is_no_missing_sync() -> None:
    """Both sides sharpen; K3 grows by the square of the sharpness, from rounding to coarser rounding."""
    draws, scales = np.random.default_rng(1), np.geomspace(1, 6, 12)
    parts = []
    for scale in scales:
        z = draws.normal(size=(512, 60))
        p, q = ((scale * (z + 0.008 * draws.normal(size=z.shape))) for _ in range(2))
        p, q = (each - np.logaddexp.reduce(each, axis=1, keepdims=True) for each in (p, q))
        token = (p + draws.gumbel(size=p.shape)).argmax(axis=1)
        own = np.arange(512)
        parts.append((p[own, token], q[own, token], -(np.exp(q) * q).sum(axis=1)))
    earlier, later, entropy = (np.concatenate(each) for each in zip(*parts, strict=True))
    row = np.repeat(np.arange(12 * 32), 16)
    facts = {"entropy": entropy, "step": np.repeat(np.arange(12), 512)}
    evidence = Evidence(earlier, later, row, np.tile(np.arange(16), 12 * 32), facts, {})
    assert not never_synced(evidence).holds
    assert not diagnose(evidence).likely


def test_what_is_ruled_out_by_another_course_has_one_reason() -> None:
    """Oracle: a jump of 200 times is no rise, and no bound at which a rise would show stands beside it."""
    jump = _evidence(np.ones(12), np.where(np.arange(12) > 5, 0.4, 0.02), 0)
    found = CAUSE["sync_broke"].test(jump)
    assert not found.holds and "and keeps its level" in found.effect and not found.would_show
    level = CAUSE["sync_broke"].test(_evidence(np.ones(12), np.full(12, 0.02), 0))
    assert not level.holds and "one level over all steps" in level.effect and "would show" in level.would_show
