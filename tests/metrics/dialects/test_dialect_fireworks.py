"""The Fireworks cookbook's dialect against what the cookbook itself returned, its configuration's errors, and laws."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.dialect_batch import one_advantage as batch
from support.dialect_golden import GoldenRun, differences, golden_runs

from ratioscope.errors import ConfigError, SchemaError
from ratioscope.metrics.dialects import fireworks
from ratioscope.record import arrow_schema

RUNS = [run for run in golden_runs("fireworks") if run.version in fireworks.VERSIONS]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_metrics_are_those_the_cookbook_returned_and_no_others(run: GoldenRun) -> None:
    found = fireworks.evaluate(run.inputs, run.config, version=run.version, kind=run.run).metrics
    wanted = {f"train/{name}": value for name, value in run.expected["metrics"].items()}
    rtol = 1e-3 if run.case.startswith("c04") else 1e-4  # float32 sums upstream; c04 has ratios of exp(20)
    assert not differences(found, wanted, rtol=rtol, atol=1e-6)
    assert set(found) == set(wanted)


@pytest.mark.parametrize("run", [run for run in RUNS if run.arrays], ids=str)
def test_weights_are_those_the_cookbook_formed(run: GoldenRun) -> None:
    found = fireworks.evaluate(run.inputs, run.config, version=run.version)
    for name in set(run.arrays) - {"dloss_dcurrent"}:
        np.testing.assert_allclose(found.arrays[name], run.arrays[name], rtol=1e-5)
    if "tis_weight" in run.arrays:
        assert found.weights is not None
        np.testing.assert_array_equal(found.weights, found.arrays["tis_weight"])


def test_flat_input_reads_as_padded_input_of_full_rows() -> None:
    padded = batch() | {"mask": np.ones((4, 6), bool)}
    flat = {name: value.ravel() for name, value in padded.items()} | {"response_lengths": np.full(4, 6)}
    found = fireworks.evaluate(flat, {}).metrics
    assert found == fireworks.evaluate(padded, {}).metrics
    assert found["train/total_resp_tokens"] == 24


def test_a_short_answer_counts_as_much_as_a_long_one() -> None:
    given = batch() | {"mask": np.array([[True] + 5 * [False]] + 3 * [6 * [True]])}
    given["old_logprobs"] = given["rollout_logprobs"].copy()
    given["old_logprobs"][0, 0] += np.log(2)
    found = fireworks.evaluate(given, {"tis": {"cap": 5.0}}).metrics
    assert found["train/tis/weight_mean"] == pytest.approx((2 + 1 + 1 + 1) / 4)  # over tokens it would be 20 / 19


def test_empty_rows_are_left_out() -> None:
    given = batch()
    given["mask"][:2] = False
    name = "train/tis/weight_mean"
    full = {key: value[2:] for key, value in given.items()}
    assert fireworks.evaluate(given, {}).metrics[name] == fireworks.evaluate(full, {}).metrics[name]


def test_the_sequence_level_is_the_geometric_mean_of_the_active_tokens() -> None:
    given = batch()
    found = fireworks.evaluate(given, {"tis": {"level": "sequence"}})
    gaps = np.where(given["mask"], given["old_logprobs"] - given["rollout_logprobs"], 0.0)
    wanted = np.exp(gaps.sum(axis=1) / given["mask"].sum(axis=1))[:, None] * given["mask"]
    assert found.weights is not None
    np.testing.assert_allclose(found.weights, wanted, rtol=1e-6)


def test_icepop_zeroes_outside_its_band_and_counts_that_apart_from_the_cap() -> None:
    given = batch() | {"mask": np.ones((4, 6), bool)}
    given["old_logprobs"] = given["rollout_logprobs"] + np.log(np.array([0.4, 0.5, 1.0, 1.5, 2.0, 2.5], np.float32))
    found = fireworks.evaluate(given, {"tis": {"icepop_threshold": 1.9, "cap": 1.2}})
    assert found.metrics["train/tis/icepop_clip_frac"] == pytest.approx(4 / 6)
    assert found.metrics["train/tis/clip_frac"] == pytest.approx(3 / 6)
    assert found.mask.sum(axis=1).tolist() == [2, 2, 2, 2]
    assert "still capped" in found.warnings[0]


def test_anchoring_on_rollout_needs_no_old_and_weights_with_one() -> None:
    given = batch()
    del given["old_logprobs"]
    found = fireworks.evaluate(given, {"anchor_logp": "rollout"})
    assert found.weights is not None
    np.testing.assert_array_equal(found.weights, given["mask"])
    with pytest.raises(SchemaError, match="no 'old_logprobs'"):
        fireworks.evaluate(given, {})


def test_raw_logprobs_move_only_the_inference_metrics_and_their_coverage() -> None:
    plain = fireworks.evaluate(batch(), {}).metrics
    raw = batch()["rollout_logprobs"] - 0.5
    raw[3] = np.nan
    with_raw = fireworks.evaluate(batch() | {"raw_rollout_logprobs": raw}, {}).metrics
    moved = {name for name in plain if plain[name] != with_raw[name]}
    assert moved == {"train/inference_k1", "train/inference_k3", "train/raw_inference_logprob_coverage"}
    assert with_raw["train/raw_inference_logprob_coverage"] == pytest.approx(6 / 10)


def test_raw_logprobs_are_read_from_the_records_too() -> None:
    extras = ('{"raw_rollout_logprobs": [-0.9]}', '{"raw_rollout_logprobs": [-0.9, null]}', '{"run_id": "a"}', None)
    rows = [
        {"step": 1, "sequence_id": str(i), "rollout_logprobs": [-1.0] * n, "old_logprobs": [-1.1] * n,
         "current_logprobs": [-1.1] * n, "advantages": [1.0], "extra": extra}
        for i, (n, extra) in enumerate(zip((1, 2, 1, 1), extras, strict=True))
    ]  # fmt: skip
    metrics = fireworks.evaluate(pa.Table.from_pylist(rows, schema=arrow_schema()), {}).metrics
    assert metrics["train/raw_inference_logprob_coverage"] == pytest.approx(3 / 5)
    rows[1]["extra"], wanted = '{"raw_rollout_logprobs": [-0.7, -0.7]}', (-0.2 - 0.4) / 2
    records = pa.Table.from_pylist(rows, schema=arrow_schema())
    assert fireworks.evaluate(records, {}).metrics["train/inference_k1"] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("raw", ["[-0.9]", '"-0.9"'])
def test_raw_logprobs_of_another_length_are_refused(raw: str) -> None:
    row = {"step": 1, "sequence_id": "a", "rollout_logprobs": [-1.0] * 2, "extra": f'{{"raw_rollout_logprobs": {raw}}}'}
    with pytest.raises(SchemaError, match="raw_rollout_logprobs.*wanted a list, one per token"):
        fireworks.evaluate(pa.Table.from_pylist([row], schema=arrow_schema()), {})


@given(st.integers(1, 4))
@settings(max_examples=4)
def test_chunks_average_scalars_and_add_counts(rows: int) -> None:
    whole = fireworks.evaluate(batch(), {}).metrics
    split = fireworks.evaluate(batch(), {}, micro_batches=rows).metrics
    assert split["train/active_tokens"] == whole["train/active_tokens"] == 10
    assert split["train/mask_ratio"] == whole["train/mask_ratio"]
    assert split["train/loss_sum"] == pytest.approx(whole["train/loss_sum"], rel=1e-5)
    if 4 % rows == 0:  # chunks of one size: a mean of their means is the mean
        assert split["train/tis/weight_mean"] == pytest.approx(whole["train/tis/weight_mean"])


def test_reinforce_and_igpo_ignore_the_cap_and_say_so() -> None:
    for loss in ("reinforce", "igpo"):
        capped = fireworks.evaluate(batch(), {"loss": loss, "tis": {"cap": 1.0}})
        assert capped.losses == fireworks.evaluate(batch(), {"loss": loss}).losses
        assert f"{loss} ignores" in capped.warnings[0]


REJECTED: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"tis": {"cap": -1.0}}, "head", "cap is -1.0.*0 or above"),
    ({"tis": {"level": "group"}}, "head", "level is 'group'.*'token', 'sequence'"),
    (
        {"tis": {"level": "sequence", "icepop_threshold": 2.0}},
        "head",
        "icepop_threshold is 2.0.*null at level 'sequence'",
    ),
    ({"tis": {"icepop_threshold": 0.5}}, "head", "icepop_threshold is 0.5.*1 or above"),
    ({"anchor_logp": "reference"}, "head", "anchor_logp is 'reference'.*'old_policy', 'rollout'"),
    ({"eps_clip": -0.1}, "head", "eps_clip is -0.1.*0 or above"),
    ({"eps_clip_high": -0.1}, "head", "eps_clip_high is -0.1.*0 or above"),
    ({"loss": "dapo", "eps_clip_c": 1.0}, "head", "eps_clip_c is 1.0.*above 1"),
    ({"kl_beta": -1}, "head", "kl_beta is -1.0.*0 or above"),
    ({"kl_beta": 0, "reference_job_id": "job"}, "head", "reference_job_id is 'job'.*null while kl_beta is 0"),
    ({"completions_per_prompt": 1}, "head", "completions_per_prompt is 1.*2 or above"),
    ({"loss": "sft"}, "head", "loss is 'sft'.*'grpo'"),
    ({"tis": 5}, "head", "tis is 5.*a mapping"),
    ({}, "v1", "version is 'v1'; allowed: one of 'head'"),
    ({}, "pr169", "version is 'pr169', older than the releases that are reproduced; wanted one of 'head'"),
)


@pytest.mark.parametrize(("config", "version", "message"), REJECTED)
def test_what_the_cookbook_rejects_names_field_value_and_what_is_allowed(
    config: dict[str, Any], version: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        fireworks.parse(config, version)


SILENT: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"tis_cap": 2.0}, "head", "tis_cap has no effect in head"),
    ({"anchor_logp": "rollout", "tis": {"cap": 2.0}}, "head", "tis changes nothing"),
)


@pytest.mark.parametrize(("config", "version", "message"), SILENT)
def test_what_the_cookbook_accepts_silently_gets_a_warning(config: dict[str, Any], version: str, message: str) -> None:
    assert any(message in warning for warning in fireworks.parse(config, version).warnings)


def test_what_it_writes_is_the_call_that_gives_the_settings() -> None:
    config = {"tis": {"cap": 2.0, "level": "sequence"}, "eps_clip_high": 0.28}
    written = fireworks.write(fireworks.parse(config))
    assert eval(written, {"Config": dict, "TISConfig": dict}) == config


def test_notes_and_canonical_names_are_about_names_it_logs() -> None:
    assert set(fireworks.NOTES) | set(fireworks.CANONICAL) <= set(fireworks.evaluate(batch(), {}).metrics)
