"""NeMo-RL's dialect against what NeMo-RL itself returned, its configuration's errors, and laws."""

from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.dialect_batch import small_batch as batch
from support.dialect_golden import GoldenRun, differences, golden_runs
from support.sizes import examples

from ratioscope.errors import ConfigError, SchemaError
from ratioscope.metrics.dialects import nemo_rl

RUNS = golden_runs("nemo_rl")
LOGGED_AS = {"num_masked_seqs": "num_masked_seqs_by_logprob_error"}
"""The name the driver's function returns -> the name under which it is logged, where they differ."""


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_metrics_are_what_nemo_rl_returned(run: GoldenRun) -> None:
    found = nemo_rl.evaluate(run.inputs, run.config, version=run.version, kind=run.run).metrics
    wanted = {f"train/{LOGGED_AS.get(name, name)}": value for name, value in run.expected["metrics"].items()}
    rtol = 1e-3 if run.case.startswith("c04") else 1e-4  # float32 sums upstream; c04 has ratios of exp(30)
    assert not differences(found, wanted, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("run", [run for run in RUNS if run.arrays], ids=str)
def test_weights_and_kept_masks_are_what_nemo_rl_formed(run: GoldenRun) -> None:
    found = nemo_rl.evaluate(run.inputs, run.config, version=run.version, kind=run.run)
    arrays = {"weights": found.weights, **found.arrays}
    wanted = {name: value for name, value in run.arrays.items() if name != "dloss_dcurrent"}
    for name, value in wanted.items():
        np.testing.assert_allclose(np.asarray(arrays[name], np.float64), value, rtol=1e-5, err_msg=name)
    if "token_kept" in wanted:
        rows = run.inputs["sample_mask"][:, None] > 0
        assert (found.mask == (wanted["token_kept"] > 0) & (run.inputs["mask"] > 0) & rows).all()
    if "seq_kept" in wanted:
        assert (found.mask.any(axis=1) <= (wanted["seq_kept"] > 0)).all()


def test_flat_input_reads_as_padded_input() -> None:
    padded = batch()
    lengths = padded["mask"].sum(axis=1)
    flat = {name: value[padded["mask"]] for name, value in padded.items()} | {"response_lengths": lengths}
    config = nemo_rl.PRESETS["icepop"]
    assert nemo_rl.evaluate(flat, config).metrics == pytest.approx(nemo_rl.evaluate(padded, config).metrics, rel=1e-6)


def test_equal_policies_read_as_a_perfect_match() -> None:
    given = batch(spread=0.0)
    metrics = nemo_rl.evaluate(given, nemo_rl.PRESETS["tis"]).metrics
    assert metrics["train/token_mult_prob_error"] == pytest.approx(1.0)
    assert metrics["train/sampling_importance_ratio"] == pytest.approx(1.0)
    assert [metrics["train/" + name] for name in ("gen_kl_error", "policy_kl_error", "is_oob_ratio")] == [0, 0, 0]


@given(st.lists(st.integers(0, 2), min_size=4, max_size=4), st.sampled_from(["token", "tis", "icepop", "seq-mask-tis"]))
@examples(25)
def test_token_metrics_do_not_depend_on_the_micro_batches(group_of_row: list[int], preset: str) -> None:
    groups = [[row for row in range(4) if group_of_row[row] == group] for group in sorted(set(group_of_row))]
    whole = nemo_rl.evaluate(batch(), nemo_rl.PRESETS[preset]).metrics
    split = nemo_rl.evaluate(batch(), nemo_rl.PRESETS[preset], micro_batches=groups).metrics
    assert split == pytest.approx(whole, rel=1e-5, abs=1e-6)


def test_the_sequence_ratio_is_too_large_by_the_rows_of_a_micro_batch_until_it_was_mended() -> None:
    config, name = nemo_rl.PRESETS["gspo"], "train/sampling_importance_ratio"
    mended = nemo_rl.evaluate(batch(), config, version="pr3753").metrics[name]
    assert nemo_rl.evaluate(batch(), config).metrics[name] == pytest.approx(4 * mended, rel=1e-6)
    assert nemo_rl.evaluate(batch(), config, micro_batches=1).metrics[name] == pytest.approx(mended, rel=1e-6)


def test_an_overflowing_sequence_weight_silences_the_sequence() -> None:
    given = batch() | {"old_logprobs": batch()["rollout_logprobs"] + 30}
    config = {**nemo_rl.PRESETS["gspo"], "truncated_importance_sampling_type": "tis"}
    found = nemo_rl.evaluate(given, {**config, "truncated_importance_sampling_ratio": 2.0})
    assert found.weights is not None
    assert found.weights.ravel().tolist() == [2.0, 2.0, 0.0, 0.0]  # sums of 30, 60, 90 and 120
    assert found.metrics["train/is_oob_ratio"] == pytest.approx(3 / 10)  # tokens of the two that did not overflow


def test_a_nan_at_a_masked_token_reaches_the_token_metrics_but_no_weight_of_another_token() -> None:
    given = batch()
    given["rollout_logprobs"][0, 5] = np.nan
    found = nemo_rl.evaluate(given, nemo_rl.PRESETS["tis"])
    assert np.isnan(found.metrics["train/gen_kl_error"])
    assert np.isfinite(found.metrics["train/loss"])
    assert found.weights is not None and np.isfinite(found.weights).all()


def test_a_batch_without_valid_tokens_reads_zero_throughout() -> None:
    given = batch() | {"mask": np.zeros((4, 6), bool)}
    metrics = nemo_rl.evaluate(given, nemo_rl.PRESETS["tis"]).metrics
    assert metrics.pop("train/num_valid_samples") == 4
    assert {value for name, value in metrics.items() if "_m" not in name} == {0.0}
    assert metrics["train/probs_ratio_min"] == metrics["train/probs_ratio_max"] == -1.0


def test_the_error_filter_shrinks_the_denominators() -> None:
    given = batch()
    given["old_logprobs"][3] = given["rollout_logprobs"][3] + 1.0
    plain = nemo_rl.evaluate(given, {})
    filtered = nemo_rl.evaluate(given, {"seq_logprob_error_threshold": 2.0})
    assert filtered.metrics["train/num_masked_seqs_by_logprob_error"] == 1
    assert not filtered.mask[3].any() and plain.mask[3].any()
    without_row = nemo_rl.evaluate({name: value[:3] for name, value in given.items()}, {})
    assert filtered.metrics["train/gen_kl_error"] == pytest.approx(without_row.metrics["train/gen_kl_error"])


def test_forcing_on_policy_compares_rollout_with_current_and_needs_no_old() -> None:
    given = batch()
    old = given.pop("old_logprobs")
    metrics = nemo_rl.evaluate(given, {"force_on_policy_ratio": True}).metrics
    as_old = nemo_rl.evaluate(given | {"old_logprobs": given["current_logprobs"]}, {}).metrics
    assert metrics["train/gen_kl_error"] == as_old["train/gen_kl_error"]
    assert metrics["train/max_seq_mult_prob_error"] == 0
    filtering = {"force_on_policy_ratio": True, "seq_logprob_error_threshold": 9.0}
    assert nemo_rl.evaluate(given | {"old_logprobs": old}, filtering).metrics["train/max_seq_mult_prob_error"] > 1


TIS = nemo_rl.PRESETS["tis"]
ICEPOP = nemo_rl.PRESETS["icepop"]
REJECTED: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"truncated_importance_sampling_type": "clip"}, "head", "'clip'.*'tis', 'icepop', 'seq-mask-tis', None"),
    ({**TIS, "use_importance_sampling_correction": False}, "head", "truncated_importance_sampling_type is 'tis'.*null"),
    ({"truncated_importance_sampling_ratio": 2.0}, "head", "truncated_importance_sampling_ratio is 2.0.*null while"),
    ({**TIS, "truncated_importance_sampling_ratio": None}, "head", "ratio is None.*above 0"),
    ({**TIS, "truncated_importance_sampling_ratio": 0}, "head", "ratio is 0.0.*above 0"),
    ({**TIS, "truncated_importance_sampling_ratio_min": 3.0}, "head", "ratio_min is 3.0.*at most"),
    ({**ICEPOP, "truncated_importance_sampling_ratio_min": None}, "head", "ratio_min is None.*a number"),
    ({**nemo_rl.PRESETS["seq-mask-tis"], **nemo_rl.PRESETS["gspo"]}, "head", "'seq-mask-tis'.*'tis' or 'icepop'"),
    ({"sequence_level_importance_ratios": True}, "head", "token_level_loss is True.*false beside"),
    ({"use_cispo": True, "ratio_clip_c": 3.0}, "head", "ratio_clip_c is 3.0.*null beside use_cispo"),
    ({"use_cispo": True, "token_level_loss": False}, "head", "token_level_loss is False.*true beside use_cispo"),
    ({"ratio_clip_c": 1.0}, "head", "ratio_clip_c is 1.0.*above 1"),
    ({"reference_policy_kl_type": "k4"}, "head", "'k4'.*'k1', 'k2', 'k3'"),
    ({"ratio_clip_min": "wide"}, "head", "ratio_clip_min is 'wide'.*a number"),
    ({"token_level_loss": "maybe"}, "head", "token_level_loss is 'maybe'.*true or false"),
    ({"is_correction_level": "group"}, "pr2269", "'group'.*'sequence', 'sequence_mean', 'token', None"),
    ({"truncated_importance_sampling_ratio": 2.0}, "pr2269", "ratio is 2.0.*null while use_importance"),
    ({**TIS, "truncated_importance_sampling_type": None}, "pr2269", "type is None.*beside"),
    ({}, "v9", "version is 'v9'.*'head', 'pr2269', 'pr3753'"),
    ({"loss_fn": 3}, "head", "loss_fn is 3.*a mapping"),
)


