"""AReaL's dialect against what AReaL itself returned, its configuration's errors, and laws."""

from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.dialect_batch import small_batch
from support.dialect_golden import GoldenRun, differences, golden_runs
from support.sizes import examples

from ratioscope.errors import ConfigError, SchemaError
from ratioscope.metrics.dialects import areal

RUNS = [run for run in golden_runs("areal") if run.version != "v0.5.3"]
PREFIX = "ppo_actor/update/"
EVERY_KEY = ("rs_none", "tok_mask_ratio_u5", "prox_metrics_rs_none", "prox_loglinear_tok_mask_u5")
"""The runs of 1.0.4 whose every exported key is on record; the others keep those about the correction."""


def version_of(run: GoldenRun) -> str:
    """1.0.3 has the rules of 1.0.2, whose output is on record."""
    return "v1.0.3" if run.version == "v1.0.2" else run.version


def batch(*, spread: float = 0.1) -> dict[str, Any]:
    """With the versions of the sampled tokens."""
    given = small_batch(spread=spread)
    versions = np.random.default_rng(1).integers(3, 8, given["mask"].shape)
    return given | {"versions": np.where(given["mask"], versions, -1), "current_version": 7}


def rejecting(**block: Any) -> dict[str, Any]:
    return {"rejection_sampling": block}


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_metrics_are_what_areal_exported(run: GoldenRun) -> None:
    found = areal.evaluate(run.inputs, run.config, version=version_of(run), kind=run.run).metrics
    wanted = {PREFIX + name: value for name, value in run.expected["metrics"].items()}
    rtol = 1e-3 if run.case.startswith("c04") else 1e-4  # float32 sums upstream; c04 has ratios of exp(30)
    assert not differences(found, wanted, rtol=rtol, atol=1e-6)
    if run.version == "v1.0.4" and run.run.partition("/")[2] in EVERY_KEY:
        assert set(found) == set(wanted)


@pytest.mark.parametrize("run", [run for run in RUNS if run.arrays], ids=str)
def test_weights_and_masks_are_what_areal_formed(run: GoldenRun) -> None:
    found = areal.evaluate(run.inputs, run.config, version=version_of(run), kind=run.run)
    for name in set(run.arrays) - {"dloss_dcurrent"}:
        array = np.asarray(found.arrays[name], np.float32)
        inside = run.inputs["mask"] > 0 if name == "prox_logp" else np.ones(array.shape, bool)
        np.testing.assert_allclose(array[inside], run.arrays[name][inside], rtol=1e-5, atol=1e-7, err_msg=name)
    if "behave_imp_weight" in run.arrays:
        assert found.weights is not None
        np.testing.assert_array_equal(found.weights, found.arrays["behave_imp_weight"])
        np.testing.assert_array_equal(found.mask, run.arrays["behave_mask"] > 0)


def test_flat_input_reads_as_padded_input() -> None:
    padded = batch()
    version = padded.pop("current_version")
    flat = {name: value[padded["mask"]] for name, value in padded.items()}
    flat |= {"response_lengths": padded["mask"].sum(axis=1), "current_version": version}
    config = rejecting(level="sequence", upper=1.05)
    wanted = areal.evaluate(padded | {"current_version": version}, config).metrics | {PREFIX + "n_tokens": 10.0}
    assert areal.evaluate(flat, config).metrics == pytest.approx(wanted, rel=1e-6)


@given(st.lists(st.integers(0, 2), min_size=4, max_size=4), st.sampled_from(["token-mask", "token-clamp", "off"]))
@examples(25)
def test_averages_do_not_depend_on_the_micro_batches(group_of_row: list[int], preset: str) -> None:
    groups = [[row for row in range(4) if group_of_row[row] == group] for group in sorted(set(group_of_row))]
    whole = areal.evaluate(batch(), areal.PRESETS[preset])
    split = areal.evaluate(batch(), areal.PRESETS[preset], micro_batches=groups)
    scalars = ("rs_filtered_fraction", "sample_staleness", "n_valid_generated_tokens")
    merging = {name: value for name, value in whole.metrics.items() if not any(word in name for word in scalars)}
    assert {name: split.metrics[name] for name in merging} == pytest.approx(merging, rel=1e-5, abs=1e-6)
    np.testing.assert_array_equal(whole.mask, split.mask)


def test_rejected_tokens_dilute_the_importance_weight_in_1_0_4_and_no_longer_on_main() -> None:
    given = batch(spread=0.0)
    given["old_logprobs"] = given["rollout_logprobs"].copy()
    given["old_logprobs"][3] += 2.0
    given["current_logprobs"] = given["old_logprobs"]
    name = PREFIX + "importance_weight/avg"
    assert areal.evaluate(given, areal.PRESETS["token-mask"]).metrics[name] == pytest.approx(6 / 10)
    assert areal.evaluate(given, areal.PRESETS["token-mask"], version="head").metrics[name] == pytest.approx(1.0)


