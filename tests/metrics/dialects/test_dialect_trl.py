"""TRL's dialect: the numbers in two real logs, its configuration, and laws. The package itself: test_dialect_trl_package."""

import json
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from support import real_runs
from support.dialect_batch import one_advantage as batch
from support.dialect_golden import differences

from ratioscope.errors import ConfigError, SchemaError
from ratioscope.metrics.dialects import trl

LOGGED_RUNS = ("trl_vllm_base", "trl_vllm_stale4")


@pytest.mark.parametrize("name", LOGGED_RUNS)
def test_every_sampling_metric_of_a_real_log_is_reproduced_from_the_records(name: str) -> None:
    lines = (real_runs.FOLDER / f"{name}.trl_log.jsonl").read_text().splitlines()
    generations = [line for line in map(json.loads, lines) if "sampling/sampling_logp_difference/mean" in line]
    records = real_runs.records(name)
    steps = sorted({step for step in records["step"].to_pylist() if step is not None})
    assert len(steps) == len(generations) == 12
    for step, logged in zip(steps, generations, strict=True):
        rows = records.filter(pc.field("step") == step)
        found = trl.evaluate(rows, {"use_vllm": True, "vllm_importance_sampling_mode": "token_truncate"}).metrics
        wanted = {key: value for key, value in logged.items() if key.startswith("sampling/")}
        assert len(wanted) == 5
        assert not differences(found, wanted, rtol=2e-5)  # float32 means upstream


def test_a_mask_mode_hides_what_a_truncate_mode_bounds() -> None:
    given = batch() | {"mask": np.ones((4, 6), bool)}
    given["old_logprobs"] = given["rollout_logprobs"] + np.log(np.array([0.2, 0.5, 1, 2, 3, 4], np.float32))
    bounds = {"vllm_importance_sampling_clip_min": 0.4, "vllm_importance_sampling_clip_max": 2.5}
    truncated = trl.evaluate(given, {"vllm_importance_sampling_mode": "token_truncate", **bounds})
    masked = trl.evaluate(given, {"vllm_importance_sampling_mode": "token_mask", **bounds})
    assert truncated.weights is not None and masked.weights is not None
    np.testing.assert_allclose(truncated.weights[0], [0.4, 0.5, 1, 2, 2.5, 2.5], rtol=1e-6)
    np.testing.assert_allclose(masked.weights[0], [0, 0.5, 1, 2, 0, 0], rtol=1e-6)
    assert truncated.mask.all() and masked.mask[0].tolist() == [False, True, True, True, False, False]
    assert masked.metrics["sampling/importance_sampling_ratio/min"] == 0
    assert truncated.metrics["sampling/importance_sampling_ratio/max"] == 2.5


def test_a_sequence_mode_weighs_with_the_product_and_takes_empty_rows_for_one() -> None:
    given = batch(spread=0.5)
    given["mask"][0] = False
    found = trl.evaluate(given, {"vllm_importance_sampling_mode": "sequence_truncate"})
    sums = np.where(given["mask"], given["old_logprobs"] - given["rollout_logprobs"], 0.0).sum(axis=1)
    assert found.weights is not None and found.weights.shape == (4, 1)
    np.testing.assert_allclose(found.weights[:, 0], np.minimum(np.exp(sums), 3.0), rtol=1e-6)
    assert found.weights[0, 0] == 1.0


def test_a_token_the_engine_did_not_score_weighs_one_and_leaves_the_difference() -> None:
    given = batch()
    given["rollout_logprobs"][3, 2] = np.nan
    found = trl.evaluate(given, trl.PRESETS["token_truncate"])
    assert found.weights is not None and found.weights[3, 2] == 1.0
    gaps = np.abs(given["old_logprobs"] - given["rollout_logprobs"])[given["mask"]]
    assert found.metrics["sampling/sampling_logp_difference/mean"] == pytest.approx(np.nanmean(gaps), rel=1e-6)


def test_processes_count_alike_however_many_tokens_each_has() -> None:
    given = batch() | {"rank": np.array([0, 1, 1, 1])}
    gaps = np.where(given["mask"], np.abs(given["old_logprobs"] - given["rollout_logprobs"]), np.nan)
    found = trl.evaluate(given, {}).metrics["sampling/sampling_logp_difference/mean"]
    assert found == pytest.approx((np.nanmean(gaps[:1]) + np.nanmean(gaps[1:])) / 2, rel=1e-6)


