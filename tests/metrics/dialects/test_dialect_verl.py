"""The verl dialect against verl's own output, and laws that hold whatever the numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import real_runs
from support.dialect_golden import GoldenRun, differences, golden_runs
from support.sizes import examples

from ratioscope.arrays import Array
from ratioscope.errors import ConfigError, SchemaError
from ratioscope.metrics.corrections.corrected_tokens import corrected_tokens
from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.dialects import verl
from ratioscope.metrics.dialects.verl.correction import correction_of
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.frame import metric_frame

RUNS = [run for run in golden_runs("verl") if run.version in verl.VERSIONS]
CASES = sorted({run.case for run in RUNS})

# A std that verl takes as a difference of squares is sqrt(1e-16) = 1e-8 off where the squares are equal; in float32 3e-4.
DOUBLE = {"rtol": 1e-7, "atol": {"_std": 2e-8, "": 1e-8}}
SINGLE = {"rtol": 1e-5, "atol": {"_std": 3e-4, "": 3e-7}}

LAWS = examples(60)
PRESETS = st.sampled_from([(version, name) for version, named in verl.PRESETS_OF.items() for name in named])


def evaluated(run: GoldenRun) -> Any:
    return verl.evaluate(run.inputs, run.config, version=run.version, kind=run.kind)


def in_case(case: str) -> list[GoldenRun]:
    return [run for run in RUNS if run.case == case]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("stored", "tolerance"), [("metrics_f64", DOUBLE), ("metrics", SINGLE)])
def test_metrics_are_verls(case: str, stored: str, tolerance: Mapping[str, Any]) -> None:
    wrong: dict[str, list[str]] = {}
    for run in in_case(case):
        found = evaluated(run)
        wanted = run.expected[stored]
        lines = differences(found.metrics, wanted, **tolerance)
        lines += [f"{name}: not verl's" for name in found.metrics.keys() - wanted.keys() - {"actor/pg_loss"}]
        wrong |= {str(run): lines} if lines else {}
    assert wrong == {}


@pytest.mark.parametrize("case", CASES)
def test_masks_and_weights_are_verls(case: str) -> None:
    runs = [run for run in in_case(case) if run.arrays]
    assert runs
    for run in runs:
        found = evaluated(run)
        assert np.array_equal(found.mask, run.arrays["response_mask"]), run
        weights = run.arrays.get("rollout_is_weights")
        if weights is None:
            assert found.weights is None, run
        else:
            assert found.weights is not None and found.weights.dtype == weights.dtype
            np.testing.assert_allclose(found.weights, weights, rtol=2e-5, err_msg=str(run))


@pytest.mark.parametrize("case", CASES)
def test_losses_are_verls(case: str) -> None:
    for run in in_case(case):
        if "scalars_f64" in run.expected:
            found = evaluated(run)
            assert differences(found.losses, run.expected["scalars_f64"], rtol=1e-7, atol=1e-8) == [], run
            assert found.metrics["actor/pg_loss"] == pytest.approx(found.losses["pg_loss"], nan_ok=True)


def arrays(rows: int, positions: int, seed: int, spread: float = 0.3) -> dict[str, Array]:
    """Random log-probs of three policies, float32, a ragged mask with at least one token in all."""
    rng = np.random.default_rng(seed)
    rollout = -rng.exponential(1.0, (rows, positions))
    old = rollout + spread * rng.standard_t(3, (rows, positions))
    current = old + 0.1 * rng.standard_normal((rows, positions))
    mask = rng.random((rows, positions)) < 0.8
    mask[0, 0] = True
    single = {"rollout_logprobs": rollout, "old_logprobs": old, "current_logprobs": current}
    single["advantages"] = rng.standard_normal((rows, positions))
    return {name: value.astype(np.float32) for name, value in single.items()} | {"mask": mask}


BATCHES = st.builds(
    arrays, st.integers(1, 5), st.integers(1, 9), st.integers(0, 10_000), st.sampled_from([0.01, 0.3, 8.0])
)


def preset(version: str, name: str) -> Mapping[str, Any]:
    return verl.PRESETS_OF[version][name]


@given(BATCHES, PRESETS)
@LAWS
def test_the_mask_never_grows_and_weights_stay_within_the_cap(batch: dict[str, Array], chosen: tuple[str, str]) -> None:
    found = verl.evaluate(batch, preset(*chosen), version=chosen[0], kind="rollout_correction")
    assert not (found.mask & ~batch["mask"]).any()
    if found.weights is not None:
        cap = verl.parse(preset(*chosen), chosen[0]).is_upper
        assert (found.weights >= 0).all() and (found.weights <= cap).all()
        assert (found.weights[~batch["mask"]] == 0).all()


@given(BATCHES, PRESETS)
@LAWS
def test_equal_policies_are_left_alone(batch: dict[str, Array], chosen: tuple[str, str]) -> None:
    batch |= {"old_logprobs": batch["rollout_logprobs"]}
    found = verl.evaluate(batch, preset(*chosen), version=chosen[0], kind="rollout_correction")
    assert np.array_equal(found.mask, batch["mask"])
    assert found.weights is None or np.array_equal(found.weights, batch["mask"].astype(np.float32))
    assert found.metrics["rollout_corr/kl"] == found.metrics["rollout_corr/k3_kl"] == 0.0


@given(BATCHES, PRESETS, st.floats(-50, 0), st.booleans())
@LAWS
def test_what_lies_outside_the_mask_changes_nothing(
    batch: dict[str, Array], chosen: tuple[str, str], noise: float, missing: bool
) -> None:
    outside = np.float32(np.nan if missing else noise)
    other = {n: np.where(batch["mask"], v, outside) if n != "mask" else v for n, v in batch.items()}
    found, changed = (verl.evaluate(each, preset(*chosen), version=chosen[0]) for each in (batch, other))
    assert differences(changed.metrics, found.metrics, rtol=1e-9, atol=1e-12) == []
    assert np.array_equal(changed.mask, found.mask)


@given(BATCHES, PRESETS)
@LAWS
def test_the_order_of_rows_does_not_matter(batch: dict[str, Array], chosen: tuple[str, str]) -> None:
    turned = {name: value[::-1] for name, value in batch.items()}
    found, changed = (verl.evaluate(each, preset(*chosen), version=chosen[0]) for each in (batch, turned))
    # a std of equal values, sqrt of their rounding
    assert differences(changed.metrics, found.metrics, rtol=1e-9, atol={"_std": 2e-7, "": 1e-12}) == []
    assert np.array_equal(changed.mask[::-1], found.mask)


@given(BATCHES)
@LAWS
def test_a_row_without_tokens_dilutes_row_means_and_leaves_token_means(batch: dict[str, Array]) -> None:
    batch |= {"mask": batch["mask"] | (np.arange(batch["mask"].shape[1]) == 0)}
    rows = len(batch["mask"])
    padded = {name: np.concatenate([value, np.zeros_like(value[:1])]) for name, value in batch.items()}
    found, changed = (verl.evaluate(each, kind="rollout_correction").metrics for each in (batch, padded))
    for name in ("kl", "k3_kl", "chi2_token"):
        assert changed[f"rollout_corr/{name}"] == pytest.approx(found[f"rollout_corr/{name}"])
    for name, empty in (("training_ppl", 1.0), ("training_log_ppl", 0.0), ("ppl_ratio", 1.0), ("log_ppl_diff", 0.0)):
        diluted = (found[f"rollout_corr/{name}"] * rows + empty) / (rows + 1)
        assert changed[f"rollout_corr/{name}"] == pytest.approx(diluted)
    assert changed["rollout_corr/log_ppl_diff_min"] <= 0 <= changed["rollout_corr/log_ppl_diff_max"]


@given(BATCHES, st.sampled_from(["0.5_2.0", "0.9_1.5"]), st.sampled_from([0.01, 0.3]))
@LAWS
def test_chained_options_keep_what_every_one_keeps(batch: dict[str, Array], pair: str, bound: float) -> None:
    options = {"token_k1": pair, "seq_max_k2": str(bound), "seq_mean_k3": str(bound)}
    config = {"rollout_rs": ",".join(options), "rollout_rs_threshold": ",".join(options.values())}
    together = verl.evaluate(batch, config, kind="rollout_correction").mask
    single = [
        verl.evaluate(batch, {"rollout_rs": name, "rollout_rs_threshold": limit}, kind="rollout_correction").mask
        for name, limit in options.items()
    ]
    assert np.array_equal(together, np.logical_and.reduce(single))


@given(BATCHES, PRESETS)
@LAWS
def test_every_preset_is_a_correction_of_ours(batch: dict[str, Array], chosen: tuple[str, str]) -> None:
    # within +-20, where verl clamps single tokens and ours does not
    batch |= {
        "old_logprobs": batch["rollout_logprobs"] + np.clip(batch["old_logprobs"] - batch["rollout_logprobs"], -9, 9)
    }
    found = verl.evaluate(batch, preset(*chosen), version=chosen[0], kind="rollout_correction")
    mask = batch["mask"]
    x = (batch["old_logprobs"].astype(np.float64) - batch["rollout_logprobs"]).ravel()
    rows = np.repeat(np.arange(len(mask)), mask.shape[1])
    ours = corrected_tokens(correction_of(verl.parse(preset(*chosen), chosen[0])), x, rows, mask.ravel())
    assert np.array_equal(ours.mask, found.mask.ravel())
    if found.weights is not None:
        np.testing.assert_allclose(np.where(ours.sampled, ours.weight, 0.0), found.weights.ravel(), rtol=2e-5)


@given(BATCHES)
@LAWS
def test_workers_average_micro_batches_and_divide_by_the_tokens_before_rejection(batch: dict[str, Array]) -> None:
    batch |= {"mask": batch["mask"] | (np.arange(batch["mask"].shape[1]) == 0)}
    config, rows = preset("0.9.1", "bypass_pg_geo_rs_token_tis"), len(batch["mask"])
    found = verl.evaluate(batch, config, micro_batches=[[row] for row in range(rows)])
    single = [verl.evaluate({n: v[[row]] for n, v in batch.items()}, config) for row in range(rows)]
    for name in ("rollout_corr/kl", "rollout_corr/log_ppl_diff_max"):
        assert found.metrics[name] == pytest.approx(np.mean([each.metrics[name] for each in single]), abs=1e-12)
    assert np.array_equal(found.mask, np.concatenate([each.mask for each in single]))
    kept = np.where(found.mask, found.arrays["pg_losses"], 0.0)
    assert found.losses["pg_loss"] == pytest.approx(kept.sum() / batch["mask"].sum())


def test_a_step_logs_the_correction_the_probabilities_and_the_loss() -> None:
    batch = arrays(3, 5, 0)
    found = verl.evaluate(batch, preset("0.9.1", "decoupled_token_is"))
    parts = ("rollout_correction", "debug_metrics", "ppo_clip_loss")
    each = [verl.evaluate(batch, preset("0.9.1", "decoupled_token_is"), kind=kind).metrics for kind in parts]
    assert found.metrics == each[0] | each[1] | each[2]
    del batch["current_logprobs"]
    assert verl.evaluate(batch, preset("0.9.1", "decoupled_token_is")).metrics == each[0] | each[1]


def test_bypass_with_ppo_clip_applies_no_weights() -> None:
    found = verl.evaluate(arrays(3, 5, 0), {"rollout_is": "token", "bypass_mode": True})
    assert found.weights is None and "rollout_corr/rollout_is_mean" in found.metrics
    assert any("never applies" in warning for warning in found.warnings)


def test_icepop_that_drops_everything_has_no_effective_sample() -> None:
    batch = {"rollout_logprobs": np.full((2, 2), -1.0), "old_logprobs": np.full((2, 2), -5.0)}
    found = verl.evaluate(batch, {"rollout_is": "token", "rollout_is_threshold": "0.5_2.0"}, kind="rollout_correction")
    assert found.metrics["rollout_corr/rollout_is_eff_sample_size"] == 0.0
    assert found.weights is not None and not found.weights.any()


def test_canonical_metrics_of_a_real_run_agree_where_the_notes_say_so() -> None:
    records = real_runs.records("trl_vllm_stale4")
    last = records.filter(pc.equal(records["step"], pc.max(records["step"])))
    frame = metric_frame(pl.DataFrame(statistics(last))).row(0, named=True)
    found = verl.evaluate(last, kind="rollout_correction").metrics | verl.evaluate(last, kind="debug_metrics").metrics
    exact = [name for name, canonical in verl.CANONICAL.items() if name in found and canonical is not None]
    assert len(exact) >= 11
    for name in exact:
        assert found[name] == pytest.approx(frame[str(verl.CANONICAL[name])], rel=1e-6), name


def test_every_name_and_every_canonical_name_exists() -> None:
    known = {f"{gap}/{metric.name}" for metric in METRICS for gap in metric.gaps}
    assert {canonical for canonical in verl.CANONICAL.values() if canonical} <= known
    emitted = {name for run in RUNS for name in run.expected["metrics"]}
    assert emitted <= verl.CANONICAL.keys() and emitted <= verl.NOTES.keys()


@pytest.mark.parametrize("kind", ["rollout_correction", "current_vs_rollout", "bypass_loss", "ppo_clip_loss"])
def test_a_batch_without_a_valid_token_is_refused_as_in_verl(kind: str) -> None:
    batch = arrays(2, 3, 0) | {"mask": np.zeros((2, 3), np.bool_)}
    with pytest.raises(SchemaError, match="no valid token"):
        verl.evaluate(batch, kind=kind)
    assert verl.evaluate(batch, kind="debug_metrics").metrics["training/rollout_probs_diff_valid"] == 0.0


def test_shapes_that_differ_are_refused_as_in_verl() -> None:
    for name in ("old_logprobs", "mask"):
        batch = arrays(2, 3, 0)
        with pytest.raises(SchemaError, match="shape"):
            verl.evaluate(batch | {name: batch[name][:, :2]}, kind="rollout_correction")


def test_bypass_without_rollout_logprobs_is_refused_as_in_verl() -> None:
    batch = arrays(2, 3, 0)
    del batch["rollout_logprobs"]
    with pytest.raises(SchemaError, match="no 'rollout_logprobs'"):
        verl.evaluate(batch, preset("0.9.1", "bypass_ppo_clip"))


def test_unknown_kinds_and_versions_are_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="kind is 'loss'; allowed: one of 'step', 'rollout_correction'"):
        verl.evaluate(arrays(1, 2, 0), kind="loss")
    with pytest.raises(ConfigError, match="version is '0.5'; allowed: one of '0.9.1'"):
        verl.evaluate(arrays(1, 2, 0), version="0.5")
    with pytest.raises(
        ConfigError, match="version is '0.7.0', older than .* wanted one of '0.9.1', '0.7.1': choose the nearest"
    ):
        verl.evaluate(arrays(1, 2, 0), version="0.7.0", kind="rollout_correction")
