"""The known effect of a setting in which two runs differ: faults, sides of the gap, lag, published range, remedies, versions."""

from typing import Any

import pytest

from ratioscope.ingest.analysis.run_settings import settings
from ratioscope.ingest.analysis.setting_effects import ORDER, setting_effects
from ratioscope.metrics.known.faults import faults, remedies
from ratioscope.metrics.known.setting_keys import allowed_lag, causes_of_key


def run(trainer: str | None, versions: dict[str, str] | None = None, **config: Any) -> dict[str, Any]:
    return {"trainer": trainer, "config": config, "versions": versions or {}}


DENSE: dict[str, Any] = {
    "model": {"path": "Qwen/Qwen3-8B"},
    "rollout": {"dtype": "bfloat16"},
    "model_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("a", "b", "key", "kind", "words"),
    [
        (
            run("trl", vllm_enable_sleep_mode=False),
            run("trl 1.9.0", vllm_enable_sleep_mode=True),
            "config.vllm_enable_sleep_mode",
            "known fault",
            "B alone has a known fault. TRL 1.9.0 puts vLLM to sleep",
        ),
        (run(None, top_p=1.0), run(None, top_p=0.9), "config.top_p", "sides of the gap", "too high by up to"),
        (
            run("trl", max_staleness=0),
            run("trl", max_staleness=4),
            "config.max_staleness",
            "lag",
            "a lag of 1 in A and of 5 in B",
        ),
        (
            run("mine", **DENSE),
            run("mine", **DENSE | {"model": {"path": "Qwen/Qwen3-0.6B"}}),
            "config.model.path",
            "published range",
            "K3 0.0002 to 0.001 (dense models of 1 to 14B in bf16) in A, K3 0.001 to 0.0025",
        ),
        (
            run("slime", update_weights_interval=1),
            run("slime", update_weights_interval=4),
            "config.update_weights_interval",
            "remedy",
            "the sampler's weights are older than the trainer's",
        ),
        (run(None, {"vllm": "0.11.0"}), run(None, {"vllm": "0.12.0"}), "versions.vllm", "version", "Kernels change"),
    ],
    ids=["fault", "sides", "lag", "published", "remedy", "version"],
)  # fmt: skip
def test_the_surest_knowledge_of_a_setting_is_told(
    a: dict[str, Any], b: dict[str, Any], key: str, kind: str, words: str
) -> None:
    found = setting_effects(a, b, [key])
    assert found[key].kind == kind and words in found[key].words and ORDER[found[key].place] == kind


def test_the_fault_is_told_of_the_run_that_has_it() -> None:
    a, b = (run("verl", actor_rollout_ref={"rollout": {"top_p": top_p}}) for top_p in (0.9, 1.0))
    key = "config.actor_rollout_ref.rollout.top_p"
    assert setting_effects(a, b, [key])[key].words.startswith("A alone has")
    assert setting_effects(b, a, [key])[key].words.startswith("B alone has")


@pytest.mark.parametrize("key", ["config.lr", "config.seed", "config.eval.top_p", "code.trl", "config.output_dir"])
def test_nothing_is_told_of_a_setting_of_which_nothing_is_known(key: str) -> None:
    a, b = run("verl", lr=1, seed=1, eval={"top_p": 1.0}), run("verl", lr=2, seed=2, eval={"top_p": 0.5})
    assert setting_effects(a, b, [key]) == {}


def test_two_settings_that_both_sides_treat_alike_are_no_difference_of_the_gap() -> None:
    a, b = (run("slime", rollout_temperature=value) for value in (1.0, 0.8))
    found = setting_effects(a, b, ["config.rollout_temperature"])
    assert found["config.rollout_temperature"].kind == "remedy"


@pytest.mark.parametrize("value", ["Infinity", "1e400", "nan", "null", '"x"', "[1]", "{}"])
def test_a_lag_of_no_number_is_not_known(value: str) -> None:
    assert allowed_lag({"config.max_staleness": value}, "trl") is None
    assert allowed_lag({"config.max_staleness": "3"}, "trl") is not None


def test_every_key_of_a_remedy_is_found_by_its_end_and_every_fault_names_keys() -> None:
    for remedy in remedies():
        for name in remedy.names:
            assert remedy.code in causes_of_key(f"config.{name}", remedy.trainer)
            assert not name.startswith("-") and "=" not in name and " " not in name
    assert all(condition["key"] for fault in faults() for condition in fault.when)


def test_a_precision_is_one_setting_in_either_spelling() -> None:
    a, b = run("trl", model_dtype="torch.float32"), run("trl", model_dtype="float32")
    assert settings(a) == settings(b) and settings(run("trl", name="torch.floating")) == {
        "trainer": "trl", "config.name": "torch.floating",
    }  # fmt: skip
