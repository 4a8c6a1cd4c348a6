"""Laws of slime's averages, losses and hooks, and the traps its names hide."""

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import real_runs
from support.sizes import examples

from ratioscope.errors import SchemaError
from ratioscope.metrics.dialects import slime
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.frame import metric_frame

LAWS = examples(40)
LENGTHS = (5, 3, 8, 1)


def batch(*, spread: float = 0.3, seed: int = 0) -> dict[str, Any]:
    """Four ragged samples, end to end, with a hole in each longer one."""
    tokens = sum(LENGTHS)
    noise = np.random.default_rng(seed).normal(0, 1, (4, tokens)).astype(np.float32)
    mask = np.ones(tokens)
    mask[[1, 6, 12]] = 0
    rollout = -np.abs(noise[0]) - np.float32(0.1)
    return {
        "response_lengths": np.array(LENGTHS),
        "rollout_logprobs": rollout,
        "old_logprobs": rollout + np.float32(spread) * noise[1],
        "current_logprobs": rollout + np.float32(spread) * noise[2],
        "mask": mask,
        "advantages": np.repeat(noise[3, :4], LENGTHS),
    }


def mis(**keys: Any) -> dict[str, Any]:
    quiet = {"use_rs": False, "rs_veto_threshold": None, "tis_batch_normalize": False}
    return slime.PRESETS["mis"] | quiet | keys