@pytest.mark.parametrize(("config", "version", "message"), REJECTED)
def test_what_the_trainer_rejects_names_field_value_and_what_is_allowed(
    config: dict[str, Any], version: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        nemo_rl.parse(config, version)


SILENT: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"is_correction_level": "token"}, "head", "is_correction_level has no effect in head"),
    ({"use_cispo": True}, "pr2269", "use_cispo has no effect in pr2269"),
    ({"truncated_importance_sampling_type": "clip"}, "pr2269", "truncated_importance_sampling_type has no effect"),
    ({**TIS, "truncated_importance_sampling_ratio_min": 0.5}, "pr2269", "ignored by tis in pr2269"),
    ({"ratio_clip": 0.2}, "head", "ratio_clip has no effect in head"),
    ({"seq_logprob_error_threshold": 0.5}, "head", "every sequence is masked"),
    ({"reference_policy_kl_type": "k2"}, "head", "follow reference_policy_kl_type (k2)"),
)


@pytest.mark.parametrize(("config", "version", "message"), SILENT)
def test_what_the_trainer_accepts_silently_gets_a_warning(config: dict[str, Any], version: str, message: str) -> None:
    assert any(message in warning for warning in nemo_rl.parse(config, version).warnings)
    assert any(message in warning for warning in nemo_rl.evaluate(batch(), config, version=version).warnings)


