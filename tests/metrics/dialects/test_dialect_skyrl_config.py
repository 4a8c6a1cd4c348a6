"""SkyRL's configuration: what it rejects we reject, what it takes in silence we say, what we write it reads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.dialect_golden import read_json
from support.sizes import examples

from ratioscope.errors import ConfigError, RatioscopeError
from ratioscope.metrics.dialects import skyrl
from ratioscope.metrics.dialects.skyrl.settings import ALGORITHM, BLOCKS, Settings

LOGPROBS = ("rollout_logprobs", "old_logprobs", "current_logprobs")


def evaluated(algorithm: dict[str, Any], *, without: str = "") -> Callable[[], object]:
    batch = {name: np.zeros((1, 2), np.float32) for name in (*LOGPROBS, "advantages") if name != without}
    return lambda: skyrl.evaluate(batch, algorithm)


ON_ROLLOUT: dict[str, Any] = {"policy_loss_type": "cispo", "cispo": {"cispo_anchor": "rollout"}}
TOKEN_TIS: dict[str, Any] = {"off_policy_correction": {"tis_ratio_type": "token"}}
CALLS: dict[str, Callable[[], object]] = {
    "compute_tis_ratio_unknown_type": evaluated({"off_policy_correction": {"tis_ratio_type": "foo"}}),
    "compute_sequence_mask_unknown_metric": evaluated({"off_policy_correction": {"sequence_mask_metric": "foo"}}),
    "off_policy_config_accepts_any_string_at_construction_ok": lambda: Settings(tis_ratio_type="foo"),
    "cispo_anchor_invalid": evaluated({"cispo": {"cispo_anchor": "foo"}}),
    "cispo_rollout_anchor_with_tis": evaluated(ON_ROLLOUT | TOKEN_TIS),
    "cispo_rollout_anchor_without_rollout_logprobs": evaluated(ON_ROLLOUT, without="rollout_logprobs"),
    "rollout_is_without_rollout_logprobs": evaluated({"policy_loss_type": "rollout_is"}, without="rollout_logprobs"),
    "dppo_invalid_type": evaluated({"dppo": {"dppo_type": "foo"}}),
    "correction_ignored_when_rollout_logprobs_none_ok": evaluated(TOKEN_TIS, without="rollout_logprobs"),
    "unknown_loss_reduction": evaluated({"loss_reduction": "foo"}),
    "rollout_is_with_correction_but_old_missing": evaluated(
        {"policy_loss_type": "rollout_is"} | TOKEN_TIS, without="old_logprobs"
    ),
}
NAMED = {
    "compute_tis_ratio_unknown_type": "tis_ratio_type is 'foo'; allowed: one of 'token', 'sequence', None",
    "compute_sequence_mask_unknown_metric": "sequence_mask_metric is 'foo'; allowed: one of 'geometric', 'product', None",
    "cispo_anchor_invalid": "cispo_anchor is 'foo'; allowed: one of 'old', 'rollout'",
    "cispo_rollout_anchor_with_tis": "tis_ratio_type is 'token'; allowed: null, because cispo_anchor='rollout'",
    "cispo_rollout_anchor_without_rollout_logprobs": "no 'rollout_logprobs', which cispo with cispo_anchor='rollout'",
    "rollout_is_without_rollout_logprobs": "no 'rollout_logprobs', which rollout_is",
    "dppo_invalid_type": "dppo_type is 'foo'; allowed: one of 'binary_tv', 'binary_kl'",
    "unknown_loss_reduction": "loss_reduction is 'foo'; allowed: one of 'token_mean'",
    "rollout_is_with_correction_but_old_missing": "no 'old_logprobs', which off_policy_correction",
}


@pytest.mark.parametrize("case", read_json("skyrl", "errors.json")["cases"], ids=lambda case: case["name"])
def test_what_skyrl_rejects_is_rejected_and_nothing_else(case: dict[str, Any]) -> None:
    call = CALLS[case["name"]]
    if case["error"] is None:
        call()
        return
    with pytest.raises(RatioscopeError) as caught:
        call()
    assert NAMED[case["name"]] in str(caught.value)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"policy_loss_type": "kl_cov", **TOKEN_TIS}, "policy_loss_type is 'kl_cov'"),
        ({"policy_loss_type": "my_loss"}, "policy_loss_type is 'my_loss'; allowed: one of 'regular'"),
        ({"loss_reduction": "seq_mean_token_sum_norm"}, "max_seq_len is None"),
        ({"off_policy_correction": {"tis_ratio_typ": "token"}}, "off_policy_correction.tis_ratio_typ is 'token'"),
        ({"off_policy_correction": {"geo_mask_low": None}}, "geo_mask_low is None; allowed: a number"),
        ({"generator.sampling_params.logprobs": 5}, "generator.sampling_params.logprobs is 5"),
        ({"trainer_algorithm": {}, "dtype": "float16"}, "dtype is 'float16'; allowed: one of 'float32', 'bfloat16'"),
    ],
)
def test_a_rejected_setting_is_named_with_its_value(config: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        skyrl.parse(config)
    assert named in str(caught.value)


def correction(**values: Any) -> dict[str, Any]:
    return {"off_policy_correction": values}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (correction(token_mask_is_threshold_low=0.5), "masks no token"),
        ({"use_tis": True}, "every weight becomes -1.0"),
        ({"policy_loss_type": "rollout_is", **TOKEN_TIS}, "counts the mismatch twice"),
        ({"policy_loss_type": "importance_sampling", **TOKEN_TIS}, "never applies"),
        ({"policy_loss_type": "gspo"}, "sequence_mean"),
        (correction(sequence_mask_metric="product", product_mask_low=3), "product_mask_low is above"),
        (correction(outlier_token_is_threshold_low=2, outlier_token_is_threshold_high=1), "everything is masked"),
        (
            {
                "trainer": {"algorithm": correction(outlier_token_is_threshold_low=1e-4)},
                "generator.sampling_params.logprobs": None,
            },
            "silently skips them",
        ),
        (
            {
                "trainer.algorithm.off_policy_correction.tis_ratio_type": "token",
                "generator.sampling_params.logprobs": None,
            },
            "SkyRL sets it to 1",
        ),
    ],
)
def test_what_skyrl_takes_in_silence_is_said(config: dict[str, Any], said: str) -> None:
    assert any(said in warning for warning in skyrl.parse(config).warnings)


def test_sound_settings_raise_no_warning() -> None:
    assert {name: skyrl.parse(preset).warnings for name, preset in skyrl.PRESETS.items()} == dict.fromkeys(
        skyrl.PRESETS, ()
    )


def test_the_forgotten_cap_of_use_tis_turns_every_weight_to_minus_one() -> None:
    batch = {name: np.zeros((1, 2), np.float32) for name in (*LOGPROBS, "advantages")}
    weights = skyrl.evaluate(batch, {"use_tis": True}).weights
    assert weights is not None and (weights == -1).all()


def test_one_configuration_reads_the_same_however_it_is_nested() -> None:
    block = {"tis_ratio_type": "sequence", "sequence_tis_ratio_clip_high": 3.0}
    forms: list[dict[str, Any]] = [
        {"trainer": {"algorithm": {"off_policy_correction": block, "lambd": 1.0}}},
        {"trainer_algorithm": {"off_policy_correction": block}},
        {"off_policy_correction": block},
        block,
        {f"trainer.algorithm.off_policy_correction.{name}": value for name, value in block.items()},
        {"+trainer.algorithm.off_policy_correction": block},
    ]
    assert len({skyrl.parse(form) for form in forms}) == 1


def overrides(text: str) -> dict[str, Any]:
    """Lines name=value as SkyRL's command line reads them."""
    return {name: yaml.safe_load(value) for name, value in (line.split("=", 1) for line in text.splitlines())}