def per_sample(values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    return np.split(values, np.cumsum(LENGTHS)[:-1])


def test_canonical_metrics_of_a_real_run_agree_level_by_level() -> None:
    """Means over sequences in slime's default mode, over tokens in its per-token mode; its float32 K3 is coarse."""
    records = real_runs.records("trl_vllm_stale4")
    last = records.filter(pc.equal(records["step"], pc.max(records["step"])))
    frame = metric_frame(pl.DataFrame(statistics(last))).row(0, named=True)
    whole = (
        "training_log_ppl",
        "training_ppl",
        "rollout_log_ppl",
        "rollout_ppl",
        "log_ppl_diff",
        "ppl_ratio",
        "chi2_seq",
    )
    per_token = ("kl", "k3_kl", "chi2_token", "tis_weight_before_bound")
    for names, by_token in ((whole, False), (per_token, True)):
        found = slime.evaluate(last, mis() | {"calculate_per_token_loss": by_token}).metrics
        for name in (f"train/mis_{each}" for each in names):
            assert found[name] == pytest.approx(frame[str(slime.CANONICAL[name])], rel=1e-5), name
    found = slime.evaluate(last, {"calculate_per_token_loss": True}).metrics
    name = "train/train_rollout_logprob_abs_diff"
    assert found[name] == pytest.approx(frame[str(slime.CANONICAL[name])], rel=1e-6)


def test_every_number_has_a_card_and_every_note_a_number() -> None:
    emitted = {name for preset in slime.PRESETS.values() for name in slime.evaluate(batch(), preset).metrics}
    assert emitted <= slime.CANONICAL.keys() and slime.NOTES.keys() <= slime.CANONICAL.keys()


def test_the_default_mean_is_over_rollouts_and_per_token_over_tokens() -> None:
    given = batch()
    gaps = np.abs(given["old_logprobs"] - given["rollout_logprobs"])
    rows = list(zip(per_sample(gaps), per_sample(given["mask"]), strict=True))
    name = "train/train_rollout_logprob_abs_diff"
    by_rollout = slime.evaluate(given, {}).metrics[name]
    by_token = slime.evaluate(given, {"calculate_per_token_loss": True}).metrics[name]
    assert by_rollout == pytest.approx(np.mean([(gap * mask).sum() / mask.sum() for gap, mask in rows]), rel=1e-6)
    assert by_token == pytest.approx((gaps * given["mask"]).sum() / given["mask"].sum(), rel=1e-6)


def test_samples_of_one_rollout_pool_their_tokens() -> None:
    given = batch() | {"rollout_ids": np.array([9, 4, 9, 4])}
    gaps = np.abs(given["old_logprobs"] - given["rollout_logprobs"])
    gap, mask = per_sample(gaps), per_sample(given["mask"])
    pooled = [
        sum((gap[i] * mask[i]).sum() for i in pair) / sum(mask[i].sum() for i in pair) for pair in ((0, 2), (1, 3))
    ]
    assert slime.evaluate(given, {}).metrics["train/train_rollout_logprob_abs_diff"] == pytest.approx(
        np.mean(pooled), rel=1e-6
    )


def test_a_fully_masked_sample_pulls_every_mean_to_zero() -> None:
    given = batch(spread=0.0)
    given["mask"][:5] = 0
    metrics = slime.evaluate(given, slime.PRESETS["mis_metrics_only"]).metrics
    assert metrics["train/mis_ppl_ratio"] == pytest.approx(0.75)
    assert metrics["train/ois"] == pytest.approx(0.75)


def test_rejection_lowers_the_difference_it_should_be_judged_by() -> None:
    """The trap of the note: rejected tokens leave the sum and stay in the denominator; the mis_ metrics keep them."""
    given = batch()
    plain, rejecting = (
        slime.evaluate(given, mis(use_rs=use_rs, rs_lower_bound=0.9, rs_upper_bound=1.1)).metrics
        for use_rs in (False, True)
    )
    name = "train/train_rollout_logprob_abs_diff"
    assert rejecting[name] < 0.5 * plain[name]
    assert rejecting["train/mis_kl"] == plain["train/mis_kl"]
    assert "understates" in slime.NOTES[name]


def test_equal_policies_read_as_a_perfect_match() -> None:
    found = slime.evaluate(batch(spread=0.0), slime.PRESETS["mis"])
    zero = ["kl", "k3_kl", "log_ppl_diff", "log_ppl_abs_diff", "chi2_token", "chi2_seq", "tis_truncate_fraction"]
    one = ["ppl_ratio", "tis_weight_before_bound", "batch_norm_factor", "is_ratio_min_final", "is_ratio_max_final"]
    assert [found.metrics["train/mis_" + name] for name in zero] == [0.0] * len(zero)
    assert [found.metrics["train/mis_" + name] for name in one] == pytest.approx([1.0] * len(one))
    assert found.mask.sum() == batch()["mask"].sum()


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_batch_normalisation_makes_the_mean_weight_of_each_micro_batch_one(level: str) -> None:
    given = batch(spread=0.8)
    groups = [[2, 0], [1, 3]]
    found = slime.evaluate(given, mis(tis_batch_normalize=True, tis_level=level), micro_batches=groups)
    assert found.weights is not None
    for rows in groups:
        weights = found.weights[rows]
        inside = np.arange(weights.shape[1]) < np.array(LENGTHS)[rows][:, None]
        mask = inside & found.mask[rows]
        means = (weights * mask).sum(axis=1) / mask.sum(axis=1)
        mean = (weights * mask).sum() / mask.sum() if level == "token" else means.mean()
        assert mean == pytest.approx(1.0, rel=1e-6)
    together = slime.evaluate(given, mis(tis_batch_normalize=True, tis_level=level)).weights
    assert together is not None and not np.allclose(together, found.weights)


def test_micro_batches_change_nothing_but_batch_normalisation() -> None:
    given, groups = batch(), [[3, 1], [0], [2]]
    for name in ("vanilla_tis", "icepop", "opsm", "mis_geometric", "mis_metrics_only", "off_policy_is"):
        config = slime.PRESETS[name]
        assert slime.evaluate(given, config, micro_batches=groups).metrics == slime.evaluate(given, config).metrics


def test_a_vetoed_token_takes_its_whole_sample_out() -> None:
    given = batch(spread=0.1)
    given["old_logprobs"][9] -= 11.0
    found = slime.evaluate(given, mis(use_rs=True, rs_veto_threshold=1e-4, tis_lower_bound=0.0, rs_upper_bound=50.0))
    assert found.mask.any(axis=1).tolist() == [True, True, False, True]
    assert found.metrics["train/mis_rs_catastrophic_seq_fraction"] == pytest.approx(0.25)


def test_both_bound_conventions_of_off_policy_importance_sampling_are_read() -> None:
    given = batch(spread=1.0)
    ratio = np.exp(given["current_logprobs"] - given["rollout_logprobs"])
    args = slime.PRESETS["off_policy_is"] | {"eps_clip": 0.2, "eps_clip_high": 0.28, "tis_clip_low": 0.5}
    inside = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
    head, miles, named = (
        slime.evaluate(given, args, version="pr2084").weights,
        slime.evaluate(given, args, version="miles1344").weights,
        slime.evaluate(given, args | {"off_policy_bounds": "eps_clip"}).weights,
    )
    assert head is not None and miles is not None and named is not None
    np.testing.assert_allclose(head[inside], np.clip(ratio, 0.5, 2.0), rtol=1e-6)
    np.testing.assert_allclose(miles[inside], np.clip(ratio, 0.8, 1.28), rtol=1e-6)
    np.testing.assert_array_equal(named, miles)
    open_below = slime.evaluate(given, args | {"eps_clip": 1.0}, version="miles1344").weights
    assert open_below is not None
    np.testing.assert_allclose(open_below[inside], np.minimum(ratio, 1.28), rtol=1e-6)


def test_bypass_mode_compares_and_anchors_on_rollout() -> None:
    given = batch()
    metrics = slime.evaluate(given, slime.PRESETS["bypass"]).metrics
    as_old = slime.evaluate(given | {"old_logprobs": given["rollout_logprobs"]}, {}).metrics
    assert {k: v for k, v in metrics.items() if "abs_diff" not in k} == {
        k: v for k, v in as_old.items() if "abs_diff" not in k
    }
    current = given | {"old_logprobs": given["current_logprobs"]}
    name = "train/train_rollout_logprob_abs_diff"
    assert metrics[name] == slime.evaluate(current, {}).metrics[name]


def test_a_skipped_old_pass_reads_as_current() -> None:
    given = batch()
    without = {name: value for name, value in given.items() if name != "old_logprobs"}
    told = {"method": "vanilla_tis", "args": {"use_tis": True}, "old_log_probs_missing": True}
    first, second = slime.evaluate(without, slime.PRESETS["vanilla_tis"]), slime.evaluate(given, told)
    assert first.metrics == second.metrics
    assert first.metrics["train/ppo_kl"] == 0.0


def test_opsm_drops_negative_advantages_of_samples_that_drifted() -> None:
    given = batch(spread=0.0)
    given["current_logprobs"] = given["old_logprobs"] - np.repeat(np.array([0.1, 0.1, 0.0, 0.1], np.float32), LENGTHS)
    given["advantages"] = np.repeat(np.array([-1, 1, -1, -1], np.float32), LENGTHS)
    found = slime.evaluate(given, slime.PRESETS["opsm"])
    assert found.arrays["opsm_mask"].min(axis=1).tolist() == [0.0, 1.0, 1.0, 0.0]
    # row 0 has 5 zeroed tokens and 4 unmasked ones: the masked one counts above the line only
    assert found.metrics["train/opsm_clipfrac"] == pytest.approx((5 / 4 + 1) / 4)


def test_gspo_repeats_one_ratio_on_every_token_of_a_sample() -> None:
    given = batch()
    gap, mask = per_sample(given["old_logprobs"] - given["current_logprobs"]), per_sample(given["mask"])
    means = [(each * m).sum() / m.sum() for each, m in zip(gap, mask, strict=True)]
    metrics = slime.evaluate(given, {"advantage_estimator": "gspo"}).metrics
    assert metrics["train/ppo_kl"] == pytest.approx(np.mean(means), rel=1e-5)


def test_the_loss_adds_up_from_its_parts() -> None:
    given = batch() | {"reference_logprobs": batch(seed=5)["old_logprobs"], "entropy": np.full(sum(LENGTHS), 2.0)}
    config = {"use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "low_var_kl", "entropy_coef": 0.01}
    metrics = slime.evaluate(given, config).metrics
    parts = metrics["train/pg_loss"] - 0.01 * 2.0 + 0.1 * metrics["train/kl_loss"]
    assert metrics["train/entropy_loss"] == pytest.approx(2.0)
    assert metrics["train/loss"] == pytest.approx(parts)
    assert 0 < metrics["train/kl_loss"] <= 10


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_every_kind_of_reference_kl_is_zero_against_itself(kind: str) -> None:
    given = batch()
    config = {"use_kl_loss": True, "kl_loss_type": kind, "use_unbiased_kl": True}
    metrics = slime.evaluate(given | {"reference_logprobs": given["current_logprobs"]}, config).metrics
    assert metrics["train/kl_loss"] == 0.0


def test_what_cannot_be_known_is_left_out_and_said() -> None:
    given = batch()
    for config, gone in (
        ({"use_kl_loss": True}, {"train/loss", "train/kl_loss"}),
        ({"custom_pg_loss_reducer_function_path": "mine.reducer"}, {"train/loss", "train/pg_loss"}),
    ):
        found = slime.evaluate(given, config)
        assert not gone & set(found.metrics) and found.warnings
    partial = {name: given[name] for name in ("rollout_logprobs", "old_logprobs", "mask", "response_lengths")}
    whole, part = (slime.evaluate(each, slime.PRESETS["mis"]) for each in (given, partial))
    assert part.metrics.items() <= whole.metrics.items()
    assert "train/mis_k3_kl" in part.metrics and "train/train_rollout_logprob_abs_diff" in part.metrics
    with pytest.raises(SchemaError, match="no 'rollout_logprobs', which vanilla TIS reads"):
        slime.evaluate({k: v for k, v in given.items() if k != "rollout_logprobs"}, slime.PRESETS["vanilla_tis"])


def test_an_overflowed_ratio_is_infinite_and_nan_under_a_mask_as_in_slime() -> None:
    given = batch()
    given["old_logprobs"][0] += 100.0
    assert slime.evaluate(given, slime.PRESETS["vanilla_tis"]).metrics["train/tis"] == np.inf
    given["mask"][0] = 0
    assert np.isnan(slime.evaluate(given, slime.PRESETS["vanilla_tis"]).metrics["train/tis"])


def test_a_masked_value_nobody_recorded_changes_no_number() -> None:
    given = batch() | {"entropy": np.ones(sum(LENGTHS))}
    for name, config in slime.PRESETS.items():
        for column in ("rollout_logprobs", "old_logprobs", "entropy"):
            holes = given | {column: np.where(given["mask"] > 0, given[column], np.nan)}
            assert slime.evaluate(holes, config).metrics == slime.evaluate(given, config).metrics, (name, column)


def test_padded_input_reads_as_flat_input() -> None:
    given = batch()
    inside = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
    padded = {}
    for name, value in given.items():
        if name != "response_lengths":
            padded[name] = np.full(inside.shape, -0.5, value.dtype)
            padded[name][inside] = value
    padded["mask"][~inside] = 0
    config = slime.PRESETS["mis"]
    assert slime.evaluate(padded, config).metrics == pytest.approx(slime.evaluate(given, config).metrics, rel=1e-6)


keys = st.fixed_dictionaries(
    {
        "tis_mode": st.sampled_from(["truncate", "clip", "mask"]),
        "tis_level": st.sampled_from(["token", "sequence", "geometric"]),
        "rs_level": st.sampled_from(["token", "sequence", "geometric"]),
        "use_rs": st.booleans(),
        "rs_veto_threshold": st.sampled_from([None, 1e-4, 0.5]),
        "rs_lower_bound": st.sampled_from([None, 0.9]),
        "rs_upper_bound": st.sampled_from([None, 1.1]),
    }
)


@LAWS
@given(keys, st.integers(0, 10**6), st.sampled_from([0.01, 0.3, 30.0]))
def test_mis_only_removes_tokens_and_keeps_weights_within_its_bounds(
    chosen: dict[str, Any], seed: int, spread: float
) -> None:
    given = batch(seed=seed, spread=spread)
    found = slime.evaluate(given, mis(**chosen))
    inside = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
    assert found.weights is not None
    assert (found.mask[inside] <= (given["mask"] > 0)).all() and not found.mask[~inside].any()
    assert (found.weights[inside][given["mask"] == 0] == 0).all()
    kept = found.weights[found.mask]
    assert (kept <= 2.0).all() and (kept >= (0.0 if chosen["tis_mode"] == "truncate" else 0.5)).all()


@LAWS
@given(keys, st.permutations(range(4)), st.integers(0, 10**6))
def test_the_order_of_samples_changes_no_number(chosen: dict[str, Any], order: list[int], seed: int) -> None:
    given = batch(seed=seed)
    moved = {name: np.concatenate([per_sample(value)[i] for i in order]) for name, value in given.items()
             if name != "response_lengths"}  # fmt: skip
    moved["response_lengths"] = given["response_lengths"][order]
    first, second = (slime.evaluate(each, mis(**chosen)).metrics for each in (given, moved))
    assert second == pytest.approx(first, rel=1e-5, abs=1e-7)
