"""verl's configuration: what it rejects, what it accepts in another sense than meant, and what we print back."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.dialect_golden import read_json

from ratioscope.errors import ConfigError
from ratioscope.metrics.corrections.correction import Correction, Normalise, Reject, Weigh, mask, reject, truncate
from ratioscope.metrics.dialects import verl
from ratioscope.metrics.dialects.verl.correction import as_config, correction_of, settings_for
from ratioscope.metrics.dialects.verl.settings import Rejection, VerlSettings

ERRORS = [entry for entry in read_json("verl", "errors.json") if "config" in entry]
BATCH = {"rollout_logprobs": np.array([[-1.0, -2.0]]), "old_logprobs": np.array([[-1.1, -1.9]])}
ALL_PRESETS = [(version, name) for version, named in verl.PRESETS_OF.items() for name in named]


@pytest.mark.parametrize("entry", ERRORS, ids=lambda entry: entry["name"])
def test_configurations_verl_rejects_are_rejected_and_no_others(entry: Mapping[str, Any]) -> None:
    if entry["raises"] is None:
        verl.evaluate(BATCH, entry["config"], kind="rollout_correction")
        return
    with pytest.raises(ConfigError, match=r"^rollout_(is|rs)(_threshold)? is .+; allowed: .+"):
        verl.evaluate(BATCH, entry["config"], kind="rollout_correction")


def test_an_unknown_loss_type_is_rejected() -> None:
    with pytest.raises(ConfigError, match="loss_type is 'a2c'; allowed: one of 'ppo_clip', 'reinforce'"):
        verl.parse({"bypass_mode": True, "loss_type": "a2c"})


def test_a_key_of_another_generation_is_rejected_with_the_keys_there_are() -> None:
    with pytest.raises(
        ConfigError, match="verl 0.9.1 has no rollout_correction key 'rollout_token_veto_threshold'; it has"
    ):
        verl.parse({"rollout_token_veto_threshold": 1e-4})


@pytest.mark.parametrize(
    "config", [{"rollout_rs": "geometric"}, {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"}]
)
def test_the_older_generation_rejects_what_it_does_not_know(config: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match="; allowed: "):
        verl.parse({"rollout_rs_threshold": 2.0, **config}, "0.7.1")


@pytest.mark.parametrize("version", verl.VERSIONS)
def test_presets_are_verls(version: str) -> None:
    assert dict(verl.PRESETS_OF[version]) == read_json("verl", "presets.json")[version]


def test_the_default_presets_are_the_newest() -> None:
    assert verl.PRESETS == read_json("verl", "presets.json")["0.9.1"]


@pytest.mark.parametrize(
    ("config", "warning"),
    [
        ({"rollout_is": "token", "rollout_is_threshold": 0.52}, "0.5_2 as 0.52"),
        ({"rollout_is": "token", "rollout_is_threshold": 510}, "5_10 as 510"),
        ({"rollout_is": "token", "rollout_is_threshold": "0.5_2"}, "write both bounds with a dot"),
        ({"rollout_is": "token", "rollout_is_threshold": "0.5_5_7"}, "5_7 as 57"),
        ({"rollout_is": "token", "rollout_is_threshold": None}, "skips importance sampling"),
        ({"rollout_is": "token", "rollout_is_threshold": "nan"}, "not finite"),
        ({"rollout_rs": "token_k1", "rollout_rs_threshold": "0.9_1.5"}, "within 1/upper .. 1/lower"),
        ({"rollout_rs": "token_k1", "rollout_rs_threshold": 510}, "used with its reciprocal"),
        ({"rollout_rs": "token_k2,token_k2", "rollout_rs_threshold": 0.1}, "twice"),
        ({"rollout_rs_threshold": 0.1}, "nothing is rejected"),
        ({"rollout_is_batch_normalize": True}, "no effect without rollout_is"),
        ({"bypass_mode": True}, "loss_mode: bypass_mode"),
        ({"bypass_mode": True, "rollout_is": "token"}, "never applies"),
        ({"loss_type": "reinforce"}, "ignored here"),
    ],
)
def test_what_verl_takes_in_another_sense_than_meant_is_warned_of(config: Mapping[str, Any], warning: str) -> None:
    assert sum(warning in text for text in verl.parse(config).warnings) == 1


def test_a_pair_that_the_older_generation_does_not_check_is_warned_of() -> None:
    config = {"rollout_rs": "token_k1", "rollout_rs_threshold": "3.0_2.0"}
    assert any("everything is rejected" in text for text in verl.parse(config, "0.7.1").warnings)


def test_sound_settings_give_no_warning() -> None:
    for name, config in verl.PRESETS.items():
        if name.startswith("decoupled") or name == "disabled":
            assert verl.parse(config).warnings == ()


def test_a_whole_configuration_is_read_for_its_block_and_its_neighbours() -> None:
    config = {
        "algorithm": {"rollout_correction": {"rollout_is": "token", "bypass_mode": True, "loss_type": "reinforce"}},
        "actor_rollout_ref": {
            "actor": {"clip_ratio": 0.1, "clip_ratio_high": 0.28, "policy_loss": {"loss_mode": "bypass_mode"}},
            "rollout": {"calculate_log_probs": False},
        },
    }
    settings = verl.parse(config)
    assert (settings.clip.low, settings.clip.high, settings.bypass) == (0.1, 0.28, True)
    assert [text.split(":")[0] for text in settings.warnings] == [
        "actor_rollout_ref.rollout.calculate_log_probs is false"
    ]


@pytest.mark.parametrize(("version", "name"), ALL_PRESETS)
def test_settings_written_back_are_the_settings_read(version: str, name: str) -> None:
    settings = replace(verl.parse(verl.PRESETS_OF[version][name], version), warnings=())
    assert replace(verl.parse(as_config(settings), version), warnings=()) == settings


def test_bypass_is_written_with_the_flags_it_needs_and_pairs_in_quotes() -> None:
    text = verl.write(verl.parse(verl.PRESETS["bypass_pg_token_icepop"]))
    assert 'rollout_is_threshold: "0.5_5.0"' in text
    assert "loss_mode: bypass_mode" in text and "calculate_log_probs: true" in text
    assert text.count("rollout_correction:") == 2
    assert "policy_loss" not in verl.write(verl.parse(verl.PRESETS["decoupled_seq_is"]))


@pytest.mark.parametrize(("version", "name"), ALL_PRESETS)
def test_a_correction_survives_the_way_through_verls_settings(version: str, name: str) -> None:
    settings = verl.parse(verl.PRESETS_OF[version][name], version)
    correction = correction_of(settings)
    back = correction_of(settings_for(correction, version))
    assert back.gap == correction.gap and len(back.steps) == len(correction.steps)
    for ours, again in zip(correction.steps, back.steps, strict=True):
        assert type(ours) is type(again)
        if isinstance(ours, Reject) and isinstance(again, Reject):
            assert (ours.of, ours.by) == (again.of, again.by)
            assert (ours.low, ours.high) == pytest.approx((again.low, again.high))
        else:
            assert ours == again


@pytest.mark.parametrize(
    ("correction", "settings"),
    [
        (truncate(2.0), VerlSettings("0.9.1", "token", 2.0)),
        (truncate(3.0, level="sequence"), VerlSettings("0.9.1", "sequence", 3.0)),
        (mask(0.5, 5.0), VerlSettings("0.9.1", "token", 5.0, 0.5)),
        (
            Correction("n", (Weigh(high=2.0), Normalise("token"))),
            VerlSettings("0.9.1", "token", 2.0, batch_normalize=True),
        ),
        (
            reject("weight", "mean", low=0.5, high=4.0),
            VerlSettings("0.9.1", rejections=(Rejection("seq_mean_k1", 0.25, 2.0),)),
        ),
        (
            reject("k1", "sum", low=0.0, high=math.log(2)),
            VerlSettings("0.9.1", rejections=(Rejection("seq_sum_k1", 1.0, 2.0),)),
        ),
        (reject("k3", "max", high=0.1), VerlSettings("0.9.1", rejections=(Rejection("seq_max_k3", None, 0.1),))),
        (
            Correction("t", (Weigh(high=2.0),), "total"),
            VerlSettings("0.9.1", "token", 2.0, bypass=True, loss_type="reinforce"),
        ),
    ],
)
def test_corrections_have_verl_settings(correction: Correction, settings: VerlSettings) -> None:
    found = settings_for(correction)
    assert [each.option for each in found.rejections] == [each.option for each in settings.rejections]
    for ours, wanted in zip(found.rejections, settings.rejections, strict=True):
        assert (ours.lower, ours.upper) == pytest.approx((wanted.lower, wanted.upper))
    assert replace(found, rejections=()) == replace(settings, rejections=())


@pytest.mark.parametrize(
    "correction",
    [
        truncate(2.0, level="geometric"),
        truncate(2.0, low=0.5),
        reject("weight", "any", low=1e-4),
        reject("k1", "max", high=1.0),
        reject("k3", "token", low=0.1, high=1.0),
        Correction("late weights", (Reject("k3", "mean", high=0.01), Weigh(high=2.0))),
        Correction("over what is left", (Weigh(high=2.0), Reject("k3", "mean", high=0.01, over="remaining"))),
        Correction("another level", (Weigh(high=2.0), Normalise("sequence"))),
    ],
)
def test_what_verl_cannot_say_is_refused(correction: Correction) -> None:
    with pytest.raises(ConfigError, match="verl"):
        verl.write(correction)
