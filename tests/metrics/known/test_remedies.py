"""Remedies per trainer: causes and trainers exist, every cell has a source, and an unknown cell stays empty."""

from ratioscope.collectors.trainers import ADAPTERS
from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.known.faults import can_be_corrected, is_done, remedies, remedy_for
from ratioscope.metrics.known.tables import table
from ratioscope.metrics.known.trainers import NAMES, trainer_named


def test_the_trainers_are_those_that_can_be_recorded() -> None:
    assert set(NAMES) == {adapter.name for adapter in ADAPTERS}


def test_each_title_of_a_trainer_is_recognised_with_and_without_a_version() -> None:
    for adapter in ADAPTERS:
        for text in (adapter.title, adapter.name, f"{adapter.distribution or adapter.name} 1.2.3"):
            assert trainer_named(text) == adapter.name, text
    assert trainer_named(None) is None and trainer_named("trlx 0.6") is None and trainer_named("") is None


def test_each_remedy_is_of_a_known_cause_and_trainer_and_has_a_source() -> None:
    for each in remedies():
        assert each.code in CAUSE and each.trainer in NAMES, each
        assert each.do.endswith(".") and each.source, each


def test_each_key_of_a_remedy_stands_in_its_words() -> None:
    """A reader copies the words, a program the keys."""
    for each in remedies():
        for key in each.keys:
            last = key.rpartition(".")[2].split("=")[0].split(" ")[0]
            known_only_to_programs = key in ("--custom-generate-function-path", "actor_rollout_ref.model.lora_rank")
            assert last in each.do or known_only_to_programs or "fused" in each.do, (each.code, each.trainer, key)


def test_every_trainer_that_is_asked_for_has_a_remedy_for_old_weights() -> None:
    wanted = set(NAMES)
    assert {each.trainer for each in remedies() if each.code == "version_lag"} == wanted


def test_a_cell_that_nobody_found_is_empty() -> None:
    assert remedy_for("version_lag", "verl") is not None
    assert remedy_for("position_onset", "verl") is None
    assert remedy_for("version_lag", None) is None


def test_no_correction_helps_where_log_probs_are_not_those_of_what_was_sampled() -> None:
    codes = table("remedies")["_no_correction"]["codes"]
    assert set(codes) <= set(CAUSE)
    assert not can_be_corrected("shifted") and not can_be_corrected("silent_sampling")
    assert can_be_corrected("version_lag") and can_be_corrected("router_flips")


def test_a_remedy_that_is_set_already_is_moot_and_the_next_one_is_told() -> None:
    args = {"config.args.num_iterations": "2", "config.args.steps_per_generation": "4"}
    first = remedy_for("version_lag", "trl", args)
    assert first is not None and first.do.startswith("Lower num_iterations and")
    once = remedy_for("version_lag", "trl", args | {"config.args.num_iterations": "1"})
    assert once is not None and once.do.startswith("Lower steps_per_generation")
    above = args | {"record.lag_above_settings": "3"}
    assert remedy_for("version_lag", "trl", above) is None and is_done("version_lag", "trl", above)
    assert remedy_for("version_lag", "verl", {"record.lag_above_settings": "9"}) is None


def test_keys_with_values_are_moot_where_the_run_has_all_of_them() -> None:
    off = {"config.args.top_p": "1.0", "config.args.top_k": "0", "config.args.repetition_penalty": "1"}
    assert remedy_for("truncation", "trl", off) is None and is_done("truncation", "trl", off)
    assert remedy_for("truncation", "trl", off | {"config.args.min_p": "0.1"}) is not None
    assert (
        remedy_for("truncation", "slime", {"config.args.rollout_top_p": "1", "config.args.rollout_top_k": "-1"}) is None
    )
    assert remedy_for("truncation", "slime", {"config.args.rollout_top_p": "1"}) is not None, (
        "the other is not on record"
    )
    assert remedy_for("truncation", "trl", {}) is not None and not is_done("corrupted_load", "skyrl", {})
