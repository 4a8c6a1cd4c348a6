"""Corrections: against loops written from the definitions, by identities, and by what must hold for any data."""

import math
from typing import Any

import numpy as np
import polars as pl
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.real_runs import records
from support.sizes import examples

from ratioscope.errors import ConfigError
from ratioscope.metrics.corrections.corrected_tokens import CorrectedTokens, corrected_tokens
from ratioscope.metrics.corrections.correction import (
    CORRECTIONS,
    NONE,
    Correction,
    Normalise,
    Reject,
    Weigh,
    mask,
    off_policy_clip,
    reject,
    truncate,
)
from ratioscope.metrics.corrections.effect import (
    EFFECTS,
    SUMS,
    carried_out,
    compared_values,
    corrected_weights,
    correction_sums,
    effect_values,
    merged_weights,
)
from ratioscope.metrics.dialects.effect import dialect_sums
from ratioscope.metrics.distribution import LEVELS, histogram

sequences = st.lists(arrays(np.float64, st.integers(0, 6), elements=st.floats(-8, 8)), min_size=1, max_size=5)


def apply(correction: Correction, ragged: list[Any]) -> tuple[CorrectedTokens, list[slice]]:
    lengths = [len(x) for x in ragged]
    ends = np.cumsum(lengths)
    flat = np.concatenate([*ragged, np.empty(0)])
    result = corrected_tokens(
        correction, flat, np.repeat(np.arange(len(ragged)), lengths), np.ones(len(flat), np.bool_)
    )
    return result, [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]


def level_weight(x: Any, t: int, level: str) -> float:
    return math.exp({"token": x[t], "sequence": x.sum(), "geometric": x.mean()}[level])


@given(sequences, st.sampled_from(LEVELS), st.floats(0.1, 1), st.floats(1, 4), st.sampled_from(["clamp", "zero"]))
@examples(60)
def test_weights_are_those_of_the_definition(
    ragged: list[Any], level: Any, low: float, high: float, outside: Any
) -> None:
    result, spans = apply(Correction("c", (Weigh(level, low, high, outside),)), ragged)
    for x, span in zip(ragged, spans, strict=True):
        for t, found in enumerate(result.weight[span]):
            raw = level_weight(x, t, level)
            held = min(max(raw, low), high) if outside == "clamp" else (raw if low <= raw <= high else 0.0)
            # A raw weight within rounding of a bound may fall on either side of it.
            assert found == pytest.approx(held, rel=1e-12) or min(abs(raw / low - 1), abs(raw / high - 1)) < 1e-12


@given(
    sequences, st.sampled_from(["weight", "k1", "k2", "k3"]), st.sampled_from(["token", "sum", "mean", "max", "any"])
)
@examples(80)
def test_rejection_keeps_what_the_definition_keeps(ragged: list[Any], of: Any, by: Any) -> None:
    low, high = (0.5, 2.0) if of == "weight" else (-0.7, 0.9)
    result, spans = apply(reject(of, by, low=low, high=high), ragged)
    for x, span in zip(ragged, spans, strict=True):
        values = {"weight": x, "k1": -x, "k2": x**2 / 2, "k3": np.expm1(x) - x}[of]
        bounds = (math.log(low), math.log(high)) if of == "weight" else (low, high)
        inside = [bounds[0] <= value <= bounds[1] for value in values]
        reduced = {"sum": values.sum, "mean": values.mean, "max": values.max}.get(by) if len(x) else None
        if reduced is not None:
            inside = [bool(bounds[0] <= reduced() <= bounds[1])] * len(x)
        elif by == "any":
            inside = [all(inside)] * len(x)
        assert result.mask[span].tolist() == inside


@given(sequences, st.sampled_from(CORRECTIONS))
@examples(60)
def test_no_correction_adds_to_the_mask_or_leaves_its_bounds(ragged: list[Any], correction: Correction) -> None:
    result, _ = apply(correction, ragged)
    assert not (result.mask & ~result.sampled).any()
    assert (result.weight >= 0).all()
    caps = [step.high for step in correction.steps if isinstance(step, Weigh)]
    assert not caps or (result.weight <= caps[0]).all()


@given(sequences)
@examples(40)
def test_levels_agree_on_sequences_of_one_token(ragged: list[Any]) -> None:
    single = [x[:1] for x in ragged]
    weights = [apply(truncate(3.0, level=level), single)[0].weight for level in LEVELS]
    np.testing.assert_allclose(weights[1], weights[0])
    np.testing.assert_allclose(weights[2], weights[0])


def test_normalised_weights_have_mean_one() -> None:
    ragged = [np.array([0.1, -0.4, 2.0]), np.array([-1.0])]
    by_token, _ = apply(Correction("c", (Weigh("token"), Normalise("token"))), ragged)
    assert by_token.weight.mean() == pytest.approx(1.0)
    by_sequence, spans = apply(Correction("c", (Weigh("token"), Normalise("sequence"))), ragged)
    assert np.mean([by_sequence.weight[span].mean() for span in spans]) == pytest.approx(1.0)


def test_a_later_step_may_see_what_an_earlier_one_left() -> None:
    x = [np.array([5.0, 0.1, 0.1])]
    steps = (Reject("weight", "token", high=2.0), Weigh("sequence", over="remaining"))
    assert apply(Correction("c", steps), x)[0].weight[1] == pytest.approx(math.exp(0.2))


