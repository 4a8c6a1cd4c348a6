"""The cards of trainers' numbers: a file is cited only where it holds the name, a comparison only where one was made."""

import pytest

from ratioscope.errors import ConfigError
from ratioscope.metrics.explanation import entries
from ratioscope.metrics.known.tables import table
from ratioscope.metrics.logged_names import facts_of, logged_names, source_of, trainers

ROWS = [row for trainer in trainers() for row in logged_names(trainer)]


def _card(asked: str) -> dict[str, str]:
    ((_, card),) = entries(asked)
    return dict(card)


def test_a_source_is_a_file_of_the_family_that_the_name_is_of() -> None:
    assert _card("actor/reward_kl_penalty@verl")["source"] == "verl/trainer/ppo/ray_trainer.py"
    assert _card("critic/vf_clipfrac@verl")["source"] == "verl/workers/utils/losses.py"
    assert _card("train/entropy@unsloth")["source"] == source_of("trl", "entropy") == "trl/trainer/grpo_trainer.py"
    assert "source" not in _card("actor/lr@verl")


def test_every_source_names_a_file_and_every_family_has_a_row() -> None:
    shown = [source for row in ROWS if (source := dict(facts_of(row)).get("source"))]
    assert len(shown) > 300 and all(".py" in source for source in shown)
    assert set(table("logged_names")["source"]) <= set(trainers())


def test_compared_is_said_only_of_names_that_the_dialect_reproduces() -> None:
    assert "(compared with" in _card("sampling/sampling_logp_difference/mean@trl")["trainer"]
    assert "(read in" in _card("batch/pad_frac@trl")["trainer"]


def test_a_name_that_no_trainer_logs_is_not_sent_to_all_trainers() -> None:
    with pytest.raises(ConfigError) as nowhere:
        entries("train/no_such/number@trl")
    with pytest.raises(ConfigError, match="try it without @trl"):
        entries("rollout_corr/kl@trl")
    assert "try it without" not in str(nowhere.value)
