"""Sampling that both sides hide, and choices of tokens and of sequences that look like it or like bans."""

from dataclasses import replace

import numpy as np
import pytest
from support import fault_runs

from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.diagnosis.decomposition import diagnose
from ratioscope.metrics.diagnosis.evidence import Evidence

ROWS, LENGTH, WORDS = 48, 120, 64
TEST = CAUSE["silent_sampling"].test


def run(temperature: float = 1.0, seed: int = 0, rows: int = ROWS) -> Evidence:
    """Tokens that were sampled at this temperature, while both sides report the log-probs of temperature 1."""
    draws = np.random.default_rng(seed)
    row, position = np.divmod(np.arange(rows * LENGTH), LENGTH)
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
    many = hidden.position % 14 < 8  # turns of eight tokens: one token in eight stands behind a text of a tool
    assert TEST(hidden).holds and TEST(hidden.kept(tools)).holds and TEST(hidden.kept(many)).holds
    assert not TEST(run()).holds and not TEST(run().kept(many)).holds


@pytest.mark.parametrize("seed", range(4))
def test_a_mask_that_selects_tokens_by_log_prob_is_no_sampling(seed: int) -> None:
    healthy = run(seed=seed)
    for masked in (healthy.later < -1.0, healthy.later > -3.0):
        result = TEST(healthy.kept(masked))
        assert not result.holds and "a mask that selects tokens by their log-probs" in result.too_few
    by_chance = TEST(healthy.kept(np.random.default_rng(seed).random(len(healthy)) < 0.6))
    assert not by_chance.holds and not by_chance.too_few


def with_groups(evidence: Evidence) -> Evidence:
    """Four sequences of each prompt."""
    return replace(evidence, facts={**evidence.facts, "group": evidence.row // 4})


@pytest.mark.parametrize("seed", range(3))
def test_a_choice_of_sequences_by_their_log_probs_is_no_sampling(seed: int) -> None:
    healthy = run(seed=seed, rows=5 * ROWS)
    means = np.bincount(healthy.row, healthy.later + healthy.facts["entropy"])
    best = np.isin(healthy.row, np.argsort(means)[-2 * ROWS :])
    for chosen in (healthy.kept(best), with_groups(healthy).kept(best)):
        result = TEST(chosen)
        assert not result.holds and "a choice of sequences by their log-probs" in result.too_few


def test_whole_groups_show_a_temperature_that_moves_short_sequences_little() -> None:
    hidden = run(temperature=0.87)
    short = hidden.kept(hidden.position < 24)
    assert "a choice of sequences" in TEST(short).too_few
    assert TEST(with_groups(short)).holds
    lacking = with_groups(short)
    assert "a choice of sequences" in TEST(lacking.kept(lacking.row != 5)).too_few


def test_a_mask_that_selects_tokens_by_their_log_ratio_is_no_ban_and_no_temperature() -> None:
    for name in ("healthy_bf16", "healthy_t07", "healthy_long"):
        whole = fault_runs.evidence(name)
        for kept in (whole.log_ratio < 0, whole.log_ratio >= 0):
            assert not diagnose(whole.kept(kept)).likely, name
    assert CAUSE["banned_tokens"].test(fault_runs.evidence("banned_3")).holds


@pytest.mark.parametrize("log_prob", [-1.0, -0.5])
def test_an_entropy_of_zero_everywhere_names_no_temperature(log_prob: float) -> None:
    healthy = run()
    same = np.full(len(healthy), log_prob)
    result = TEST(Evidence(same, same, healthy.row, healthy.position, {"entropy": np.zeros(len(same))}, {}))
    assert result.holds and not result.parameters and "temperature" not in result.effect
