"""Numbers above 0 in place of log-probs: named with the side and with the form that the numbers have."""

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