def test_the_off_policy_mask_drops_only_bad_sequences_of_negative_advantage() -> None:
    given = batch() | {"advantages": np.array([-1.0, 1.0, -1.0, 0.0]), "mask": np.ones((4, 6), bool)}
    given["current_logprobs"] = given["rollout_logprobs"].copy()
    given["current_logprobs"][:2] -= 0.6
    given["current_logprobs"][2] += 0.6
    config = {"off_policy_mask_threshold": 0.5, "vllm_importance_sampling_mode": "token_truncate"}
    assert trl.evaluate(given, config).mask.any(axis=1).tolist() == [False, True, True, True]


def test_micro_batches_move_the_loss_metrics_alone_and_a_micro_batch_without_tokens_counts_nothing() -> None:
    given = batch(spread=0.5)
    given["mask"][0] = False
    whole = trl.evaluate(given, {"loss_type": "dapo"})
    split = trl.evaluate(given, {"loss_type": "dapo"}, micro_batches=1)
    sampling = [name for name in whole.metrics if name.startswith("sampling/")]
    assert [split.metrics[name] for name in sampling] == [whole.metrics[name] for name in sampling]
    assert split.losses["loss"] == pytest.approx(whole.losses["loss"], rel=1e-5)
    assert np.isfinite(split.metrics["clip_ratio/low_min"])


def test_without_vllm_nothing_is_corrected_and_old_may_be_absent() -> None:
    given = batch()
    del given["old_logprobs"]
    found = trl.evaluate(given, {"use_vllm": False})
    assert found.weights is None and not any(name.startswith("sampling/") for name in found.metrics)
    assert found.metrics["clip_ratio/region_mean"] == 0
    assert found.warnings == ("nothing corrects the mismatch: use_vllm is false",)
    with pytest.raises(SchemaError, match="no 'old_logprobs'"):
        trl.evaluate(given, {})


REJECTED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"vllm_importance_sampling_mode": "token"}, "'token'.*'token_truncate', 'token_mask', 'sequence_truncate'"),
    ({"vllm_importance_sampling_clip_min": 3.0}, "clip_min is 3.0.*below vllm_importance_sampling_clip_max"),
    (
        {"vllm_importance_sampling_clip_max": None, "vllm_importance_sampling_mode": "token_truncate"},
        "clip_max is None.*in a truncate mode",
    ),
    ({"loss_type": "vespo"}, "mode is 'sequence_mask'.*'token_truncate' or 'token_mask' beside loss_type 'vespo'"),
    ({"loss_type": "ppo"}, "loss_type is 'ppo'.*'grpo'"),
    ({"importance_sampling_level": "group"}, "importance_sampling_level is 'group'.*'token', 'sequence'"),
    ({"vllm_importance_sampling_clip_max": "three"}, "clip_max is 'three'.*a number"),
    ({"vllm_importance_sampling_correction": "perhaps"}, "correction is 'perhaps'.*true or false"),
)


@pytest.mark.parametrize(("config", "message"), REJECTED)
def test_what_trl_rejects_names_field_value_and_what_is_allowed(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trl.parse(config)


SILENT: tuple[tuple[dict[str, Any], str], ...] = (
    ({"vllm_importance_sampling_cap": 2.0}, "deprecated: it replaces"),
    ({"vllm_importance_sampling_clip_max": None}, "sequence_mask without bounds masks nothing"),
    ({"off_policy_mask_threshold": 0.0}, "should be positive"),
    ({"top_p": 0.9, "top_k": 50}, "top_p, top_k changes sampling but not"),
    ({"loss_type": "luspo"}, "luspo is designed for"),
    ({"importance_sampling_level": "sequence"}, "weighs sequences by their length"),
)


@pytest.mark.parametrize(("config", "message"), SILENT)
def test_what_trl_accepts_silently_gets_a_warning(config: dict[str, Any], message: str) -> None:
    assert any(message in warning for warning in trl.parse(config).warnings)


def test_the_deprecated_cap_is_the_upper_bound() -> None:
    assert trl.parse({"vllm_importance_sampling_cap": 2.0}).bounds == (-np.inf, 2.0)


@pytest.mark.parametrize("preset", trl.PRESETS)
def test_what_it_writes_is_the_call_that_gives_the_settings(preset: str) -> None:
    settings = trl.parse({"use_vllm": True, **trl.PRESETS[preset]})
    assert trl.parse(eval(trl.write(settings), {"GRPOConfig": dict})) == settings


def test_another_version_is_refused() -> None:
    with pytest.raises(ConfigError, match="version is '0.9'; allowed: one of '1.16.0'"):
        trl.parse({}, "0.9")


def test_notes_and_canonical_names_are_about_names_it_logs() -> None:
    assert set(trl.NOTES) | set(trl.CANONICAL) <= set(trl.evaluate(batch(), {}).metrics)
