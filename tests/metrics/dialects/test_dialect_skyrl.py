"""SkyRL's dialect against what SkyRL's own code returned, and laws of its correction."""

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

from ratioscope.errors import ConfigError, SchemaError
from ratioscope.metrics.dialects import skyrl
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.frame import metric_frame

RUNS = golden_runs("skyrl")
LOSS = "policy/loss_metrics/"
LAWS = examples(40)


def batch(rows: int = 4, positions: int = 7, *, spread: float = 0.3, seed: int = 0) -> dict[str, Any]:
    """Right-aligned responses of different lengths."""
    noise = np.random.default_rng(seed).normal(0, 1, (4, rows, positions)).astype(np.float32)
    rollout = -np.abs(noise[0]) - np.float32(0.1)
    return {
        "rollout_logprobs": rollout,
        "old_logprobs": rollout + np.float32(spread) * noise[1],
        "current_logprobs": rollout + np.float32(spread) * noise[2],
        "mask": np.arange(positions) >= np.arange(rows)[:, None],
        "advantages": noise[3],
    }


def corrected_by(**correction: Any) -> dict[str, Any]:
    return {"off_policy_correction": correction}


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_metrics_are_what_skyrl_logged(run: GoldenRun) -> None:
    found = skyrl.evaluate(run.inputs, run.config, kind=run.kind)
    assert not differences(found.metrics, run.expected["reported"], rtol=1e-6)
    assert set(found.metrics) == set(run.expected["reported"])
    assert found.losses["policy_loss"] == pytest.approx(run.expected["loss_sum"], rel=1e-6)
    # the old log-probs lie in the file even where SkyRL skipped the pass that makes them
    skipped = "policy/rollout_train_logprobs_abs_diff_mean" not in found.metrics
    assert skipped == run.expected["policy_forward_skipped"]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_weights_mask_and_losses_per_token_are_what_skyrl_formed(run: GoldenRun) -> None:
    found = skyrl.evaluate(run.inputs, run.config, kind=run.kind)
    named = {"tis_ratio": found.weights, "loss_mask_after": found.mask, **found.arrays}
    wanted = {name: value for name, value in run.arrays.items() if not name.startswith("grad")}
    for name, value in wanted.items():
        np.testing.assert_allclose(np.asarray(named[name], np.float64), value, rtol=1e-6, err_msg=name)


def test_the_golden_runs_reach_both_kinds_of_weights() -> None:
    """So that the comparison above cannot pass by comparing nothing."""
    shapes = {run.arrays["tis_ratio"].shape[1] == 1 for run in RUNS if "tis_ratio" in run.arrays}
    assert shapes == {True, False}


def test_canonical_metrics_of_a_real_run_agree_in_one_micro_batch() -> None:
    records = real_runs.records("trl_vllm_stale4")
    last = records.filter(pc.equal(records["step"], pc.max(records["step"])))
    frame = metric_frame(pl.DataFrame(statistics(last))).row(0, named=True)
    found = skyrl.evaluate(last, skyrl.PRESETS["token_tis"]).metrics
    exact = [name for name, canonical in skyrl.CANONICAL.items() if name in found and canonical is not None]
    assert len(exact) >= 3
    for name in exact:
        assert found[name] == pytest.approx(frame[str(skyrl.CANONICAL[name])], rel=1e-6), name


def test_every_number_has_a_card_and_every_note_a_number() -> None:
    emitted = {name for preset in skyrl.PRESETS.values() for name in skyrl.evaluate(batch(), preset).metrics}
    assert emitted <= skyrl.CANONICAL.keys() and skyrl.NOTES.keys() <= skyrl.CANONICAL.keys()


def test_bfloat16_log_probs_are_compared_with_bounds_rounded_like_them() -> None:
    """In bfloat16 the bound 1.01 is 1.0078125, and so is a ratio of 1.009: it is kept, in float32 1.0095 is kept too."""
    given = batch(1, 1)
    zeros = np.zeros((1, 1), np.float32)
    given |= {"rollout_logprobs": zeros, "current_logprobs": zeros, "old_logprobs": zeros + np.float32(0.0109)}
    config = corrected_by(sequence_mask_metric="geometric")
    assert not skyrl.evaluate(given, {"trainer_algorithm": config}).mask.any()
    assert skyrl.evaluate(given, {"trainer_algorithm": config, "dtype": "bfloat16"}).mask.all()


