"""Sampling that both sides hide, and masks that look like it."""

import numpy as np
import pytest

from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.diagnosis.evidence import Evidence

ROWS, LENGTH, WORDS = 48, 120, 64
TEST = CAUSE["silent_sampling"].test


def run(temperature: float = 1.0, seed: int = 0) -> Evidence:
    """Tokens that were sampled at this temperature, while both sides report the log-probs of temperature 1."""
    draws = np.random.default_rng(seed)
    row, position = np.divmod(np.arange(ROWS * LENGTH), LENGTH)
    logits = draws.normal(0, 2.5, (len(row), WORDS))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    token = (logits / temperature + draws.gumbel(size=logits.shape)).argmax(axis=1)
    later = np.log(np.take_along_axis(probs, token[:, None], axis=1)[:, 0])
    entropy = -(probs * np.log(probs)).sum(axis=1)
    facts = {"entropy": entropy, "step": row // 12, "token": token}
    return Evidence(later + draws.normal(0, 0.01, len(row)), later, row, position, facts, {})


def test_a_temperature_that_both_sides_hide_is_found_beside_the_masks_of_tools() -> None:
    hidden = run(temperature=0.8)
    tools = hidden.position % 40 < 30  # three turns, each with ten tokens of a tool
    assert TEST(hidden).holds and TEST(hidden.kept(tools)).holds
    assert not TEST(run()).holds


@pytest.mark.parametrize("seed", range(4))
def test_a_mask_that_selects_tokens_by_log_prob_is_no_sampling(seed: int) -> None:
    healthy = run(seed=seed)
    for masked in (healthy.later < -1.0, healthy.later > -3.0):
        result = TEST(healthy.kept(masked))
        assert not result.holds and "a mask that selects tokens by their log-probs" in result.too_few
    by_chance = TEST(healthy.kept(np.random.default_rng(seed).random(len(healthy)) < 0.6))
    assert not by_chance.holds and not by_chance.too_few
