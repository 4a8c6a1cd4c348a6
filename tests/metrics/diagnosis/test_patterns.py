"""The patterns that tell causes apart: where bad tokens stand, on which side of 0, and what stands between them."""

from dataclasses import replace

import numpy as np
import pytest

from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.diagnosis.causes import courses
from ratioscope.metrics.diagnosis.decomposition import diagnose
from ratioscope.metrics.diagnosis.evidence import Evidence
from ratioscope.metrics.diagnosis.fading import fades, is_less_sure
from ratioscope.metrics.diagnosis.history import Course
from ratioscope.metrics.diagnosis.share import share_explained
from ratioscope.metrics.diagnosis.subset_faults import _without_largest, ratio_of

ROWS, LENGTH = 60, 40


def gap(size: float = 0.03, seed: int = 0, steps: int = 5) -> Evidence:
    draws = np.random.default_rng(seed)
    row, position = np.repeat(np.arange(ROWS), LENGTH), np.tile(np.arange(LENGTH), ROWS)
    later = -draws.exponential(1.0, len(row))
    facts = {"step": row * steps // ROWS, "length": np.full(len(row), LENGTH)}
    return Evidence(later - draws.normal(0, size, len(row)), later, row, position, facts, {})


def test_sequences_that_repeat_another_one_are_no_further_evidence() -> None:
    """Oracle: with each sequence on record twice, every error is that of the sequences alone."""
    alone = gap(seed=9)
    row = np.concatenate([alone.row, alone.row + ROWS])
    facts = {name: np.tile(values, 2) for name, values in alone.facts.items()}
    sides = np.tile(alone.earlier, 2), np.tile(alone.later, 2)
    twice = Evidence(sides[0], sides[1], row, np.tile(alone.position, 2), facts, {})
    assert len(np.unique(twice.units)) == len(np.unique(alone.units)) == ROWS
    bad = alone.position < 8
    assert ratio_of(twice, np.tile(bad, 2)) == pytest.approx(ratio_of(alone, bad))
    own, both = (share_explained(each, each.distance / 2) for each in (alone, twice))
    assert (both.share, both.error) == pytest.approx((own.share, own.error))
    assert twice.effective_rows == ROWS


def test_a_few_tokens_and_their_copies_make_no_pattern() -> None:
    """Five sequences, each drawn eight times, with one large token early in three of them: three tokens, and not 24."""
    draws = np.random.default_rng(3)
    later = -draws.exponential(1.0, (5, LENGTH))
    earlier = later - draws.normal(0, 0.01, later.shape)
    earlier[[0, 1, 3], [2, 4, 1]] = later[[0, 1, 3], [2, 4, 1]] + 1.5
    row, position = np.repeat(np.arange(40), LENGTH), np.tile(np.arange(LENGTH), 40)
    copied = Evidence(np.tile(earlier, (8, 1)).ravel(), np.tile(later, (8, 1)).ravel(), row, position, {}, {})
    others, kept = _without_largest(copied)
    assert (~kept).sum() == 4 * 8 and np.abs(others.log_ratio).max() < 0.1


def with_rare(bad: np.ndarray, sign: np.ndarray | float) -> Evidence:
    healthy = gap()
    size = np.random.default_rng(1).uniform(1.0, 2.0, len(healthy))
    return healthy.with_earlier(np.where(bad, healthy.later - sign * size, healthy.earlier))


def test_rare_tokens_at_random_are_other_routes_and_spans_or_one_sided_ones_are_not() -> None:
    draws, test = np.random.default_rng(2), CAUSE["router_flips"].test
    rare, side = draws.random(ROWS * LENGTH) < 0.01, np.where(draws.random(ROWS * LENGTH) < 0.5, 1.0, -1.0)
    assert test(with_rare(rare, side)).holds
    assert not test(with_rare(rare, -1.0)).holds
    position, row = np.tile(np.arange(LENGTH), ROWS), np.repeat(np.arange(ROWS), LENGTH)
    assert not test(with_rare((position // 4 == 3) & (row % 10 == 0), side)).holds
    assert not test(with_rare(rare & (row < 15), side)).holds


def test_rare_tokens_that_become_frequent_with_the_steps_are_no_routes() -> None:
    """Rounding tips a route at one rate; what weights move apart begins at none."""
    draws, test = np.random.default_rng(15), CAUSE["router_flips"].test
    side, step = np.where(draws.random(ROWS * LENGTH) < 0.5, 1.0, -1.0), gap().facts["step"]
    for rate, holds in ((np.full(5, 0.01), True), (np.array([0.0, 0.005, 0.01, 0.015, 0.02]), False)):
        found = test(with_rare(draws.random(ROWS * LENGTH) < rate[step], side))
        assert found.holds is holds, found.effect
        assert ("grows with the steps" in found.effect) is not holds


def test_a_handful_of_rare_tokens_is_no_evidence_of_routes() -> None:
    bad = np.isin(np.arange(ROWS * LENGTH), [100, 600, 1100, 1700, 2300])
    assert not CAUSE["router_flips"].test(with_rare(bad, np.where(np.arange(ROWS * LENGTH) % 200, 1.0, -1.0))).holds


def test_large_jumps_are_other_routes_with_as_many_negative_ones_as_sampling_leaves() -> None:
    """The sampler draws a token that it favours by x nats exp(x) times as often as one that it disfavours by as much."""
    draws, test = np.random.default_rng(3), CAUSE["router_flips"].test
    rare, size = draws.random(ROWS * LENGTH) < 0.01, draws.uniform(2.5, 4.0, ROWS * LENGTH)
    for scale, holds in ((1.0, True), (0.15, False)):
        negative = draws.random(ROWS * LENGTH) < 1 / (1 + np.exp(-size))
        healthy = gap(size=0.03 * scale)
        moved = np.where(negative, -size, size) * scale
        found = test(healthy.with_earlier(np.where(rare, healthy.later - moved, healthy.earlier)))
        assert found.holds is holds, found.effect


def fading_gap(less_sure: bool) -> Evidence:
    healthy = gap(seed=4)
    size = 1.2 / np.sqrt(1 + healthy.position)
    noise = np.random.default_rng(5).normal(0, 1.0, len(healthy)) * size
    # A mean weight of 1 in both: the trainer is less sure of all tokens, or much less sure of one in ten.
    moved = (
        noise - size**2 / 2
        if less_sure
        else np.where(np.abs(noise) > 1.65 * size, noise - 1.5 * size**2, 0.3 * np.abs(noise))
    )
    return healthy.with_earlier(healthy.earlier - moved)


def test_a_gap_that_fades_is_another_prompt_only_if_the_trainer_expects_the_tokens_less() -> None:
    for less_sure in (True, False):
        evidence = fading_gap(less_sure)
        assert fades(evidence) and is_less_sure(evidence) == less_sure
        found = diagnose(evidence)
        assert ("different_prompt" in {item.cause.code for item in found.likely}) == less_sure, found.answer


def test_a_gap_that_the_very_first_tokens_lack_is_not_of_the_prompt() -> None:
    """Ids that were encoded again at token 4 to 12 of each response: what follows fades, and what is before is clean."""
    healthy = gap(seed=11)
    at = np.random.default_rng(12).integers(4, 13, ROWS)[healthy.row]
    since = healthy.position - at
    size = np.where(since >= 0, 1.5 * np.exp(-np.maximum(since, 0) / 6), 0.0)
    draws = np.random.default_rng(13).normal(size=len(healthy))
    found = diagnose(healthy.with_earlier(healthy.earlier - draws * size + size**2 / 2))
    assert not {"different_prompt", "stale_prefix"} & {item.cause.code for item in found.likely}, found.answer
    from_first = np.exp(-healthy.position / 6) * 1.5
    prompt = diagnose(healthy.with_earlier(healthy.earlier - draws * from_first + from_first**2 / 2))
    assert prompt.likely[0].cause.code == "different_prompt", prompt.answer


def test_tokens_after_those_without_a_counterpart_are_encoded_again() -> None:
    healthy = gap(seed=6)
    lost = (healthy.position == 17) & (healthy.row % 3 == 0)
    after = (healthy.position == 18) & (healthy.row % 3 == 0)
    other = np.random.default_rng(7).normal(0, 2.0, len(healthy))
    changed = healthy.with_earlier(np.where(after, healthy.later + other, healthy.earlier))
    evidence = replace(changed.kept(~lost), without_number=int(lost.sum()))
    found = diagnose(evidence)
    assert found.likely[0].cause.code == "retokenised", found.answer
    environment = diagnose(replace(evidence, without_number=0))  # tokens of an environment were masked between them
    assert "retokenised" not in {item.cause.code for item in environment.likely}, environment.answer


def test_lists_of_other_tokens_from_a_point_on_are_encoded_again() -> None:
    healthy = gap(seed=8)
    cut = np.random.default_rng(9).integers(0, LENGTH, ROWS)[healthy.row]
    other = (healthy.row % 4 == 0) & (healthy.position >= cut)
    found = diagnose(healthy.with_earlier(np.where(other, np.roll(healthy.earlier, 977), healthy.earlier)))
    assert found.likely[0].cause.code == "retokenised", found.answer
    assert found.likely[0].of_whole > 0.9


def test_a_switch_is_at_one_token_of_a_step_and_at_another_one_of_the_next() -> None:
    for cuts, is_switch in (((8, 14, 20, 26, 31), True), ((14, 14, 14, 14, 14), False)):
        healthy = gap(seed=10)
        before = healthy.position < np.array(cuts)[healthy.facts["step"]]
        moved = np.random.default_rng(11).normal(0, 0.25, len(healthy))
        found = diagnose(healthy.with_earlier(np.where(before, healthy.earlier - moved, healthy.earlier)))
        assert ("switch_inside" in {item.cause.code for item in found.likely[:1]}) == is_switch, found.answer


def test_a_text_that_never_repeats_a_word_is_penalised_and_one_that_does_is_not() -> None:
    draws = np.random.default_rng(12)
    words = np.minimum(draws.zipf(1.6, ROWS * LENGTH), 400) + draws.integers(0, 60, ROWS * LENGTH)
    position = np.tile(np.arange(LENGTH), ROWS)
    new = words.copy()
    for at in range(1, LENGTH):
        for one in np.flatnonzero(position == at):
            seen = set(new[one - at : one])
            new[one] = next(word for word in (words[one], *(draws.integers(0, 460, 200))) if word not in seen)
    healthy = gap(seed=13)
    for tokens, shift, holds in ((new, 0.4, True), (new, 0.02, True), (new, 0.0, False), (words, 0.4, False)):
        less = healthy.with_earlier(
            healthy.earlier + shift
        )  # the mass of the words that were seen is with the new ones
        found = CAUSE["penalty"].test(replace(less, facts={**less.facts, "token": tokens}))
        assert found.holds == holds, found.effect


def test_a_gap_that_grows_all_along_has_no_point_from_which_on_it_is_larger() -> None:
    """Errors of keys and values add up along a response. Its tokens were neither encoded again nor near a limit."""
    draws, length = np.random.default_rng(14), 160
    row, position = np.repeat(np.arange(ROWS), length), np.tile(np.arange(length), ROWS)
    later = -draws.exponential(1.0, len(row))
    noise = draws.normal(0, 0.003, len(row)) * position
    facts = {"step": row * 5 // ROWS, "length": np.full(len(row), length)}
    found = diagnose(Evidence(later - noise, later, row, position, facts, {}))
    assert {item.cause.code for item in found.likely}.isdisjoint({"retokenised", "near_limit"}), found.answer


def test_a_gap_that_comes_and_goes_is_named_with_its_steps() -> None:
    healthy = gap(seed=15, steps=20)
    during = np.isin(healthy.facts["step"], range(6, 12))
    other = np.random.default_rng(16).normal(0, 0.6, len(healthy))
    found = diagnose(healthy.with_earlier(healthy.earlier - np.where(during, other, 0.0)))
    (first,) = found.likely
    assert first.cause.code == "passing_change" and "steps 6 to 11" in first.title and first.of_whole > 0.95, (
        found.answer
    )
    assert found.rest_is_noise, found.rest_in_words
    assert first.place == "at steps 6 to 11"


def test_fillers_at_one_end_of_the_responses_point_to_a_mask_that_is_one_token_off() -> None:
    healthy = gap(seed=17)
    healthy = replace(
        healthy, facts={**healthy.facts, "token": np.random.default_rng(19).integers(0, 99, len(healthy))}
    )
    scattered = np.random.default_rng(18).random(len(healthy)) < 1 / LENGTH
    for lost, word in ((healthy.position == 0, "first"), (healthy.position == LENGTH - 1, "last"), (scattered, "")):
        found = CAUSE["filler_values"].test(healthy.with_earlier(np.where(lost, 0.0, healthy.earlier)))
        assert found.holds and ("one token off" in found.effect) == bool(word) and word in found.effect, found.effect


def from_step(first: int, steps: int = 12) -> Evidence:
    """A gap from this step on, of the first 12 tokens as of another prompt, and a smaller one of the others."""
    healthy = gap(size=0.01, seed=6, steps=steps)
    size = np.where(healthy.position < 12, 0.5, 0.12) * (healthy.facts["step"] >= first)
    moved = np.random.default_rng(7).normal(0, 1.0, len(healthy)) * size - 1.2 * size**2
    return healthy.with_earlier(healthy.earlier - moved)


def test_first_tokens_that_are_off_from_a_later_step_on_are_first_of_old_keys_and_not_of_another_prompt() -> None:
    always, later = (diagnose(from_step(step)).likely[0] for step in (0, 2))
    assert always.cause.code == "different_prompt"
    assert later.cause.code == "stale_prefix" and later.instead == ("switch_inside", "different_prompt")
    assert "it may be a setting that changed" in " ".join(later.doubts) and later.confidence != "high"


def test_few_ids_that_explain_the_lesser_part_of_a_gap_of_other_weights_name_these_too() -> None:
    healthy = gap(size=0.01, seed=8)
    for size, is_of_weights in ((0.01, False), (0.4, True)):
        draws = np.random.default_rng(10)
        token = draws.integers(0, 60, len(healthy))
        # The mean weight of all tokens is 1; without those of the four ids it is 1.056.
        bias = np.where(token < 4, -1.5, np.log((1 - np.exp(-1.5) * 4 / 60) * 60 / 56))
        moved = draws.normal(-(size**2) / 2, size, len(healthy)) + bias
        facts = {**healthy.facts, "token": token}
        first = diagnose(replace(healthy, earlier=healthy.later - moved, facts=facts)).likely[0]
        assert first.cause.code == "biased_ids" and ("different_weights" in first.instead) is is_of_weights


def test_a_temperature_that_leaves_more_than_rounding_is_not_sure() -> None:
    draws = np.random.default_rng(10)
    healthy = gap(size=0.01, seed=10)
    entropy = np.abs(draws.normal(1.0, 0.3, len(healthy)))
    later = np.log(np.clip(draws.beta(2, 2, len(healthy)), 1e-3, 1))
    words = "more than rounding in 16 bits is left"
    for noise, is_doubted in ((0.01, False), (0.1, True)):
        earlier = 0.7 * later - 0.2 * entropy + draws.normal(0, noise, len(healthy))
        evidence = replace(healthy, earlier=earlier, later=later, facts={**healthy.facts, "entropy": entropy})
        assert (words in CAUSE["trainer_temperature"].test(evidence).doubts) is is_doubted
        without = replace(evidence, facts=healthy.facts)
        assert words not in CAUSE["trainer_temperature"].test(without).doubts, "no entropy stands for the normaliser"


@pytest.mark.parametrize("follow", [True, False])
def test_a_growth_of_the_usual_size_explains_rare_tokens_that_grow_with_it(follow: bool) -> None:
    """Log-ratios of heavy tails, ten times as large by the last step; or small ones that grow beside rare ones that do not."""
    draws = np.random.default_rng(14)
    steps = 20
    healthy = gap(seed=13, steps=steps)
    scale = 0.01 * 10 ** (healthy.facts["step"] / (steps - 1))
    heavy, rare = draws.standard_t(1.5, len(healthy)), draws.random(len(healthy)) < 0.05
    x = scale * (np.clip(heavy, -30, 30) if follow else np.where(rare, 0, draws.normal(size=len(healthy))))
    x = x if follow else np.where(rare, draws.normal(0, 1.0, len(healthy)), x)
    found = diagnose(healthy.with_earlier(healthy.later - x))
    of_growth = [item for item in found.likely if item.cause.code in ("never_synced", "sync_broke")]
    assert (sum(item.of_whole for item in of_growth) > 0.8) is follow, found.answer


def test_rare_tokens_do_not_follow_where_the_usual_log_ratio_of_the_low_steps_is_0() -> None:
    draws = np.random.default_rng(17)
    healthy = gap(seed=17, steps=20)
    early = healthy.facts["step"] < 12
    x = np.where(early, 0.003, 0.03) * np.clip(draws.standard_t(1.5, len(healthy)), -30, 30)
    mostly_equal = healthy.with_earlier(healthy.later - np.where(early & (draws.random(len(healthy)) < 0.7), 0, x))
    assert not courses._rare_ones_follow(mostly_equal, Course("jump", 12, of_sizes=True))


@pytest.mark.parametrize("is_temperature", [True, False])
def test_a_temperature_without_entropy_stands_beside_other_weights(is_temperature: bool) -> None:
    """Real softmaxes: at temperature 0.6, or of other logits that are as sharp. No entropy tells the normaliser."""
    draws = np.random.default_rng(15)
    healthy = gap()
    logits = draws.normal(0, 2.0, (len(healthy), 30)) * draws.uniform(0.3, 1.7, (len(healthy), 1))
    other = logits / 0.6 if is_temperature else logits + draws.normal(0, 0.7, logits.shape)
    later, earlier = (own - np.log(np.exp(own).sum(1, keepdims=True)) for own in (logits, other))
    token = (earlier + draws.gumbel(size=earlier.shape)).argmax(1)[:, None]
    noise = draws.normal(0, 0.25, len(healthy))  # so much is left that a temperature alone is no answer
    sides = (np.take_along_axis(own, token, 1)[:, 0] for own in (earlier, later))
    found = diagnose(Evidence(next(sides), next(sides) + noise, healthy.row, healthy.position, healthy.facts, {}))
    named = {code for item in found.likely for code in (item.cause.code, *item.instead)}
    assert ("trainer_temperature" in named) is is_temperature, found.answer


def test_a_clear_trace_of_a_penalty_stands_beside_other_weights() -> None:
    draws = np.random.default_rng(16)
    healthy = gap(seed=16)
    token = draws.integers(0, 60, len(healthy))
    _, again = np.unique(np.stack([healthy.row, token]), axis=1, return_index=True)
    repeated = ~np.isin(np.arange(len(healthy)), again)
    size = 1.1
    for shift, is_penalty in ((1.0, True), (0.0, False)):
        moved = draws.normal(-(size**2) / 2, size, len(healthy)) + shift * (repeated - repeated.mean())
        evidence = replace(healthy, earlier=healthy.later - moved, facts={**healthy.facts, "token": token})
        found = CAUSE["different_weights"].test(evidence)
        assert found.holds and ("penalty" in found.alike) is is_penalty, found.effect


@pytest.mark.parametrize("place", ["at", "after"])
def test_seldom_ids_whose_every_token_is_far_off_have_other_rows(place: str) -> None:
    """Rows of the output layer, or of the embeddings: of ids with six tokens each, and as many tokens at random."""
    draws = np.random.default_rng(11)
    healthy = gap(seed=12)
    token = draws.integers(0, 400, len(healthy))
    healthy = replace(healthy, facts={**healthy.facts, "token": token})
    ids = token if place == "at" else np.where(healthy.position > 0, np.roll(token, 1), -1)
    bad = np.isin(ids, range(3, 11))
    size = draws.choice([-1.0, 1.0], len(healthy)) * draws.uniform(1.0, 2.0, len(healthy))
    for tokens, code in ((bad, "token_rows"), (draws.permutation(bad), "router_flips")):
        first = diagnose(healthy.with_earlier(np.where(tokens, healthy.later - size, healthy.earlier))).likely[0]
        assert first.cause.code == code and first.confidence != "high" and first.of_whole > 0.8


@pytest.mark.parametrize(("steps", "comes_and_goes"), [((1, 3, 4), True), ((2, 3, 4), False), ((0, 1, 2, 3, 4), False)])
def test_weights_that_differ_at_some_steps_may_have_changed_within_them(
    steps: tuple[int, ...], comes_and_goes: bool
) -> None:
    own = gap(0.001)
    draws = np.random.default_rng(4)
    size = np.where(np.isin(own.facts["step"], steps), 0.3, 0.001)
    honest = own.with_earlier(own.later - draws.normal(-(size**2) / 2, size))
    found = CAUSE["different_weights"].test(honest)
    assert found.holds and ("switch_inside" in found.alike) is comes_and_goes
