"""Tokens without a log-prob, placeholders and equal sides: they are named, and nothing of them is called rounding noise."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.diagnosis_words import not_numbers
from support.sizes import examples

from ratioscope.arrays import Booleans, Floats
from ratioscope.metrics.diagnosis.decomposition import diagnose
from ratioscope.metrics.diagnosis.diagnosis import Diagnosis
from ratioscope.metrics.diagnosis.evidence import Evidence
from ratioscope.metrics.diagnosis.non_finite_tokens import Tokens, at_steps, of_tokens

ROWS, LENGTH = 40, 30
STEP, ROW = np.arange(ROWS * LENGTH) // LENGTH * 4 // ROWS, np.arange(ROWS * LENGTH) // LENGTH
POSITION = np.tile(np.arange(LENGTH), ROWS)
LATER = -np.random.default_rng(0).exponential(1.0, ROWS * LENGTH)
EARLIER = LATER - np.random.default_rng(1).normal(0, 0.02, ROWS * LENGTH)


def evidence(earlier: Floats, later: Floats, *, computed_apart: bool = False) -> Evidence:
    finite: Booleans = np.isfinite(earlier) & np.isfinite(later)
    tokens = Tokens(
        earlier, later, ROW, POSITION, np.full(ROWS, LENGTH), STEP[::LENGTH], ("rollout", "old"),
        {"replica": tuple("ab"[row % 2] for row in range(ROWS))},
    )  # fmt: skip
    absent = None if finite.all() else of_tokens(at_steps(tokens), tokens)
    facts = {"step": STEP[finite], "length": np.full(int(finite.sum()), LENGTH)}
    return Evidence(
        earlier[finite], later[finite], ROW[finite], POSITION[finite], facts, {},
        without_number=int((~finite).sum()), non_finite=absent, computed_apart=computed_apart,
    )  # fmt: skip


def codes(found: Diagnosis) -> list[str]:
    return [item.cause.code for item in found.likely]


@examples(12)
@given(
    st.integers(0, 10_000),
    st.lists(
        st.tuples(
            st.sampled_from([np.nan, np.inf, -np.inf, 0.0]), st.sampled_from(["earlier", "later"]), st.floats(1e-3, 0.4)
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_whatever_stands_in_place_of_log_probs_is_never_rounding_noise(
    seed: int, holes: list[tuple[float, str, float]]
) -> None:
    draws, sides = np.random.default_rng(seed), {"earlier": EARLIER.copy(), "later": LATER.copy()}
    unsure = np.flatnonzero(np.maximum(EARLIER, LATER) < -0.5)
    for value, side, share in holes:
        count = int(np.ceil(share * len(LATER))) + 1
        sides[side][draws.choice(unsure, min(count, len(unsure)), replace=False)] = value
    zero = (sides["earlier"] == 0) & (sides["later"] == 0)  # two equal zeros are one certain token
    sides["earlier"][zero] = np.nan
    own = evidence(sides["earlier"], sides["later"])
    found = diagnose(own)
    assert "rounding noise" not in found.answer and not found.is_healthy
    assert not_numbers(found) == []
    alone = diagnose(Evidence(**{name: getattr(own, name) for name in ("earlier", "later", "row", "position", "facts", "names")},
                              without_number=own.without_number))  # fmt: skip
    assert [code for code in codes(found) if code != "non_finite"] == codes(alone)
    assert (found.gap, found.rest) == (alone.gap, alone.rest)


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ((POSITION >= 25) & (ROW % 3 == 0), "at positions from 25 on, within the last 5 tokens and up to the end"),
        ((POSITION == 0) & (ROW % 3 == 0), "at position 0 alone"),
        (POSITION == 0, "not scored: the first token of every sequence, at every step"),
        (POSITION >= 25, "not scored: the last 5 tokens of every sequence, at every step"),
        ((POSITION == 7) | (POSITION == 8), "not scored: positions 7 to 8 of every sequence, at every step"),
        ((ROW % 2 == 1) & (POSITION % 7 == 0), "only at replica b"),
        (ROW % 4 == 0, "at every token of their sequences"),
        ((STEP >= 2) & (POSITION % 9 == 3), "since step 2"),
        ((STEP == 1) & (POSITION % 9 == 3), "at step 1 alone"),
        (np.random.default_rng(3).random(len(ROW)) < 0.05, "55 of 1,200 tokens (4.6%), at every step"),
    ],
)
def test_tokens_without_a_log_prob_are_located(mark: Booleans, said: str) -> None:
    found = diagnose(evidence(EARLIER, np.where(mark, np.nan, LATER)))
    first = found.likely[0]
    assert first.cause.code == "non_finite" and first.confidence == "high"
    assert "NaN on the trainer's side at" in first.title and said in first.title
    assert "its share of the gap cannot be computed" in found.answer


def test_one_token_of_probability_0_is_an_infinite_kl_and_one_nan_among_many_is_below_the_limit() -> None:
    at = np.arange(len(LATER)) == 500
    infinite = diagnose(evidence(EARLIER, np.where(at, -np.inf, LATER)))
    assert (
        "−inf on the trainer's side at 1 of 300 tokens (0.33%), at step 1 alone; the KL is infinite" in infinite.answer
    )
    wide = np.tile(LATER, 4)
    steps = np.zeros(4 * ROWS, np.int64)
    row, position = np.repeat(np.arange(4 * ROWS), LENGTH), np.tile(POSITION, 4)
    tokens = Tokens(np.where(np.arange(len(wide)) == 7, np.nan, wide), wide, row, position, np.full(4 * ROWS, LENGTH), steps,
                    ("rollout", "old"))  # fmt: skip
    few = of_tokens(at_steps(tokens), tokens)
    healthy = evidence(EARLIER, LATER)
    found = diagnose(
        Evidence(healthy.earlier, healthy.later, healthy.row, healthy.position, healthy.facts, {}, non_finite=few)
    )
    excluded = {item.cause.code: item.because for item in found.excluded}
    assert found.is_healthy and "1 of 4,800 tokens (0.021%)" in excluded["non_finite"]


def test_the_other_tokens_of_sequences_without_log_probs_are_suspect_if_they_are_further_apart() -> None:
    for size, said in ((1.0, "no reason to doubt these"), (8.0, "these tokens are suspect, too")):
        hit = ROW % 5 == 0
        earlier = LATER + np.where(hit, size, 1.0) * (EARLIER - LATER)
        found = diagnose(evidence(earlier, np.where(hit & (POSITION == 12), np.nan, LATER)))
        assert said in next(item for item in found.likely if item.cause.code == "non_finite").effect


@pytest.mark.parametrize(
    ("earlier", "later", "said"),
    [
        (0 * LATER, 0 * LATER, "every log-prob: 0 on the side of the sampler and of the trainer ("),
        (0 * LATER - 1, LATER, "every log-prob: -1 on the side of the sampler ("),
        (np.where(STEP > 1, 0, EARLIER), np.where(STEP > 1, 0, LATER), "of the sampler and of the trainer, since step 2 ("),
    ],
)  # fmt: skip
def test_one_number_in_place_of_every_log_prob_is_a_placeholder(earlier: Floats, later: Floats, said: str) -> None:
    found = diagnose(evidence(earlier, later))
    assert codes(found)[0] == "placeholders" and said in found.answer
    assert "rounding noise" not in found.answer and not found.is_healthy


def test_a_constant_in_place_of_some_log_probs_says_where_it_stands() -> None:
    tail = (POSITION >= 26) & (ROW % 3 == 0)
    found = diagnose(evidence(np.where(tail, 0.0, EARLIER), LATER))
    assert codes(found)[0] in ("filler_values", "unscored_tokens")
    assert "of the sampler, at positions from 26 on, within the last 4 tokens" in found.likely[0].title


def test_equal_sides_are_proved_equal_only_if_they_were_computed_apart() -> None:
    copy = diagnose(evidence(LATER, LATER))
    assert copy.answer.startswith("Both sides are equal to the last bit at all 1,200 tokens: not measured.")
    assert "ratioscope rescore" in copy.answer and not copy.is_healthy and not copy.excluded[2:]
    apart = diagnose(evidence(LATER, LATER, computed_apart=True))
    assert "proved equal" in apart.answer and apart.is_healthy and apart.unexplained == 0


def test_single_outlying_tokens_of_a_healthy_gap_are_told_and_are_no_fault() -> None:
    for at, size in ((17, -9.0), (801, 2.5), (444, -25.0)):
        is_far = np.arange(len(LATER)) == at
        own = evidence(np.where(is_far, -5.0, EARLIER), np.where(is_far, -5.0 + size, LATER))
        facts, names = {**own.facts, "replica": ROW % 4}, {"replica": tuple("abcd")}
        found = diagnose(replace(own, facts=facts, names=names))
        assert "The gap is rounding noise but for 1 outlying token" in found.answer, found.answer
        assert found.is_healthy == (found.gap < 0.01)


def test_a_regular_gap_larger_than_16_bits_make_may_be_other_weights() -> None:
    noise = np.random.default_rng(5).normal(size=len(LATER))
    for size in (0.0015, 0.008):
        found = diagnose(evidence(LATER + np.sqrt(2 * size) * noise, LATER))
        assert found.is_healthy and found.gap == pytest.approx(size, rel=0.2)
        assert ("slightly different weights" in found.answer) == (size > 0.005), found.answer
        assert (
            ("The gap is rounding noise" in found.answer)
            == ("as small and as regular" in found.rest_in_words)
            == (size < 0.005)
        )


@pytest.mark.parametrize("value", [1e9, -1e9, -1e30, 3e38])
@pytest.mark.parametrize("side", ["earlier", "later"])
def test_a_huge_number_in_place_of_some_log_probs_is_named_and_overflows_nowhere(value: float, side: str) -> None:
    sides = {"earlier": EARLIER.copy(), "later": LATER.copy()}
    sides[side][np.random.default_rng(2).random(len(LATER)) < 0.05] = value
    own = evidence(sides["earlier"], sides["later"])
    found = diagnose(replace(own, facts={**own.facts, "entropy": np.full(len(own), 1.5)}))
    assert codes(found)[0] == "filler_values" and found.likely[0].confidence == "high"