@pytest.mark.parametrize("name", skyrl.PRESETS)
def test_a_preset_survives_being_written_and_read(name: str) -> None:
    settings = skyrl.parse(skyrl.PRESETS[name])
    assert skyrl.parse(overrides(skyrl.write(settings))) == settings
    assert ("logprobs=1" in skyrl.write(settings)) == (settings.corrects or settings.anchors_on_rollout)


@examples(50)
@given(
    st.fixed_dictionaries(
        {
            "tis_ratio_type": st.sampled_from(["token", "sequence"]),
            "token_tis_ratio_clip_high": st.floats(0.1, 100),
            "geo_mask_low": st.floats(0.1, 1),
            "outlier_token_is_threshold_high": st.one_of(st.none(), st.floats(1, 1000)),
        }
    )
)
def test_any_correction_survives_being_written_and_read(block: dict[str, Any]) -> None:
    settings = skyrl.parse(block)
    assert skyrl.parse(overrides(skyrl.write(settings))) == settings


def test_every_setting_has_one_place_in_the_configuration() -> None:
    placed = [*ALGORITHM, *(name for names in BLOCKS.values() for name in names)]
    assert len(placed) == len(set(placed))
    known = {name for name, field in Settings.__dataclass_fields__.items() if "allowed" in field.metadata}
    assert known == {*placed, "dtype"}
