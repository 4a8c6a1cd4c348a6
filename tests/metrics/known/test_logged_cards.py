"""The cards of trainers' numbers: no kind claims what only some of its names have, and what a card names has a card itself.

A card that is vague misleads nobody; one that is false of its name does. So these are laws on all rows of the table.
"""

import re

import pytest

from ratioscope.errors import ConfigError
from ratioscope.metrics.definitions.registry import is_metric
from ratioscope.metrics.explanation import entries
from ratioscope.metrics.known.tables import table
from ratioscope.metrics.logged_names import LoggedName, facts_of, logged_name, logged_names, source_of, trainers

ROWS = [row for trainer in trainers() for row in logged_names(trainer)]
CLAIM = re.compile(r"\b(sign of the advantage|(upper|lower|either|one) side|truncat\w+|threshold|K[123])\b")
"""Facts of single numbers alone: a side, a truncation, an estimator."""
NUMBER = re.compile(r"\b[a-z]\w+(?:/\w+(?:\.\d\w*)*)+\b(?!\.py)")
"""A number or metric that a text names, by its path."""


def _card(asked: str) -> dict[str, str]:
    ((_, card),) = entries(asked)
    return dict(card)


@pytest.mark.parametrize(
    "kind", [kind for kind, words in table("logged_names")["kinds"].items() if isinstance(words, str)]
)
def test_the_words_of_a_kind_claim_neither_side_nor_truncation_nor_estimator(kind: str) -> None:
    assert not CLAIM.search(table("logged_names")["kinds"][kind])


def test_every_slice_that_a_card_names_is_explained() -> None:
    named = {name for row in ROWS for name in re.findall(r"--by (\w+)", row.note)}
    assert {"lag", "reward_sign"} <= named
    assert all("as a slice" in entries(name)[0][1][0][1] for name in named)


def _is_explained(row: LoggedName, name: str) -> bool:
    return is_metric(name) or logged_name(row.trainer, name) is not None


def test_every_number_that_a_card_names_has_a_card() -> None:
    named = [(row, name) for row in ROWS for name in NUMBER.findall(row.note)]
    assert len(named) > 20
    assert [(row.trainer, row.name, name) for row, name in named if not _is_explained(row, name)] == []


def test_a_source_is_a_file_of_the_family_that_the_name_is_of() -> None:
    assert _card("actor/reward_kl_penalty@verl")["source"] == "verl/trainer/ppo/ray_trainer.py"
    assert _card("critic/vf_clipfrac@verl")["source"] == "verl/workers/utils/losses.py"
    assert _card("train/iw_opd/mean_weight@trl")["source"] == "trl/experimental/iw_opd/iw_opd_trainer.py"
    assert _card("train/entropy@unsloth")["source"] == source_of("trl", "entropy") == "trl/trainer/grpo_trainer.py"
    assert "source" not in _card("vllm/tag/steps@roll")


def test_every_source_names_a_file_and_every_family_has_a_row() -> None:
    shown = [source for row in ROWS if (source := dict(facts_of(row)).get("source"))]
    assert len(shown) > 300 and all(".py" in source for source in shown)
    assert set(table("logged_names")["source"]) <= set(trainers())


def test_the_statistic_of_a_row_takes_the_place_of_the_last_word_of_its_name() -> None:
    assert _card("train/group_reward_std@openrlhf")["statistic"] == "a mean of standard deviations"
    assert _card("self_distillation/reward_std@trl")["statistic"] == "a standard deviation"


def test_compared_is_said_only_of_names_that_the_dialect_reproduces() -> None:
    assert "(compared with" in _card("sampling/sampling_logp_difference/mean@trl")["trainer"]
    assert "(read in" in _card("iw_opd/mean_weight@trl")["trainer"]


def test_a_name_that_no_trainer_logs_is_not_sent_to_all_trainers() -> None:
    with pytest.raises(ConfigError) as nowhere:
        entries("train/no_such/number@trl")
    with pytest.raises(ConfigError, match="try it without @trl"):
        entries("rollout_corr/kl@trl")
    assert "try it without" not in str(nowhere.value)
