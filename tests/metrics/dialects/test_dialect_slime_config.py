"""slime's configuration: what it rejects we reject, what it takes in silence we say, what we write it reads."""

import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import yaml
from support.dialect_golden import read_json

from ratioscope.errors import ConfigError, RatioscopeError
from ratioscope.metrics.dialects import slime
from ratioscope.metrics.dialects.slime.settings import HOOK_PATHS

ERRORS = read_json("slime", "errors.json")
NAMED = {
    "unknown_tis_mode": "tis_mode is 'foo'; allowed: one of 'truncate', 'clip', 'mask'",
    "unknown_tis_level": "tis_level is 'foo'; allowed: one of 'token', 'sequence', 'geometric'",
    "unknown_rs_level": "rs_level is 'foo'; allowed: one of 'token', 'sequence', 'geometric'",
    "geometric_with_batch_normalize": "tis_level is 'geometric'; allowed: 'token' or 'sequence'",
    "clip_lower_not_below_upper": "tis_lower_bound is 2.0; allowed: a number below tis_upper_bound",
    "mask_lower_above_upper": "tis_lower_bound is 3.0; allowed: a number below tis_upper_bound",
    "rs_bounds_inverted": "rs_lower_bound is 3.0; allowed: a number below rs_upper_bound",
    "both_tis_bounds_null": "tis_upper_bound is None; allowed: a number",
    "metrics_only_without_bounds_attributes": "tis_lower_bound is absent",
    "use_rs_attribute_missing": "use_rs is absent",
    "list_length_mismatch": "the response lengths add up to 3",
    "shape_mismatch": "the response lengths add up to 3",
}
BATCH_NAMES = {"tr": "old_logprobs", "ro": "rollout_logprobs"}


def mis_batch(inputs: dict[str, list[list[float]]]) -> dict[str, Any]:
    """One sample of three tokens, with some lists of the case in place of it."""
    zeros = np.zeros(3, np.float32)
    arrays = {name: zeros for name in ("rollout_logprobs", "old_logprobs", "current_logprobs", "mask", "advantages")}
    given = {BATCH_NAMES[name]: np.concatenate(lists) for name, lists in inputs.items()}
    return {"response_lengths": np.array([3]), **arrays, **given}


@pytest.mark.parametrize("case", ERRORS["cases"], ids=lambda case: case["name"])
def test_what_slime_rejects_is_rejected_and_nothing_else(case: dict[str, Any]) -> None:
    args = {k: v for k, v in {**ERRORS["base_args"], **case["overrides"]}.items() if k not in case["dropped"]}
    config = {"method": "mis", "args": {**args, "get_mismatch_metrics": not args["use_tis"]}}
    if case["error"] is None:
        slime.evaluate(mis_batch(case["inputs"]), config)
        return
    with pytest.raises(RatioscopeError) as caught:
        slime.evaluate(mis_batch(case["inputs"]), config)
    assert NAMED[case["name"]] in str(caught.value)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"use_tis": True, "use_rollout_logprobs": True}, "use_tis is True; allowed: false with use_rollout_logprobs"),
        (
            {"get_mismatch_metrics": True},
            "get_mismatch_metrics is True; allowed: true only with custom_tis_function_path",
        ),
        ({"custom_tis_function_path": "a/mis.py:compute"}, "cannot load the file.py:name form"),
        ({"custom_tis_function_path": "mine.hook"}, f"'mine.hook'; allowed: one of '{HOOK_PATHS['vanilla_tis']}'"),
        ({"method": "tis", "args": {}}, "method is 'tis'; allowed: one of 'none', 'vanilla_tis'"),
        ({"eps-clip-c": 1.0}, "eps_clip_c is 1.0; allowed: above 1"),
        ({"advantage_estimator": "rloo"}, "advantage_estimator is 'rloo'; allowed: one of 'grpo'"),
        ({"--tis-clip": "two"}, "tis_clip is 'two'; allowed: a number"),
        (slime.PRESETS["mis"] | {"rs_veto_threshold": "1e-4"}, "write 1.0e-4"),
        (slime.PRESETS["mis"] | {"tis_lower_bound": None, "tis_upper_bound": 0}, "tis_upper_bound is 0.0; allowed"),
    ],
)
def test_a_rejected_setting_is_named_with_its_value(config: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        slime.parse(config)
    assert named in str(caught.value)


MIS = slime.PRESETS["mis"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (slime.PRESETS["mis_metrics_only"] | {"use_rs": True}, "use_rs does nothing"),
        (MIS | {"use_rs": False}, "rs_veto_threshold does nothing"),
        (MIS | {"tis_lower_bound": 3.0, "use_rs": False}, "truncate ignores it"),
        (MIS | {"tis_lower": 0.1}, "did you mean tis_lower_bound?"),
        ({"use_tis": True, "tis_clip_low": 3}, "every weight becomes tis_clip"),
        (
            {"get_mismatch_metrics": True, "custom_tis_function_path": HOOK_PATHS["icepop"]},
            "the run is corrected all the same",
        ),
        ({"method": "mis", "args": MIS | {"use_rollout_logprobs": True}}, "counts the mismatch twice"),
        ({"advantage_estimator": "cispo"}, "lower clip bound"),
    ],
)
def test_what_slime_takes_in_silence_is_said(config: dict[str, Any], said: str) -> None:
    assert any(said in warning for warning in slime.parse(config).warnings)


def test_sound_settings_raise_no_warning() -> None:
    noisy = {name for name, preset in slime.PRESETS.items() if slime.parse(preset).warnings}
    assert noisy == {"mis_mask", "mis_geometric"}, "both keep the veto of the shipped file, which use_rs=false disables"


def test_crossed_bounds_make_every_weight_the_upper_one() -> None:
    """What the warning says, and what torch.clamp does."""
    weights = slime.evaluate(mis_batch({}), {"use_tis": True, "tis_clip_low": 3.0, "tis_clip": 2.0}).weights
    assert weights is not None and (weights == 2.0).all()


def test_one_configuration_reads_the_same_however_it_is_spelled() -> None:
    forms: Sequence[dict[str, Any]] = (
        {"use_tis": True, "tis_clip_low": 0.5, "custom_tis_function_path": HOOK_PATHS["icepop"]},
        {"--use-tis": True, "--tis-clip-low": "0.5", "--custom-tis-function-path": HOOK_PATHS["icepop"]},
        {"method": "icepop", "args": {"use_tis": True, "tis_clip_low": 0.5}},
    )
    assert len({slime.parse(form) for form in forms}) == 1


def arguments(text: str) -> dict[str, Any]:
    """What slime reads from the flags and the YAML below them."""
    flags, _, file = text.partition("\n\n")
    words = shlex.split(flags.replace("\n", " "))
    starts = [i for i, word in enumerate(words) if word.startswith("--")]
    values = {}
    for start, end in pairwise([*starts, len(words)]):
        values[words[start]] = words[start + 1] if end > start + 1 else True
    return values | (yaml.safe_load(file) or {})


@pytest.mark.parametrize("name", slime.PRESETS)
def test_a_preset_survives_being_written_and_read(name: str) -> None:
    settings = slime.parse(slime.PRESETS[name])
    assert slime.parse(arguments(slime.write(settings))) == settings


def test_a_small_threshold_is_written_so_that_yaml_reads_a_number() -> None:
    text = slime.write(slime.parse(slime.PRESETS["mis"] | {"rs_veto_threshold": 1e-5}))
    assert "rs_veto_threshold: 1.0e-05" in text
    assert arguments(text)["rs_veto_threshold"] == 1e-5