def test_score_centering_is_known_and_its_missing_term_is_told() -> None:
    config = {"loss_fn": {"score_centering": True}}
    assert nemo_rl.parse(config).warnings == ()
    with_it, without = nemo_rl.evaluate(batch(), config), nemo_rl.evaluate(batch(), {"loss_fn": {}})
    assert nemo_rl.CENTERED in with_it.warnings and nemo_rl.CENTERED not in without.warnings
    assert with_it.metrics == without.metrics
    older = nemo_rl.parse({"score_centering": True}, "pr2269").warnings
    assert any(note.startswith("score_centering has no effect in pr2269") for note in older)


def test_a_whole_configuration_reads_as_its_loss_section() -> None:
    whole = {"loss_fn": TIS, "grpo": {"seq_logprob_error_threshold": 2.0, "num_prompts_per_step": 8}, "policy": {}}
    assert nemo_rl.parse(whole) == nemo_rl.parse({**TIS, "seq_logprob_error_threshold": 2.0})


@pytest.mark.parametrize("preset", nemo_rl.PRESETS)
def test_what_it_writes_it_reads_back(preset: str) -> None:
    settings = nemo_rl.parse(nemo_rl.PRESETS[preset])
    written = yaml.safe_load(nemo_rl.write(settings)) or {}
    assert nemo_rl.parse({"loss_fn": {}, **written}) == settings


def test_a_micro_batch_of_rows_the_batch_lacks_is_refused() -> None:
    with pytest.raises(SchemaError, match="names a row outside 0..3"):
        nemo_rl.evaluate(batch(), {}, micro_batches=[[0, 4]])


def test_notes_and_canonical_names_are_about_names_it_logs() -> None:
    logged = nemo_rl.evaluate(batch(), TIS).metrics
    assert set(nemo_rl.NOTES) | set(nemo_rl.CANONICAL) <= set(logged)