def test_equal_policies_read_as_a_perfect_match() -> None:
    found = skyrl.evaluate(batch(spread=0.0), corrected_by(tis_ratio_type="token", sequence_mask_metric="product"))
    assert found.weights is not None and (found.weights == 1).all()
    assert (found.mask == batch()["mask"]).all()
    zero = ["rollout_train_logprobs_abs_diff_mean", "rollout_train_logprobs_abs_diff_std"]
    zero += ["minibatch_rollout_logprobs_abs_diff_mean", "minibatch_rollout_logprobs_abs_diff_std"]
    zero += ["loss_metrics/tis_token_clip_high_ratio", "loss_metrics/product_sequence_mask_masked_ratio"]
    assert [found.metrics["policy/" + name] for name in zero] == [0.0] * len(zero)
    assert found.metrics[LOSS + "is_ratio_mean"] == 1.0


def test_a_dropped_sequence_has_weight_one_and_counts_as_kept_by_the_next_mask() -> None:
    given = batch(2, 5, spread=0.01)
    given["old_logprobs"] = given["old_logprobs"].copy()
    given["old_logprobs"][1, -1] -= 12.0
    found = skyrl.evaluate(
        given,
        corrected_by(outlier_token_is_threshold_low=1e-4, tis_ratio_type="sequence", sequence_mask_metric="product"),
    )
    assert found.mask.any(axis=1).tolist() == [True, False]
    assert found.weights is not None and found.weights[1, 0] == 1.0
    assert found.metrics[LOSS + "outlier_seq_masked_ratio"] == 0.5
    assert found.metrics[LOSS + "product_sequence_mask_masked_ratio"] == 0.0


def test_padding_alone_makes_is_ratio_std_one_half() -> None:
    """The trap SkyRL's name hides: no mismatch at all, half of the positions padded."""
    given = batch(4, 8, spread=0.0) | {"mask": np.tile(np.arange(8) >= 4, (4, 1))}
    metrics = skyrl.evaluate(given, corrected_by(tis_ratio_type="token")).metrics
    assert metrics[LOSS + "is_ratio_std"] == pytest.approx(0.5, rel=0.05)
    assert metrics[LOSS + "is_ratio_min"] == 0.0
    assert LOSS + "is_ratio_std" in skyrl.NOTES


def test_means_of_unequal_micro_batches_are_means_of_means() -> None:
    given = batch(3, 6)
    given["mask"] = np.arange(6) >= np.array([[5], [0], [0]])
    gaps = np.abs(given["current_logprobs"] - given["rollout_logprobs"])
    per_row = [gaps[row][given["mask"][row]].mean() for row in range(3)]
    metrics = skyrl.evaluate(given, {"trainer_algorithm": {}, "micro_batch_size": 1}).metrics
    assert metrics["policy/minibatch_rollout_logprobs_abs_diff_mean"] == pytest.approx(np.mean(per_row), rel=1e-6)
    listed = skyrl.evaluate(given, {}, micro_batches=[[0], [1], [2]]).metrics
    assert listed == metrics


@pytest.mark.parametrize("reduction", ["token_mean", "token_mean_legacy", "sequence_mean", "prompt_mean"])
def test_a_constant_advantage_and_no_update_give_minus_that_advantage(reduction: str) -> None:
    """Every mean of equal losses is that loss, whatever it is a mean over."""
    given = batch(4, 6)
    given |= {
        "advantages": np.full(4, 0.25),
        "current_logprobs": given["old_logprobs"],
        "group_ids": np.array([7, 7, 2, 2]),
    }
    config = {"trainer_algorithm": {"loss_reduction": reduction}, "micro_batch_size": 2}
    assert skyrl.evaluate(given, config).metrics["policy/policy_loss"] == pytest.approx(-0.25, rel=1e-6)


def test_a_fixed_norm_divides_by_rows_times_max_seq_len() -> None:
    given = batch(4, 6)
    given |= {"advantages": np.full(4, 1.0), "current_logprobs": given["old_logprobs"]}
    config = {"loss_reduction": "seq_mean_token_sum_norm", "max_seq_len": 12}
    loss = skyrl.evaluate(given, config).metrics["policy/policy_loss"]
    assert loss == pytest.approx(-given["mask"].sum() / 48, rel=1e-6)