def test_nan_is_taken_out_and_minus_infinity_is_a_weight_of_zero() -> None:
    result, _ = apply(truncate(2.0), [np.array([math.nan, -math.inf, 0.0])])
    assert result.sampled.tolist() == [False, True, True]
    assert result.weight[1:].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("build", "says"),
    [(lambda: truncate(0.5, low=2.0), "low <= high"), (lambda: mask(-1.0, 2.0), "never below 0"),
     (lambda: Correction("c", (Weigh(), Weigh())), "one Weigh")],
)  # fmt: skip
def test_bounds_that_cannot_be_meant_are_refused(build: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()


def test_no_correction_changes_nothing_and_unbounded_weights_are_the_raw_ones() -> None:
    table = records("trl_vllm_stale4")
    sums = correction_sums(table, (NONE, truncate(math.inf)))
    none, raw = (_effects(sums, name) for name in ("none", truncate(math.inf).name))
    assert (
        (none["clipped_share"] == 0).all() and (none["removed_share"] == 0).all() and (none["mean_weight"] == 1).all()
    )
    np.testing.assert_allclose(raw["ess_after"], raw["ess_before"])
    assert (raw["bias"] == 0).all()


def test_trl_truncation_of_a_real_run_is_the_one_trl_logged() -> None:
    """TRL logs the mean of the truncated ratio over tokens; its cap of 3 is never met in the healthy run."""
    effects = _effects(correction_sums(records("trl_vllm_base"), (truncate(3.0),)), truncate(3.0).name)
    assert effects["mean_weight"][0] == pytest.approx(0.9999367594718933, rel=2e-7)
    assert (effects["clipped_share"] == 0).all()


def test_a_correction_of_the_whole_gap_reads_current_over_rollout() -> None:
    sums = correction_sums(records("trl_vllm_base"), (off_policy_clip(0.8, 1.2),))
    assert set(sums["gap"].to_pylist()) == {"total"}
    assert (_effects(sums, off_policy_clip(0.8, 1.2).name)["clipped_share"] > 0).any()
    assert not len(correction_sums(records("vllm_base_fp32"), (off_policy_clip(0.8, 1.2),)))


def test_truncation_trades_variance_for_bias_on_a_stale_run() -> None:
    table = records("trl_vllm_stale4")
    loose, tight = (_effects(correction_sums(table, (c,)), c.name) for c in (truncate(3.0), truncate(1.2)))
    assert (tight["bias"] >= loose["bias"]).all() and (tight["variance"] <= loose["variance"] + 1e-12).all()
    assert set(loose) == {effect.name for effect in EFFECTS}


def test_the_mass_removed_is_what_the_weights_lose() -> None:
    sums = {name: np.array([2.0, 0.0]) for name in SUMS} | {"sum_weight": np.array([8.0, 0.0])}
    values = compared_values(sums)
    assert values["mass_removed"][0] == 0.75 and math.isnan(values["mass_removed"][1])
    assert set(values) == {effect.name for effect in EFFECTS} | {"mass_removed"}


def test_the_weights_left_of_several_steps_are_counted_together() -> None:
    each = list(carried_out(records("trl_vllm_stale4"), truncate(1.2)))
    left = [corrected_weights(step) for step in each]
    frame = pl.DataFrame(
        [{"buckets": buckets.tolist(), "counts": counts.tolist()} for buckets, counts in left]
        + [{"buckets": None, "counts": None}],
        schema={"buckets": pl.List(pl.Int64), "counts": pl.List(pl.Float64)},
    )
    merged = merged_weights(frame)
    kept = np.concatenate([step.result.weight[step.result.mask & (step.result.weight > 0)] for step in each])
    whole = histogram(np.log(kept))
    assert merged.buckets.tolist() == whole.buckets.tolist() and merged.counts.tolist() == whole.counts.tolist()
    assert np.isnan(merged.log_sum_weights).all()


def _effects(sums: Any, name: str) -> dict[str, Any]:
    rows = sums.filter([value == name for value in sums["correction"].to_pylist()])
    return effect_values({column: rows[column].to_numpy() for column in SUMS})


def test_the_effect_of_slices_adds_up_to_that_of_the_whole() -> None:
    table, correction = records("trl_vllm_stale4"), truncate(1.5, level="sequence")
    whole = correction_sums(table, (correction,))
    rows = correction_sums(table, (correction,), table["rollout_version_min"])
    lengths = pc.list_value_length(table["mask"]).to_numpy().tolist()
    tokens = correction_sums(table, (correction,), [[str(min(t, 5)) for t in range(n)] for n in lengths])
    assert len(set(rows["key"].to_pylist())) > 1 and len(set(tokens["key"].to_pylist())) == 6
    for column in SUMS:
        if "sequences" not in column:  # a slice by token cuts sequences
            assert tokens[column].to_numpy().sum() == pytest.approx(whole[column].to_numpy().sum()), column
        assert rows[column].to_numpy().sum() == pytest.approx(whole[column].to_numpy().sum()), column


@pytest.mark.parametrize(
    ("name", "config", "correction"),
    [
        ("verl", {"rollout_is": "token", "rollout_is_threshold": 1.2}, truncate(1.2)),
        (
            "slime",
            {"method": "vanilla_tis", "args": {"use_tis": True, "tis_clip": 1.2, "tis_clip_low": 0.0}},
            truncate(1.2),
        ),
    ],
)
def test_a_trainers_own_correction_has_the_effect_of_ours(name: str, config: Any, correction: Correction) -> None:
    table = records("trl_vllm_stale4")
    theirs = dialect_sums(table, name, config, title="theirs")
    ours = correction_sums(table, (correction,))
    assert len(theirs) == len(ours)
    for column in SUMS:  # trainers weigh in float32
        np.testing.assert_allclose(theirs[column].to_numpy(), ours[column].to_numpy(), rtol=1e-4, atol=1e-4)