def test_versions_read_one_position_late_lose_the_first_token_of_each_segment() -> None:
    name = PREFIX + "version_stats/n_valid_generated_tokens"
    assert areal.evaluate(batch(), {}).metrics[name] == 10
    assert areal.evaluate(batch(), {}, kind="versions_unshifted").metrics[name] == 6


def test_the_approximated_proximal_policy_lies_between_rollout_and_current() -> None:
    given = batch()
    del given["old_logprobs"]
    found = areal.evaluate(given, {"prox_logp_method": "loglinear"}).arrays["prox_logp"]
    newest, oldest = given["versions"] >= 6, given["versions"] == 3
    np.testing.assert_array_equal(found[newest], given["rollout_logprobs"][newest])
    third = (given["rollout_logprobs"] + 3 * given["current_logprobs"]) / 4
    np.testing.assert_allclose(found[oldest], third[oldest], rtol=1e-6)
    del given["versions"]
    with pytest.raises(SchemaError, match="needs 'versions'"):
        areal.evaluate(given, {"prox_logp_method": "loglinear"})


def test_a_nan_at_a_masked_token_stops_a_loglinear_run_and_moves_nothing_else() -> None:
    given = batch()
    plain = areal.evaluate(given, areal.PRESETS["token-mask"]).metrics
    given["rollout_logprobs"][0, 5] = np.nan
    assert areal.evaluate(given, areal.PRESETS["token-mask"]).metrics == plain
    with pytest.raises(SchemaError, match="row 0, position 5 is nan; AReaL stops the run there"):
        areal.evaluate(given, {"prox_logp_method": "loglinear"})


def test_m2po_drops_the_largest_squares_until_the_rest_is_below_the_threshold() -> None:
    given = batch() | {"mask": np.ones((4, 6), bool)}
    given["old_logprobs"] = given["rollout_logprobs"].astype(np.float64)
    given["old_logprobs"][0, :3] += (1.0, 2.0, 3.0)
    found = areal.evaluate(given, {"m2_threshold": 0.06})
    assert np.argwhere(~found.mask).tolist() == [[0, 1], [0, 2]]  # (1 + 4) / 23 is above the threshold, 1 / 22 below
    everything = areal.evaluate(given | {"old_logprobs": given["rollout_logprobs"] + 1}, {"m2_threshold": 0.06})
    assert everything.mask.sum() == 1


def test_a_batch_without_valid_tokens_exports_counts_alone() -> None:
    given = batch() | {"mask": np.zeros((4, 6), bool)}
    metrics = areal.evaluate(given, areal.PRESETS["token-mask"]).metrics
    assert not any(name.endswith(("/avg", "/min", "/max")) for name in metrics)
    assert metrics[PREFIX + "n_valid_tokens"] == 0


def test_without_the_decoupled_loss_every_behaviour_ratio_is_one() -> None:
    found = areal.evaluate(batch(), {"use_decoupled_loss": False, **areal.PRESETS["token-mask"]})
    assert found.weights is not None
    np.testing.assert_array_equal(found.weights, batch()["mask"])
    assert "ignored without use_decoupled_loss" in found.warnings[0]


@pytest.mark.parametrize("version", areal.VERSIONS)
def test_generations_agree_where_their_settings_mean_the_same(version: str) -> None:
    same = {
        "rejection_sampling": areal.PRESETS["token-mask"],
        "behave_imp_weight_cap": {"behave_imp_weight_mode": "token_mask", "behave_imp_weight_cap": 5.0},
    }
    given = batch(spread=2.0)
    config = same[areal.parse({}, version).generation.switch[0]]
    found, wanted = areal.evaluate(given, config, version=version), areal.evaluate(given, same["rejection_sampling"])
    assert found.weights is not None and wanted.weights is not None
    np.testing.assert_array_equal(found.weights, wanted.weights)
    assert found.losses == wanted.losses and not wanted.mask[given["mask"]].all()