def test_ranks_sum_losses_and_average_the_rest() -> None:
    given = batch(4, 6)
    one = skyrl.evaluate(given, {"trainer_algorithm": {}}).metrics
    two = skyrl.evaluate(given, {"trainer_algorithm": {}, "dp_size": 2}).metrics
    assert two["policy/policy_loss"] == pytest.approx(one["policy/policy_loss"], rel=1e-6)
    halves = [skyrl.evaluate({k: v[rows] for k, v in given.items()}, {}) for rows in (slice(0, 2), slice(2, 4))]
    name = "policy/minibatch_rollout_logprobs_abs_diff_mean"
    assert two[name] == pytest.approx(np.mean([half.metrics[name] for half in halves]), rel=1e-6)


def test_rollout_anchored_losses_weigh_by_current_over_rollout() -> None:
    given = batch(spread=0.2)
    ratio = np.exp(given["current_logprobs"] - given["rollout_logprobs"])
    strict = skyrl.evaluate(given, skyrl.PRESETS["rollout_is"]).weights
    capped = skyrl.evaluate(given, {"policy_loss_type": "cispo", "cispo": {"cispo_anchor": "rollout"}}).weights
    assert strict is not None and capped is not None
    np.testing.assert_allclose(strict, np.where((ratio > 0.8) & (ratio < 1.2), ratio, 0), rtol=1e-6)
    np.testing.assert_allclose(capped, np.clip(ratio, 0, 5), rtol=1e-6)
    assert skyrl.evaluate(given, {"policy_loss_type": "cispo"}).weights is None


@pytest.mark.parametrize("kind", ["binary_tv", "binary_kl"])
def test_dppo_stops_tokens_that_moved_far_the_way_their_advantage_pushes(kind: str) -> None:
    log = np.log(np.array([[0.1, 0.1, 0.9, 0.9, 0.5]], np.float32))
    moved = np.log(np.array([[0.9, 0.9, 0.1, 0.1, 0.51]], np.float32))
    given = {"rollout_logprobs": log, "current_logprobs": moved, "advantages": np.array([[1, -1, 1, -1, 1]])}
    found = skyrl.evaluate(given, {"policy_loss_type": "dppo", "dppo": {"dppo_type": kind}})
    assert found.weights is not None
    assert (found.weights == 0).tolist() == [[True, False, False, True, False]]
    assert found.metrics[LOSS + "clip_ratio"] == pytest.approx(0.4)


def test_clip_cov_leaves_the_loss_open_where_chance_decides() -> None:
    given = batch(6, 9)
    bounds = {"clip_cov_lb": -50.0, "clip_cov_ub": 50.0}
    some = {"policy_loss_type": "clip_cov", "clip_cov": {"clip_ratio": 0.1, **bounds}}
    none = {"policy_loss_type": "clip_cov", "clip_cov": {"clip_ratio": 0.1, "clip_cov_lb": 49.0, "clip_cov_ub": 50.0}}
    assert np.isnan(skyrl.evaluate(given, some).metrics["policy/policy_loss"])
    assert skyrl.evaluate(given, some).metrics[LOSS + "clip_ratio"] == pytest.approx(3 / 39)
    assert skyrl.evaluate(given, none).metrics["policy/policy_loss"] == pytest.approx(
        skyrl.evaluate(given, {}).metrics["policy/policy_loss"]
    )


def test_a_single_token_has_no_standard_deviation() -> None:
    metrics = skyrl.evaluate(batch(1, 1), corrected_by(tis_ratio_type="token")).metrics
    assert np.isnan(metrics[LOSS + "is_ratio_std"])
    assert np.isnan(metrics["policy/rollout_train_logprobs_abs_diff_std"])


def test_a_fully_masked_batch_reports_zeros_and_no_training_batch_difference() -> None:
    given = batch() | {"mask": np.zeros((4, 7))}
    metrics = skyrl.evaluate(given, corrected_by(tis_ratio_type="token")).metrics
    assert "policy/rollout_train_logprobs_abs_diff_mean" not in metrics
    assert metrics["policy/minibatch_rollout_logprobs_abs_diff_mean"] == 0.0
    assert metrics[LOSS + "is_ratio_mean"] == 0.0


