"""What the diagnosis says of one fault at a time in a tiny model, and of healthy runs of odd shape that come close to a proof."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mechanisms import FAULTS, HEALTHY, Reader, Shape, run, two
from support.sizes import examples

from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.diagnosis.causes.numerics import is_noise, noise
from ratioscope.metrics.diagnosis.causes.records import _found_fillers
from ratioscope.metrics.diagnosis.confidence import CERTAIN
from ratioscope.metrics.diagnosis.decomposition import MOST_RIVALS, diagnose
from ratioscope.metrics.diagnosis.evidence import Evidence
from ratioscope.metrics.diagnosis.fits import repeats
from ratioscope.metrics.diagnosis.wake import wake

SMALL = Shape(steps=5, rows=32, length=48)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", [name for name in HEALTHY if name != "greedy"])
def test_a_healthy_run_of_odd_shape_has_no_cause_that_is_more_than_low(name: str, seed: int) -> None:
    found = diagnose(HEALTHY[name](replace(SMALL, seed=seed)))
    assert [item.cause.code for item in found.likely if item.confidence != "low"] == [], found.answer
    assert not any(item.cause.code in CERTAIN for item in found.likely)


@pytest.mark.parametrize("temperature", [1.0, 0.3, 0.1, 0.05, 0.02])
def test_ties_of_coarse_logits_are_no_fillers_and_no_grammar_at_any_temperature(temperature: float) -> None:
    both = two({"bf16": True, "temperature": temperature}, {"noise": 0.03, "temperature": temperature})
    evidence = run(both, replace(SMALL, seed=3))
    assert list(_found_fillers(evidence)) == []
    for code in CERTAIN:
        if evidence.has(*CAUSE[code].needs):
            assert not CAUSE[code].test(evidence).holds, code


@pytest.mark.parametrize("value", [0.0, -1.0, -100.0, 1.0])
def test_a_constant_in_place_of_log_probs_is_found_beside_a_noisy_gap(value: float) -> None:
    evidence = run(two({"noise": 0.1}, {"noise": 0.1}), SMALL)
    missing = np.random.default_rng(1).random(len(evidence)) < 0.03
    found = list(_found_fillers(evidence.with_earlier(np.where(missing, value, evidence.earlier))))
    assert [(side, number) for side, number, _ in found] == [("sampler", value)]


def test_one_number_that_no_sampler_can_draw_is_a_filler_and_one_of_the_trainer_is_not() -> None:
    evidence = run(two({"noise": 0.1}, {"noise": 0.1}), SMALL)
    for value, is_filler in ((-9999.0, True), (-105.0, True), (-50.0, False)):
        with_one = np.where(np.arange(len(evidence)) == 40, value, evidence.earlier)
        found = [(side, number) for side, number, _ in _found_fillers(evidence.with_earlier(with_one))]
        assert found == [("sampler", value)] * is_filler, value
    # the trainer may leave tokens out by a mask of its own
    later = np.where(np.arange(len(evidence)) == 40, -9999.0, evidence.later)
    assert list(_found_fillers(replace(evidence, later=later))) == []


def test_a_single_0_on_a_side_that_is_never_sure_is_a_filler() -> None:
    evidence = run(two({"noise": 0.1}, {"noise": 0.1}), SMALL)
    unsure = evidence.kept(np.maximum(evidence.earlier, evidence.later) < -0.05)
    at = np.arange(len(unsure)) == int(unsure.later.argmin())
    with_one = unsure.with_earlier(np.where(at, 0.0, unsure.earlier))
    assert [(side, value, int(own.sum())) for side, value, own in _found_fillers(with_one)] == [("sampler", 0.0, 1)]
    result = CAUSE["filler_values"].test(with_one)
    assert result.doubts and result.share is not None and result.share.share > 0.1, "its part of the gap is told"
    # a policy that comes near certainty elsewhere may be certain here
    sure = with_one.earlier.copy()
    sure[np.flatnonzero(~at)[0]] = -1e-5
    assert list(_found_fillers(with_one.with_earlier(sure))) == []


def _of_other_ids(evidence: Evidence, with_wake: bool) -> Evidence:
    """A token of each sequence is another id for the trainer, which reads those behind it after that one."""
    draws = np.random.default_rng(0)
    behind = evidence.position - draws.integers(4, 20, evidence.rows)[evidence.row_codes]
    wake = np.where(
        (behind > 0) & with_wake, draws.normal(0, 1.0, len(behind)) * np.exp(-np.maximum(behind, 0) / 4), 0.0
    )
    later = np.where(behind == 0, evidence.later - 6.0, evidence.later + wake)
    return replace(evidence, later=np.minimum(later, 0.0))


def test_an_id_that_was_changed_shows_by_its_wake_and_a_token_that_is_off_alone_has_none() -> None:
    plain = run(two({"noise": 0.02}, {"noise": 0.02}), replace(SMALL, length=24))
    found = diagnose(_of_other_ids(plain, with_wake=True))
    first = found.likely[0]
    assert first.cause.code == "retokenised" and first.confidence != "high", found.answer
    assert wake(plain) is None and wake(_of_other_ids(plain, with_wake=False)) is None


def test_numbers_that_were_moved_alike_are_not_what_a_ban_leaves() -> None:
    for size, part in ((0.05, 0.02), (0.05, 0.1), (0.05, 0.3), (0.005, 0.03), (0.005, 0.1)):
        plain = run(two({"noise": size}, {"noise": size}), SMALL)
        moved = diagnose(replace(plain, later=plain.later - part))
        assert not {item.cause.code for item in moved.likely} & {"banned_tokens", "grammar"}, moved.answer
        for item in (each for each in moved.likely if each.cause.code == "truncation"):
            assert "moved_log_probs" in item.instead and item.confidence != "high", moved.answer


def test_lists_that_have_nothing_to_do_with_each_other_are_neither_shifted_nor_drawn_at_random() -> None:
    plain = run(two({"noise": 0.02}, {"noise": 0.02}), SMALL)
    order = np.lexsort((-plain.position, plain.row))  # each list back to front
    found = diagnose(replace(plain, later=plain.later[order]))
    assert [item.cause.code for item in found.likely if item.confidence != "low"] == [], found.answer


@pytest.mark.parametrize("with_texts_of_tools", [True, False])
def test_swapped_lists_of_conversations_are_found_by_place_or_by_sampled_token(with_texts_of_tools: bool) -> None:
    draws, rows = np.random.default_rng(0), 32
    later = draws.exponential(1.0, (rows, 40))
    texts = draws.integers(3, 30, rows)  # of eight tokens each, not sampled
    kept = (np.arange(40) < texts[:, None]) | (np.arange(40) >= texts[:, None] + 8)
    own = np.where(kept, -later + draws.normal(0, 0.01, later.shape), 0.0)
    source = np.where(np.arange(rows) < 8, np.roll(np.arange(8), 1).tolist() + [0] * (rows - 8), np.arange(rows))
    row, position = np.nonzero(kept)
    swapped = own[source][kept] if with_texts_of_tools else own[kept].reshape(rows, 32)[source].ravel()
    evidence = Evidence(swapped, -later[kept], row, position, {"step": 0 * row}, {})
    found = diagnose(evidence)
    assert [(item.cause.code, item.confidence) for item in found.likely] == [("permuted_rows", "high")], found.answer
    assert found.likely[0].parameters["sequences"] == "25%" and found.rest < 1e-3
    assert not CAUSE["permuted_rows"].test(evidence.with_earlier(own[kept])).holds


def test_a_trainer_that_draws_at_random_is_seen_by_the_same_token_after_the_same_ids() -> None:
    found = diagnose(FAULTS["dropout of the trainer"](Shape()))
    assert [(item.cause.code, item.confidence) for item in found.likely] == [("train_mode", "high")], found.answer
    for other in ("dropout of the engine", "adapter missing", "never synced", "position ids", "packing leak"):
        assert not CAUSE["train_mode"].test(FAULTS[other](Shape())).holds, other


@examples(25)
@given(st.floats(0.05, 1.0), st.floats(0.05, 1.0), st.integers(0, 1000))
def test_the_variance_between_equal_tokens_is_that_of_each_side(first: float, second: float, seed: int) -> None:
    """Oracle: noise of known size on each side has that share of the mean squared log-ratio."""
    draws = np.random.default_rng(seed)
    row, position = np.repeat(np.arange(400), 3), np.tile(np.arange(3), 400)
    base = -1.0 - position
    facts = {"group": row // 100, "token": np.full(1200, 7), "step": np.zeros(1200, np.int64)}
    earlier, later = (base + size * draws.normal(size=1200) for size in (first, second))
    found = repeats(Evidence(earlier, later, row, position, facts, {"group": ("a", "b", "c", "d")}))
    assert found.tokens == 1200 - 12 and found.prompts == 4
    total = first**2 + second**2
    assert found.earlier == pytest.approx(first**2 / total, abs=0.08)
    assert found.later == pytest.approx(second**2 / total, abs=0.08)


def test_tokens_behind_the_text_of_a_tool_have_no_prefix_in_common() -> None:
    """Ten responses have the same ids, and texts that nobody scored between them: dropout or another text gives the variance."""
    row, position = np.repeat(np.arange(10), 8), np.tile([0, 1, 2, 3, 9, 10, 11, 12], 10)
    later = -1.0 - np.random.default_rng(0).random(80)
    facts = {"group": np.zeros(80, np.int64), "token": np.full(80, 7), "step": np.zeros(80, np.int64)}
    whole = Evidence(np.full(80, -1.0), later, row, np.tile(np.arange(8), 10), facts, {"group": ("a",)})
    assert repeats(whole).tokens == 8 * 9 and repeats(replace(whole, position=position)).tokens == 4 * 9


@pytest.mark.parametrize("seed", [0, 1])
def test_few_ids_with_other_rows_are_named_and_a_ban_by_them_is_not_sure(seed: int) -> None:
    found = diagnose(FAULTS["head rows"](Shape(seed=seed)))
    first = found.likely[0]
    assert "token_rows" in (first.cause.code, *first.instead) and first.confidence != "high", found.answer
    assert CAUSE["token_rows"].test(FAULTS["embedding rows"](Shape())).holds
    for other in ("temperature", "soft cap", "never synced", "dropout of the trainer", "adapter missing"):
        assert not CAUSE["token_rows"].test(FAULTS[other](Shape(seed=seed))).holds, other


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_ban_of_the_end_token_is_no_grammar_and_no_other_route(seed: int) -> None:
    found = diagnose(FAULTS["min tokens"](Shape(seed=seed)))
    assert found.likely[0].cause.code == "banned_tokens", found.answer


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["packing leak", "other prompt", "padding read"])
def test_a_gap_that_fades_from_the_prompt_on_is_no_switch_and_no_chunk(name: str, seed: int) -> None:
    evidence = FAULTS[name](Shape(seed=seed))
    assert not CAUSE["switch_inside"].test(evidence).holds and not CAUSE["chunk_boundary"].test(evidence).holds
    sure = [item.cause.code for item in diagnose(evidence).likely[:1] if item.confidence == "high"]
    assert sure in ([], ["different_prompt"]) if name == "other prompt" else sure == []


@pytest.mark.parametrize("each", ["switch at a token of the step", "switch at a token of each prompt"])
def test_a_switch_inside_is_in_the_first_set(each: str) -> None:
    first = diagnose(FAULTS[each](Shape())).likely[0]
    assert "switch_inside" in (first.cause.code, *first.instead) and first.confidence != "high"


@pytest.mark.parametrize("name", FAULTS)
def test_a_first_set_has_at_most_three_causes(name: str) -> None:
    assert all(len(item.rivals) <= MOST_RIVALS for item in diagnose(FAULTS[name](Shape())).likely)


def test_a_course_that_fades_along_the_responses_may_be_of_old_keys_or_a_switch() -> None:
    """Weights that drift apart, read by the first tokens alone in the second run."""
    drifts, faded = FAULTS["never synced"](Shape()), FAULTS["never synced"](Shape())
    part = faded.log_ratio * np.exp(-faded.position / 12)
    faded = faded.with_earlier(faded.later - part)
    assert diagnose(drifts).likely[0].rivals == ()
    found = diagnose(faded).likely[0]
    assert {"stale_prefix", "switch_inside"} <= {found.cause.code, *found.instead} and found.confidence == "low"


def test_bad_prompts_may_be_of_a_replica_or_a_packed_row_unless_these_are_on_record() -> None:
    evidence = FAULTS["replica without a label"](Shape())
    assert {"stuck_replica", "packing_leak"} == {*diagnose(evidence).likely[0].instead}
    packed = replace(evidence, facts={**evidence.facts, "pack": np.zeros(len(evidence), np.int64)})
    assert diagnose(packed).likely[0].instead == ("stuck_replica",)


@pytest.mark.parametrize("name", ["position ids", "adapter missing"])
def test_the_place_alone_names_no_prompt(name: str) -> None:
    likely = diagnose(FAULTS[name](Shape())).likely
    assert all(item.confidence == "low" for item in likely if item.cause.code in ("different_prompt", "stale_prefix"))


def test_a_large_gap_that_fades_is_of_other_weights_or_of_another_prompt() -> None:
    plain = run(two({"noise": 0.02}, {"noise": 0.02}), SMALL)
    size = 1.2 * (1.0 + plain.position) ** -0.5
    apart = size * np.random.default_rng(0).normal(size=len(plain)) - size**2 / 2  # the mean weight is 1
    result = CAUSE["different_weights"].test(replace(plain, later=plain.earlier + apart))
    assert result.holds and result.alike == ("different_prompt",)
    assert CAUSE["different_weights"].test(run(two({"noise": 0.3}), SMALL)).alike == ()


def test_a_soft_cap_is_no_sure_temperature() -> None:
    for cap in (20.0, 30.0, 50.0, 80.0):
        found = diagnose(run(two(None, {"cap": cap}), Shape()))
        assert all(i.confidence != "high" for i in found.likely if i.cause.code == "trainer_temperature"), found.answer
    assert diagnose(FAULTS["temperature"](Shape())).likely[0].confidence == "high"


def test_rounding_is_said_only_of_a_regular_gap() -> None:
    healthy = HEALTHY["plain"](Shape(seed=5))
    assert diagnose(healthy).rest_is_noise
    x, draws = healthy.log_ratio, np.random.default_rng(3)
    shapes = {
        "equal to the last bit": np.where(draws.random(len(x)) < 0.05, x, 0.0),
        "along the positions": x * np.exp(np.log(9) * (healthy.position / 64 - 0.5)) / 2,
        "are negative": -np.abs(x),
        "heavy": x * draws.standard_t(2, len(x)) * 0.5,
    }
    for words, other in shapes.items():
        evidence = healthy.with_earlier(healthy.later - other)
        shape = noise(evidence)
        assert any(words in each for each in shape.irregular), (words, shape)
        assert not is_noise(evidence.mean(evidence.distance), shape)
    for other in (shapes["equal to the last bit"], shapes["are negative"]):
        found = diagnose(healthy.with_earlier(healthy.later - other))
        assert "no pattern" not in found.rest_in_words and "not as regular as rounding is" in found.answer


def test_one_outlying_token_among_thousands_leaves_the_gap_rounding_noise() -> None:
    healthy = HEALTHY["plain"](Shape(seed=6))
    at = np.arange(len(healthy)) == int(np.argmin(healthy.later))
    found = diagnose(healthy.with_earlier(healthy.earlier + np.where(at, -2.0, 0.0)))
    assert found.rest_is_noise and "but for 1 outlying token" in found.answer


@pytest.mark.parametrize("seed", range(3))
def test_one_token_that_the_sampler_was_sure_of_is_no_cause_of_a_short_run(seed: int) -> None:
    healthy = HEALTHY["plain"](Shape(steps=5, rows=8, length=16, seed=seed))
    at = np.arange(len(healthy)) == int(np.argmin(healthy.later))
    found = diagnose(healthy.with_earlier(np.where(at, -0.1, healthy.earlier)))
    assert found.gap > 0.003 and not found.likely, found.answer


def test_a_gap_that_grows_over_the_steps_is_not_told_as_noise_without_a_pattern() -> None:
    growing = run(
        lambda w, first, step, draws: (Reader(w, noise=0.004 * 1.8**step), Reader(w, noise=0.004 * 1.8**step)),
        Shape(steps=8),
    )
    found = diagnose(growing)
    assert "no pattern" not in found.rest_in_words or found.likely, found.answer
