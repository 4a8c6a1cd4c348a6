"""Places of sentinels: planted ones are found with their true counts, and marks strewn at random have none."""

import math
import re
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # it ships no types

from ratioscope.arrays import Booleans, Integers
from ratioscope.metrics.diagnosis.marked import marked
from ratioscope.metrics.diagnosis.non_finite import Marked
from ratioscope.metrics.diagnosis.sentinel_places import hypergeometric_tail, places_of

Mark = Callable[[np.random.Generator, Integers, Integers, Booleans], Booleans]
"""(draws, row, position, last token) of every token -> True for each marked one."""


def found_of(seed: int, mark: Mark, rows: int = 240, shortest: int = 20, longest: int = 160) -> Marked:
    """Marked tokens of 8 steps and 4 replicas. The longest fifth ended by length, most others by stop."""
    draws = np.random.default_rng(seed)
    lengths = np.minimum(draws.integers(shortest, longest * 5 // 4, rows), longest)
    row = np.repeat(np.arange(rows), lengths)
    position = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    finish = np.where(lengths == longest, "length", np.where(draws.random(rows) < 0.1, "abort", "stop"))
    labels = {"finish reason": tuple(finish.tolist()), "replica": tuple("abcd"[at % 4] for at in range(rows))}
    own = mark(draws, row, position, position == lengths[row] - 1)
    return marked(row, position, own, lengths, np.arange(rows) * 8 // rows, labels)


def facts_of(found: Marked) -> dict[str, str]:
    return {place.fact: place.words for place in places_of(found).found}


@given(st.integers(1, 60), st.data())
def test_the_tail_is_that_of_an_independent_library(total: int, data: st.DataObject) -> None:
    inside, drawn = data.draw(st.integers(0, total)), data.draw(st.integers(0, total))
    both = data.draw(st.integers(max(0, drawn + inside - total), min(inside, drawn)))
    found, wanted = hypergeometric_tail(total, inside, drawn, both), stats.hypergeom.sf(both - 1, total, inside, drawn)
    assert found == pytest.approx(wanted, rel=1e-9) or (found == 1 and both * total <= inside * drawn)


def test_the_tail_counts_every_way_to_draw() -> None:
    drawn = list(combinations(range(9), 4))
    both = sum(len({0, 1, 2} & set(own)) >= 2 for own in drawn)
    assert hypergeometric_tail(9, 3, 4, 2) == pytest.approx(both / len(drawn))
    assert hypergeometric_tail(10**8, 10**3, 500, 500) < 1e-300 and math.comb(9, 4) == len(drawn)


@pytest.mark.parametrize(
    ("mark", "facts"),
    [
        (lambda g, row, position, last: last & (row % 3 == 0), {"position": "at the last token"}),
        (lambda g, row, position, last: (position == 0) & (g.random(240) < 0.2)[row], {"position": "at the first token"}),
        (lambda g, row, position, last: (g.random(len(row)) < 0.02) & (row % 4 == 2), {"replica": "at replica c"}),
        (lambda g, row, position, last: (g.random(len(row)) < 0.02) & (row >= 150), {"step": "since step 5"}),
        (lambda g, row, position, last: (g.random(len(row)) < 0.05) & (row // 30 == 3), {"step": "at step 3 alone"}),
        (lambda g, row, position, last: (position >= 150) & (g.random(len(row)) < 0.5),
         {"position": "at positions from 150 on", "length": "in responses of 15[0-9] tokens and more",
          "finish reason": "in responses that ended by “length”"}),
        (lambda g, row, position, last: g.random(len(row)) < np.where(row % 4 == 1, 0.2, 0.05), {"replica": "at replica b"}),
    ],
    ids=["last", "first", "replica", "since", "one step", "beyond", "most have one"],
)  # fmt: skip
def test_a_planted_place_is_found_and_no_other(mark: Mark, facts: dict[str, str]) -> None:
    for seed in range(8):
        found = facts_of(found_of(seed, mark))
        assert found.keys() == facts.keys(), (seed, found)
        assert all(re.fullmatch(facts[fact], words) for fact, words in found.items()), (seed, found)


@pytest.mark.parametrize("stray", [0.0, 0.002])
def test_the_last_token_of_stop_word_responses_is_found_with_its_counts(stray: float) -> None:
    values = found_of(1, lambda g, row, position, last: last).labels["finish reason"]
    stop = np.array([value == "stop" for value in values])
    own = found_of(1, lambda g, row, position, last: (last & stop[row]) | (g.random(len(row)) < stray))
    places = places_of(own)
    found = {place.fact: place for place in places.found}
    finish = found["finish reason"]
    assert finish.words == "in responses that ended by “stop”" and finish.hit == finish.of == stop.sum()
    assert finish.beyond == (own.hit & ~stop).sum() and finish.others == (~stop).sum() and finish.p < 1e-12
    assert places.last == 1 and found["position"].words == "at the last token"


@pytest.mark.parametrize("rate", [0.0005, 0.01, 0.2])
@pytest.mark.parametrize("run", [1, 25], ids=["single", "clusters"])
def test_marks_strewn_at_random_have_no_place(rate: float, run: int) -> None:
    """100 seeds each: at most one names a place, as a level of 0.001 allows."""

    def mark(draws: np.random.Generator, row: Integers, position: Integers, last: Booleans) -> Booleans:
        starts = draws.random(len(row)) < rate / run
        near = [np.roll(starts, shift) & (position >= shift) for shift in range(run)]
        return np.asarray(np.logical_or.reduce(near), np.bool_)

    shown = [
        seed for seed in range(100) if (own := found_of(seed, mark, rows=120, longest=100)).hit.any() and facts_of(own)
    ]
    assert len(shown) <= 1


def test_a_longer_response_has_more_sentinels_by_chance_and_that_is_no_pattern() -> None:
    for seed in range(20):
        own = found_of(seed, lambda g, row, position, last: g.random(len(row)) < 0.004, rows=600, longest=600)
        hit = own.hit
        assert own.lengths[hit].mean() > 1.2 * own.lengths[~hit].mean() and facts_of(own) == {}
