"""Faults of a place in the row, prompt included, although the record has no place in the row."""

import numpy as np

from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.diagnosis.causes.row_places import place_sizes
from ratioscope.metrics.diagnosis.decomposition import diagnose
from ratioscope.metrics.diagnosis.evidence import Evidence

PROMPTS, COPIES, LENGTH = 16, 4, 120


def responses(seed: int, copies: int = COPIES) -> tuple[Evidence, np.ndarray]:
    """(healthy responses to some prompts, place of each token in its row); every prompt has its own length."""
    draws = np.random.default_rng(seed)
    row = np.repeat(np.arange(PROMPTS * copies), LENGTH)
    position = np.tile(np.arange(LENGTH), PROMPTS * copies)
    group = row // copies
    later = -draws.exponential(1.0, len(row))
    facts = {"group": group, "token": draws.integers(0, 5000, len(row))}
    noise = draws.normal(0, 0.03, len(row))
    place = position + draws.integers(20, 90, PROMPTS)[group]
    return Evidence(later - noise, later, row, position, facts, {}), place


def with_fault(healthy: Evidence, bad: np.ndarray) -> Evidence:
    noise = np.random.default_rng(9).normal(0, 0.8, len(healthy))
    return healthy.with_earlier(np.where(bad, healthy.later + noise, healthy.earlier))


def test_boundaries_of_chunks_are_named_with_their_distance() -> None:
    healthy, place = responses(0)
    found = diagnose(with_fault(healthy, place % 50 < 3))
    assert found.likely[0].cause.code == "chunk_boundary", found.answer
    assert found.likely[0].parameters["every"] == "about every 50 tokens"
    assert found.likely[0].of_whole > 0.8


def test_equally_many_bad_tokens_at_places_of_their_own_are_no_boundary() -> None:
    healthy, place = responses(1)
    own = np.random.default_rng(3).integers(0, 50, healthy.rows)[healthy.row]
    found = CAUSE["chunk_boundary"].test(with_fault(healthy, (place + own) % 50 < 3))
    assert not found.holds, found.effect


def test_a_window_that_ends_is_an_onset_at_another_position_for_each_prompt() -> None:
    healthy, place = responses(2)
    found = diagnose(with_fault(healthy, place >= 110))
    assert found.likely[0].cause.code == "position_onset", found.answer
    assert found.likely[0].of_whole > 0.9


def test_a_text_that_responses_share_is_one_measurement() -> None:
    single, _ = responses(4, copies=1)
    shared = [
        np.repeat(values.reshape(PROMPTS, LENGTH), COPIES, axis=0).ravel() for values in (single.earlier, single.later)
    ]
    whole, _ = responses(4)
    token = np.repeat(single.facts["token"].reshape(PROMPTS, LENGTH), COPIES, axis=0).ravel()
    facts = {"group": whole.facts["group"], "token": token}
    same = Evidence(shared[0], shared[1], whole.row, whole.position, facts, {})
    assert place_sizes(same).cells == 0  # else noise would repeat at every place
    assert CAUSE["chunk_boundary"].test(same).too_few
