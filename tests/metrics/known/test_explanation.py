"""`explain` knows metrics, terms of the field and trainers' numbers, and nothing that merely looks like one of them."""

import re

import pytest

import ratioscope
from ratioscope.errors import ConfigError
from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.explanation import entries
from ratioscope.metrics.known.tables import table
from ratioscope.metrics.logged_names import logged_name


@pytest.mark.parametrize(
    ("asked", "full", "word"),
    [
        ("TIS", "truncated importance sampling", "upper bound"),
        ("truncated importance sampling", "truncated importance sampling", "upper bound"),
        ("MIS", "masked importance sampling", "leaves the loss"),
        ("IcePop", "IcePop", "count 0"),
        ("bias", "bias", "adds up"),
        ("lag", "lag", "--by lag"),
        ("mismatch", "mismatch: the gap of old against rollout", "old - rollout"),
        ("ESS", "effective sample size", "after truncation"),
        ("router-replay", "router replay", "experts"),
        ("known good", "pinned run", "baseline pin"),
        ("noise floor", "floor", "two computations"),
        ("act", "act", "runs have been seen to collapse"),
        ("calm level", "calm level", "first lasting rise"),
        ("bias in the gradient", "bias in the gradient", "a bias adds up"),
    ],
)
def test_a_term_is_explained_in_any_spelling(asked: str, full: str, word: str) -> None:
    (name, card), *_ = entries(asked)
    assert name == full and word in dict(card)["term"]


def test_the_effective_sample_size_comes_with_its_metrics() -> None:
    assert [name for name, _ in entries("ess")][1:] == ["ess_token", "ess_sequence", "ess_geometric"]


def test_terms_name_only_metrics_that_exist() -> None:
    words = {word for _, text, *_ in table("terms").values() for word in re.findall(r"[a-z]+2?_[a-z0-9_]+", text)}
    known = {metric.name for metric in METRICS}
    assert {word for word in words if word.split("_")[0] in ("kl", "ess", "mean", "pareto", "chi2")} <= known


@pytest.mark.parametrize(
    "name", ["foo/kl_k3", "my/actor/ppo_kl", "std", "train/nothing", "kl@areal", "rollout_is_mean@trl", "worker0/vllm_kl"]
)  # fmt: skip
def test_a_name_that_nobody_logs_is_not_known(name: str) -> None:
    with pytest.raises(ConfigError, match="not known"):
        entries(name)


def test_an_unknown_name_is_answered_with_the_nearest_ones() -> None:
    with pytest.raises(ConfigError, match="rollout_corr/k3_kl"):
        entries("rollout_corr/k4_kl@verl")
    with pytest.raises(ConfigError, match="mismatch_kl/all/mean"):
        entries("mismatch_kls/all/mean")


def test_python_explains_with_the_words_of_the_command() -> None:
    text = ratioscope.explain("train/vllm_kl@OpenRLHF")
    assert text.startswith("train/vllm_kl\n  trainer: openrlhf") and "\n  direction: KL(rollout || old)" in text


def test_numbers_of_the_evaluation_set_are_none_of_the_run() -> None:
    for name in ("eval/sampling/sampling_logp_difference/max", "eval_kl"):
        row = logged_name("trl", name)
        assert row is not None and not row.same and not row.near and "evaluation" in row.note


def test_the_perplexity_of_one_policy_is_compared_with_nothing_and_has_no_value_of_agreement() -> None:
    ((_, alone),) = entries("rollout_corr/training_ppl@verl")
    ((_, ratio),) = entries("rollout_corr/ppl_ratio@verl")
    assert dict(alone)["compares"] == "old alone" and "usual" not in dict(alone)
    assert dict(ratio)["compares"] == "old against rollout" and dict(ratio)["usual"].startswith("1 where")


@pytest.mark.parametrize("name", ["train/active_tokens@fireworks", "ppo_actor/update/n_valid_tokens@areal"])
def test_a_count_of_tokens_compares_nothing_and_has_no_value_of_agreement(name: str) -> None:
    ((_, count),) = entries(name)
    assert dict(count)["is"].endswith("mismatch/tokens") and not {"compares", "usual", "tokens"} & set(dict(count))


def test_the_last_word_of_a_name_tells_its_statistic_where_no_metric_of_ours_is_near() -> None:
    ((_, largest),) = entries("mismatch_kl/all/max@prime-rl")
    ((_, ours),) = entries("mismatch_kl/all/mean@prime-rl")
    assert dict(largest)["statistic"] == "the largest" and "statistic" not in dict(ours)


def test_a_prefix_of_the_evaluation_set_that_stands_many_times_is_still_of_it() -> None:
    ((_, twice),) = entries(f"{'eval/' * 5000}entropy@trl")
    assert "of the evaluation set" in dict(twice)["note"]


def test_a_trainer_does_not_inherit_what_it_never_logs() -> None:
    for name in ("values", "train/ppo_kl", "critic_loss"):
        assert entries(f"{name}@openrlhf")
        with pytest.raises(ConfigError, match="molt has no number"):
            entries(f"{name}@molt")
    assert dict(entries("train/is_filter_ratio@molt")[0][1])["trainer"].startswith("molt")


def test_a_name_of_staleness_that_no_table_has_is_a_lag() -> None:
    ((_, card),) = entries("train/new_staleness_p90@nemo-rl")
    assert "slice lag" in dict(card)["note"] and dict(card)["trainer"].endswith("any trainer")


@pytest.mark.parametrize("code", CAUSE)
def test_every_cause_that_a_diagnosis_prints_is_explained(code: str) -> None:
    ((name, card),) = entries(code)
    facts = dict(card)
    assert name == code and facts["cause"] == CAUSE[code].title and facts["what to do"] and facts["check"]