def test_a_batch_without_current_log_probs_still_shows_the_correction() -> None:
    given = batch()
    partial = {name: given[name] for name in ("rollout_logprobs", "old_logprobs", "mask")}
    whole, part = (skyrl.evaluate(each, skyrl.PRESETS["token_tis"]) for each in (given, partial))
    assert part.metrics.items() <= whole.metrics.items()
    assert LOSS + "tis_token_clip_high_ratio" in part.metrics
    assert any("current_logprobs" in each for each in part.warnings)


def test_what_a_loss_reads_and_the_batch_lacks_is_named() -> None:
    given = {name: value for name, value in batch().items() if name != "old_logprobs"}
    with pytest.raises(SchemaError, match="no 'old_logprobs', which regular reads"):
        skyrl.evaluate(given, {})
    skyrl.evaluate(given, skyrl.PRESETS["rollout_is"])


def test_rows_outside_every_mini_batch_are_not_touched() -> None:
    given = batch(4, 6, spread=2.0)
    correction = skyrl.PRESETS["token_mask"]["off_policy_correction"] | {"tis_ratio_type": "token"}
    whole, part = (
        skyrl.evaluate(given, {"trainer_algorithm": {"off_policy_correction": correction}} | cut)
        for cut in ({}, {"mini_batch_boundaries": [[0, 2]]})
    )
    assert whole.weights is not None and part.weights is not None
    assert (part.mask[:2] == whole.mask[:2]).all() and (part.mask[2:] == given["mask"][2:]).all()
    assert (part.weights[:2] == whole.weights[:2]).all() and (part.weights[2:] == 1).all()
    assert not (whole.mask[2:] == given["mask"][2:]).all()


def test_boundaries_of_another_batch_are_refused() -> None:
    with pytest.raises(ConfigError, match="mini_batch_boundaries is .2, 9.; allowed: .start, end. rows within the 4"):
        skyrl.evaluate(batch(4), {"trainer_algorithm": {}, "mini_batch_boundaries": [[0, 2], [2, 9]]})


bounds = st.sampled_from([None, 0.5, 0.9, 1.1, 2.0])
stacks = st.fixed_dictionaries(
    {
        "tis_ratio_type": st.sampled_from([None, "token", "sequence"]),
        "sequence_mask_metric": st.sampled_from([None, "geometric", "product"]),
        "outlier_token_is_threshold_low": bounds,
        "outlier_token_is_threshold_high": bounds,
        "token_mask_is_threshold_low": bounds,
        "token_mask_is_threshold_high": bounds,
    }
)


@LAWS
@given(stacks, st.integers(0, 10**6), st.sampled_from([0.01, 0.3, 30.0]))
def test_a_correction_only_removes_tokens_and_never_exceeds_its_cap(
    stack: dict[str, Any], seed: int, spread: float
) -> None:
    given = batch(seed=seed, spread=spread)
    found = skyrl.evaluate(given, corrected_by(**stack))
    assert not (found.mask & ~given["mask"]).any()
    assert (found.weights is None) == (stack["tis_ratio_type"] is None)
    if found.weights is not None:
        cap = 2.0 if stack["tis_ratio_type"] == "token" else 5.0
        assert ((found.weights >= 0) & (found.weights <= cap)).all()


@LAWS
@given(stacks, st.permutations(range(4)), st.integers(0, 10**6))
def test_the_order_of_rows_changes_no_number(stack: dict[str, Any], order: list[int], seed: int) -> None:
    given = batch(seed=seed)
    moved = {name: value[order] for name, value in given.items()}
    first, second = (skyrl.evaluate(each, corrected_by(**stack)) for each in (given, moved))
    assert second.metrics == pytest.approx(first.metrics, rel=1e-5, abs=1e-7)
    assert (second.mask == first.mask[order]).all()


@LAWS
@given(stacks, st.integers(0, 10**6))
def test_more_padding_changes_only_what_runs_over_padding(stack: dict[str, Any], seed: int) -> None:
    given = batch(seed=seed)
    wider = {name: np.pad(value, ((0, 0), (3, 0))) for name, value in given.items()}
    first, second = (skyrl.evaluate(each, corrected_by(**stack)).metrics for each in (given, wider))
    over_padding = [name for name in first if name.endswith(("is_ratio_std", "is_ratio_min", "abs_diff_min"))]
    same = {name: value for name, value in first.items() if name not in over_padding}
    assert {name: second[name] for name in same} == pytest.approx(same, rel=1e-5, abs=1e-7)