REJECTED: tuple[tuple[dict[str, Any], str, str], ...] = (
    (rejecting(level="group"), "v1.0.4", "level is 'group'.*'token', 'sequence'"),
    (rejecting(action="drop"), "v1.0.4", "action is 'drop'.*'mask', 'clamp'"),
    (rejecting(metric="tv"), "v1.0.4", "metric is 'tv'.*'ratio'"),
    (rejecting(metric="binary_kl"), "v1.0.4", "metric is 'binary_kl'.*'kl_k3'"),
    (rejecting(agg="median"), "v1.0.4", "agg is 'median'.*'sum', 'mean', 'max'"),
    (rejecting(lower=6.0), "v1.0.4", "lower is 6.0.*at most upper"),
    (rejecting(upper=1.0), "v1.0.4", "upper is 1.0.*above 1"),
    (rejecting(lower=0.0), "v1.0.4", "lower is 0.0.*above 0"),
    (rejecting(metric="kl_k2", upper=0.0), "v1.0.4", "upper is 0.0.*above 0 for metrics"),
    (rejecting(metric="kl_k1", action="clamp"), "v1.0.4", "metric is 'kl_k1'.*'ratio' beside action: clamp"),
    ({"rejection_sampling": "token"}, "v1.0.4", "rejection_sampling is 'token'.*a mapping"),
    ({"behave_imp_weight_cap": 3.0}, "v1.0.4", "no key.*level: token, action: mask, metric: ratio, upper: 3.0"),
    ({"behave_imp_weight_mode": "disabled"}, "v1.0.4", "AReaL v1.0.4 has no key.*rejection_sampling: null"),
    ({"behav_imp_weight_cap": 5.0}, "v1.0.3", "has no key behav_imp_weight_cap.*behave_imp_weight_cap"),
    ({"behav_imp_weight_cap": 5.0}, "v1.0.4", "has no key behav_imp_weight_cap.*metric: ratio, upper: 5.0"),
    (rejecting(), "v1.0.3", "has no key rejection_sampling.*behave_imp_weight_cap"),
    ({"use_cispo_loss": True}, "v1.0.4", "has no key use_cispo_loss"),
    ({"use_cispo_loss": True}, "head", "eps_clip_higher is None.*above 0 beside use_cispo_loss"),
    ({"use_cispo_loss": True, "eps_clip_higher": 4, "importance_sampling_level": "sequence"}, "head", "'token' beside"),
    ({"use_sapo_loss": True, "use_decoupled_loss": True}, "v1.0.4", "use_sapo_loss is True.*false beside"),
    ({"use_sapo_loss": True, "sapo_tau_neg": 0}, "v1.0.4", "sapo_tau_neg is 0.0.*above 0"),
    ({"prox_logp_method": "reuse_train_logp"}, "v1.0.4", "'reuse_train_logp'.*'recompute', 'loglinear', 'metrics'"),
    ({"importance_sampling_level": "group"}, "v1.0.4", "importance_sampling_level is 'group'.*'token', 'sequence'"),
    ({"c_clip": 1.0}, "v1.0.4", "c_clip is 1.0.*above 1"),
    ({"behave_imp_weight_mode": "disabled"}, "v1.0.3", "behave_imp_weight_cap is 5.0.*null beside"),
    ({"behave_imp_weight_cap": 1.0}, "v1.0.3", "behave_imp_weight_cap is 1.0.*above 1"),
    ({}, "v9", "version is 'v9'.*'v1.0.4'"),
    ({}, "0.5.3", "version is 'v0.5.3', older than.*'v1.0.4', 'head_20260822', 'v1.0.3': choose the nearest"),
)


@pytest.mark.parametrize(("config", "version", "message"), REJECTED)
def test_what_areal_rejects_names_field_value_and_what_is_allowed(
    config: dict[str, Any], version: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        areal.parse(config, version)


SILENT: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"use_decoupled_loss": True}, "v1.0.4", "no behaviour weight is applied"),
    ({"use_decoupled_loss": False, **rejecting()}, "v1.0.4", "ignored without use_decoupled_loss"),
    (rejecting(agg="max"), "v1.0.4", "agg 'max' is ignored at level token"),
    (rejecting(metric="kl_k3", upper=0.1), "v1.0.4", "uses the inverse ratio"),
    (rejecting(metric="binary_kl", upper=0.1), "head", "still rejects it"),
    ({"behave_imp_weight_mode": "tokn_mask"}, "v1.0.3", "'tokn_mask' is read as a mask mode"),
    ({"prox_logp_method": "reuse_train_logp", "ppo_n_minibatches": 4}, "head", "forced to 1"),
)


@pytest.mark.parametrize(("config", "version", "message"), SILENT)
def test_what_areal_accepts_silently_gets_a_warning(config: dict[str, Any], version: str, message: str) -> None:
    assert any(message in warning for warning in areal.parse(config, version).warnings)


@pytest.mark.parametrize(
    ("config", "version"),
    [
        *((preset, "v1.0.4") for preset in areal.PRESETS.values()),
        ({"behave_imp_weight_mode": "sequence_mask"}, "v1.0.3"),
    ],
)
def test_what_it_writes_it_reads_back(config: dict[str, Any], version: str) -> None:
    settings = areal.parse({"use_decoupled_loss": True, **config}, version)
    assert areal.parse(yaml.safe_load(areal.write(settings)), version) == settings


def test_notes_and_canonical_names_are_about_names_it_exports() -> None:
    assert set(areal.NOTES) | set(areal.CANONICAL) <= set(areal.evaluate(batch(), areal.PRESETS["token-mask"]).metrics)
