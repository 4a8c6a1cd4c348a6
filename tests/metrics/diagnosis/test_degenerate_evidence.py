"""Evidence that leaves a regression nothing to fit: every cause has an answer, and none divides by zero."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.diagnosis_words import not_numbers
from support.sizes import examples

from ratioscope.metrics.diagnosis.catalogue import CAUSE, CAUSES
from ratioscope.metrics.diagnosis.causes.token_biases import row_tokens
from ratioscope.metrics.diagnosis.decomposition import diagnose
from ratioscope.metrics.diagnosis.evidence import Evidence

ROWS, LENGTH = 8, 80
DRAWN = -np.random.default_rng(0).exponential(1.0, (3, ROWS * LENGTH))
SIDES: dict[str, Callable[[int], np.ndarray]] = {
    "drawn": lambda side: DRAWN[side],
    "the same": lambda side: DRAWN[2],
    "zero": lambda side: np.zeros(ROWS * LENGTH),
    "one value": lambda side: np.full(ROWS * LENGTH, -2.0),
    "one token": lambda side: np.where(np.arange(ROWS * LENGTH) == 3, -30.0, 0.0),
}
ENTROPIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "minus the sampler's log-probs": lambda earlier, later: -earlier,
    "minus the trainer's log-probs": lambda earlier, later: -later,
    "zero": lambda earlier, later: np.zeros_like(earlier),
    "absent": lambda earlier, later: np.full_like(earlier, np.nan),
}


def evidence(earlier: np.ndarray, later: np.ndarray, entropy: np.ndarray) -> Evidence:
    row, position = np.divmod(np.arange(ROWS * LENGTH), LENGTH)
    facts = {"step": row // 2, "token": np.arange(len(row)) % 40, "entropy": entropy, "temperature": np.ones(len(row))}
    return Evidence(earlier, later, row, position, facts, {})


@pytest.mark.parametrize(("earlier", "later", "entropy"), list(product(SIDES, SIDES, ENTROPIES)))
def test_every_cause_has_an_answer(earlier: str, later: str, entropy: str) -> None:
    sides = SIDES[earlier](0), SIDES[later](1)
    found = evidence(*sides, ENTROPIES[entropy](*sides))
    answer = diagnose(found)
    causes = [item.cause for item in answer.likely]
    causes += [item.cause for item in answer.excluded] + [item.cause for item in answer.cannot_tell]
    assert sorted(cause.code for cause in causes) == sorted(cause.code for cause in CAUSES)
    assert not_numbers(answer) == []


@given(
    rows=st.sampled_from([1, 2, 3, 8]),
    length=st.sampled_from([4, 20, 60]),
    noise=st.sampled_from([0.0, 1e-9, 1e-3, 0.03, 10.0]),
    quiet=st.integers(0, 9),
    seed=st.integers(0, 1000),
)
@examples(20)
def test_no_size_of_a_gap_makes_a_number_that_says_nothing(
    rows: int, length: int, noise: float, quiet: int, seed: int
) -> None:
    """quiet: the first half of the sequences has so many orders of magnitude less noise."""
    draws, (row, position) = np.random.default_rng(seed), np.divmod(np.arange(rows * length), length)
    later = -draws.exponential(1.0, len(row))
    size = noise * np.where(row < rows / 2, 10.0**-quiet, 1.0)
    facts = {
        "step": row // 2,
        "replica": row % 2,
        "group": row // 2,
        "lag": row % 3,
        "length": np.full(len(row), length),
    }
    found = diagnose(
        Evidence(later - draws.normal(0, 1, len(row)) * size, later, row, position, facts, {"replica": ("a", "b")})
    )
    assert not_numbers(found) == []


def test_a_sampler_that_follows_the_entropy_alone_tells_no_temperature() -> None:
    earlier, later = SIDES["drawn"](0), SIDES["drawn"](1)
    result = CAUSE["trainer_temperature"].test(evidence(earlier, later, -earlier))
    assert not result.holds and "do not rise" in result.too_few


def test_the_ids_of_one_sequence_are_looked_for_without_a_warning() -> None:
    length = 400
    earlier, later = DRAWN[0][:length], DRAWN[0][:length] - 0.2 * (np.arange(length) % 40 == 7)
    facts = {"step": np.zeros(length, int), "token": np.arange(length) % 40}
    one = Evidence(earlier, later, np.zeros(length, int), np.arange(length), facts, {})
    assert row_tokens(one)[1].sum() == 0
