"""What run.json tells of both sides: agreement, difference, and above all what it does not tell."""

import json
from typing import Any

import pytest
from support.hostile import HOSTILE
from support.paths import ROOT

from ratioscope.ingest.analysis.comparability import ComparedSetting, comparability

SAMPLES = ROOT / "sample_data" / "runs"


def told(trainer: str | None, config: Any, **versions: str) -> dict[str, ComparedSetting]:
    return {each.name: each for each in comparability({"trainer": trainer, "config": config, "versions": versions})}


def test_a_real_run_tells_of_all_but_the_log_prob_mode() -> None:
    info = json.loads((SAMPLES / "trl-vllm-healthy" / "run.json").read_text())
    found = {each.name: each for each in comparability(info)}
    assert {name for name, each in found.items() if each.state != "ok"} == {"precision"}
    assert found["precision"].rollout == "bfloat16" and found["precision"].trainer == "float32 weights, bf16 autocast"
    assert found["precision"].state == "expected" and "not on record" == found["log-prob mode"].rollout
    assert found["temperature"].source == "sampling.temperature" and "vllm 0.32.0" == found["versions"].rollout


@pytest.mark.parametrize(
    "config", [None, {}, [], {"learning_rate": 1e-5}, {"eval": {"temperature": 0.7, "top_p": 0.9}}]
)
def test_what_is_not_on_record_is_unknown_and_not_guessed(config: Any) -> None:
    found = told("trl 1.0", config)
    assert {each.state for each in found.values()} == {"unknown"} and all(each.why for each in found.values())


@pytest.mark.parametrize(
    ("trainer", "state"), [("trl 1.16", "ok"), ("ROLL", "differs"), ("somebody's own", "unknown"), (None, "unknown")]
)
def test_a_temperature_is_judged_by_what_the_trainer_does_with_it(trainer: str | None, state: str) -> None:
    assert told(trainer, {"sampling": {"temperature": 0.6}})["temperature"].state == state
    assert told(trainer, {"sampling": {"temperature": 1}})["temperature"].state == "ok"


@pytest.mark.parametrize(
    ("trainer", "config", "name", "state"),
    [
        ("trl", {"sampling": {"top_p": 0.9}}, "top-p", "differs"),
        ("verl 0.7", {"actor_rollout_ref": {"rollout": {"top_p": 0.9, "val_kwargs": {"top_p": 1.0}}}}, "top-p", "differs"),
        ("NeMo-RL", {"generation": {"top_k": 20}}, "top-k", "ok"),
        ("slime", {"args": {"rollout_top_p": 0.95}}, "top-p", "ok"),
        ("areal", {"areal": {"gconfig": {"top_p": 0.5}}}, "top-p", "differs"),
        ("OpenRLHF", {"rollout.top_p": 0.9}, "top-p", "unknown"),
        ("trl", {"sampling": {"top_k": -1}}, "top-k", "ok"),
        ("trl", {"sampling": {"min_p": None}}, "min-p", "ok"),
        ("trl", {"sampling": {"min_p": "much"}}, "min-p", "unknown"),
        ("trl", {"sampling": {"repetition_penalty": 1.1}}, "repetition penalty", "differs"),
    ],
)  # fmt: skip
def test_what_cuts_the_distribution_is_judged_by_what_the_trainer_does(
    trainer: str, config: Any, name: str, state: str
) -> None:
    assert told(trainer, config)[name].state == state


def test_the_log_prob_mode_matters_only_where_something_is_applied() -> None:
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0, "repetition_penalty": 1.0}
    for mode, hot, state in (
        ("raw_logprobs", 1.0, "ok"),
        ("raw_logprobs", 0.6, "differs"),
        ("processed_logprobs", 0.6, "ok"),
    ):
        config = {"rollout": {**plain, "temperature": hot, "logprobs_mode": mode}}
        assert told("verl", config)["log-prob mode"].state == state
    assert told("verl", {"rollout": {**plain, "temperature": 0.6}})["log-prob mode"].state == "unknown"


@pytest.mark.parametrize(
    ("config", "state"),
    [
        ({"rollout": {"dtype": "bfloat16"}, "model_dtype": "torch.bfloat16"}, "ok"),
        ({"rollout": {"dtype": "fp8"}, "args": {"bf16": True}}, "differs"),
        ({"rollout": {"dtype": "half"}, "args": {"fp16": True}}, "ok"),
        ({"rollout": {"dtype": "auto"}, "args": {"bf16": True}}, "unknown"),
        ({"args": {"bf16": True}}, "unknown"),
    ],
)
def test_precisions_are_compared_where_both_are_known(config: Any, state: str) -> None:
    assert told("verl", config)["precision"].state == state


def test_hostile_and_deep_settings_are_no_error() -> None:
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"sampling": deep, "temperature": 0.5}
    for text in HOSTILE[:12]:
        config = {text: {"temperature": text, "top_p": [text]}, "engine": text, "sampling": {"temperature": text}}
        assert told(text, config | {"x": deep}, vllm=text, torch=text)["temperature"].state == "unknown"
