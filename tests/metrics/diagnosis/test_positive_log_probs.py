"""Numbers in place of log-probs: above 0, multiplied, shifted or cut off; named with the side or the move."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.diagnosis.causes.not_log_probs import UNKNOWN
from ratioscope.metrics.diagnosis.decomposition import diagnose
from ratioscope.metrics.diagnosis.evidence import Evidence

ROWS, LENGTH = 64, 80
Form = Callable[[np.ndarray], np.ndarray]
FORMS: dict[str, Form] = {
    "minus the log-prob": np.negative,
    "the probability": np.exp,
    UNKNOWN: lambda values: values + np.random.default_rng(5).normal(18, 4, len(values)),
}


def healthy(seed: int = 0) -> Evidence:
    draws = np.random.default_rng(seed)
    row, position = np.divmod(np.arange(ROWS * LENGTH), LENGTH)
    later = -draws.exponential(1.0, len(row))
    earlier = np.minimum(later - draws.normal(0, 0.03, len(row)), 0)
    return Evidence(earlier, later, row, position, {"step": row // 16, "token": draws.integers(0, 5000, len(row))}, {})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("side", ["sampler", "trainer", "sampler and trainer"])
@pytest.mark.parametrize("rows", [ROWS, ROWS // 8])
def test_the_side_and_the_form_are_named(form: str, side: str, rows: int) -> None:
    found, changed = healthy(), FORMS[form]
    earlier, later = (
        np.where(found.row < rows, changed(values), values) if name in side else values
        for name, values in (("sampler", found.earlier), ("trainer", found.later))
    )
    first = diagnose(replace(found, earlier=earlier, later=later)).likely[0]
    assert (first.cause.code, first.confidence) == ("positive_log_probs", "high")
    told = UNKNOWN if side == "sampler and trainer" else form  # without a healthy side there is nothing to compare with
    assert (first.parameters["side"], first.parameters["form"]) == (side, told)
    assert first.of_whole > 0.9 or side == "sampler and trainer"


def test_a_constant_above_0_is_a_filler() -> None:
    found = healthy()
    filled = np.where(np.random.default_rng(1).random(len(found)) < 0.05, 1.0, found.earlier)
    assert diagnose(found.with_earlier(filled)).likely[0].cause.code == "filler_values"


@pytest.mark.parametrize("value", [0.4, 1.0, 30.0])
@pytest.mark.parametrize("place", [slice(3, 4), slice(LENGTH - 1, LENGTH), slice(0, 2)])
@pytest.mark.parametrize("facts", [("step", "token"), ("step",)])
def test_a_constant_above_0_is_a_filler_wherever_it_stands(value: float, place: slice, facts: tuple[str, ...]) -> None:
    found = healthy()
    there = np.isin(found.position, np.arange(LENGTH)[place])
    bare = replace(found, facts={name: found.facts[name] for name in facts})
    likely = diagnose(bare.with_earlier(np.where(there, value, found.earlier))).likely
    assert likely[0].cause.code in ("filler_values", "unscored_tokens") and likely[0].of_whole > 0.9


@pytest.mark.parametrize("place", [slice(3, 4), slice(LENGTH - 4, LENGTH)])
@pytest.mark.parametrize("side", ["sampler", "trainer"])
def test_single_numbers_above_0_are_named_before_any_place_that_they_share(place: slice, side: str) -> None:
    found, draws = healthy(), np.random.default_rng(9)
    there = np.isin(found.position, np.arange(LENGTH)[place])
    filled = np.where(there, draws.uniform(0.3, 2.0, len(found)), found.earlier if side == "sampler" else found.later)
    first = diagnose(found.with_earlier(filled) if side == "sampler" else replace(found, later=filled)).likely[0]
    assert (first.cause.code, first.parameters["side"]) == ("positive_log_probs", side) and first.of_whole > 0.9


@pytest.mark.parametrize("size", [0.05, 0.2, 0.5])
def test_noise_that_passes_0_is_no_number_above_0(size: float) -> None:
    found = healthy()
    noisy = found.with_earlier(found.later + np.random.default_rng(3).normal(0, size, len(found)))
    assert not CAUSE["positive_log_probs"].test(noisy).holds


def test_honest_log_probs_and_the_rounding_of_a_log_softmax_are_none() -> None:
    found = healthy()
    for earlier in (found.earlier, np.where(found.earlier > -0.01, 9e-7, found.earlier)):
        assert not CAUSE["positive_log_probs"].test(found.with_earlier(earlier)).holds


def drawn(temperature: float, seed: int = 0) -> Evidence:
    """Tokens drawn from softmax(logits / temperature) and scored at temperature 1, with noise of 16 bits on the logits."""
    draws = np.random.default_rng(seed)
    logits = draws.normal(0, 3, (ROWS * LENGTH, 50))
    scale = [logits / temperature, logits + draws.normal(0, 0.02, logits.shape)]
    sampled, scored = (each - np.log(np.exp(each).sum(1, keepdims=True)) for each in scale)
    token = (sampled + draws.gumbel(size=logits.shape)).argmax(1)
    row, position = np.divmod(np.arange(len(token)), LENGTH)
    facts = {"step": row // 16, "token": token}
    earlier, later = (each[np.arange(len(token)), token] for each in (sampled, scored))
    return Evidence(earlier, later, row, position, facts, {})


@pytest.mark.parametrize("factor", [1 / np.log(10), 0.7, 0.9, 1.1, 1 / 0.7, 1 / np.log(2)])
@pytest.mark.parametrize("side", ["sampler", "trainer"])
def test_log_probs_that_were_multiplied_are_told_from_a_temperature(factor: float, side: str) -> None:
    found = drawn(1.0)
    earlier, later = (
        values * factor if name == side else values
        for name, values in (("sampler", found.earlier), ("trainer", found.later))
    )
    first = diagnose(replace(found, earlier=earlier, later=later)).likely[0]
    assert (first.cause.code, first.confidence) == ("moved_log_probs", "high") and first.of_whole > 0.7
    named = float(str(first.parameters["move"]).removeprefix("times "))
    assert named == pytest.approx(factor if side == "trainer" else 1 / factor, rel=0.03)


@pytest.mark.parametrize("shift", [-1.0, -0.3])
def test_log_probs_that_were_shifted_are_told(shift: float) -> None:
    found = drawn(1.0)
    first = diagnose(replace(found, later=found.later + shift)).likely[0]
    assert first.cause.code == "moved_log_probs" and float(str(first.parameters["move"])) == pytest.approx(
        shift, rel=0.05
    )


@pytest.mark.parametrize("side", ["earlier", "later"])
def test_running_sums_in_place_of_log_probs_are_told_and_undone(side: str) -> None:
    found = drawn(1.0)
    own = getattr(found, side)
    sums = np.concatenate([np.cumsum(own[found.row == row]) for row in np.unique(found.row)])
    summed = replace(found, earlier=sums) if side == "earlier" else replace(found, later=sums)
    first = diagnose(summed).likely[0]
    assert (first.cause.code, first.confidence) == ("moved_log_probs", "high") and first.of_whole > 0.99
    assert first.share is not None and first.share.after == pytest.approx(found.mean(found.distance))
    assert ("running sums" if side == "earlier" else "summed up") in str(first.parameters["move"])


@pytest.mark.parametrize("temperature", [0.6, 0.8, 0.9, 1.1, 1.3])
def test_a_temperature_of_the_logits_is_no_multiplied_log_prob(temperature: float) -> None:
    assert not CAUSE["moved_log_probs"].test(drawn(temperature)).holds


@pytest.mark.parametrize("least", [-1.0, -3.0])
@pytest.mark.parametrize("side", ["sampler", "trainer"])
def test_log_probs_that_were_cut_off_stand_at_a_floor(least: float, side: str) -> None:
    found = healthy()
    earlier, later = (
        np.maximum(values, least) if name == side else values
        for name, values in (("sampler", found.earlier), ("trainer", found.later))
    )
    first = diagnose(replace(found, earlier=earlier, later=later)).likely[0]
    assert first.cause.code == "filler_values" and "a floor: none of its numbers is lower" in first.title


def test_an_honest_constant_that_explains_nothing_is_no_filler() -> None:
    found, draws = healthy(), np.random.default_rng(2)
    unlike = found.with_earlier(-draws.exponential(1.0, len(found)))
    few = draws.choice(len(found), 4, replace=False)
    for value in (-0.142, -1.0):
        same = unlike.with_earlier(np.where(np.isin(np.arange(len(found)), few), value, unlike.earlier))
        assert all(item.cause.code != "filler_values" or item.of_whole > 0 for item in diagnose(same).likely)
