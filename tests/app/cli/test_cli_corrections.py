"""`ratioscope corrections` and `ratioscope explain`, as a user calls them."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.paths import ROOT

from ratioscope import Collector, open_run
from ratioscope.app.cli import main
from ratioscope.app.cli.commands.corrections import FIRST_MINIBATCH
from ratioscope.app.cli.commands.dialect_metrics import dialect_rows
from ratioscope.app.pages.corrections_text import DEFAULT, comparison_of
from ratioscope.metrics.corrections.correction import CORRECTIONS, USUAL
from ratioscope.metrics.definitions.registry import METRICS, is_metric
from ratioscope.metrics.dialects import NAMES, dialect
from ratioscope.metrics.explanation import entries
from ratioscope.metrics.grading.signals import SIGNALS
from ratioscope.metrics.logged_names import logged_names, trainers
from ratioscope.record import POLICIES

RUN = str(ROOT / "sample_data" / "runs" / "trl-vllm-stale")
Output = pytest.CaptureFixture[str]


def rows(capsys: Output, *arguments: str) -> list[dict[str, object]]:
    assert main(["corrections", RUN, *arguments, "--json"]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_ours_are_compared_over_the_whole_run(capsys: Output) -> None:
    found = {row["correction"]: row for row in rows(capsys)}
    assert list(found) == ["truncate token at 3 (own)", *(correction.name for correction in USUAL)]
    assert [row["own"] for row in found.values()] == [True] + [False] * len(USUAL)
    page = [str(entry.correction("mismatch")).partition("steps")[2] for entry in comparison_of(DEFAULT).entries]
    ours = [str(replace(each, source="")).partition("steps")[2] for each in USUAL]
    assert [each.replace("log_limit=20.0", "log_limit=inf") for each in ours] == page
    assert [row["correction"] for row in rows(capsys, "--all")][1:] == [correction.name for correction in CORRECTIONS]
    assert found["none"]["mean_weight"] == 1.0 and found["token TIS 2"]["clipped_share"] == pytest.approx(
        0.012478, 1e-3
    )


@pytest.fixture(scope="module")
def masked_step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose step 1 has no token that counts, as where a filter leaves out every sequence."""
    folder = tmp_path_factory.mktemp("runs") / "masked"
    sides = {f"{policy}_logprobs": [[-1.0, -0.5 - 0.1 * place]] for place, policy in enumerate(POLICIES)}
    with Collector(folder) as collector:
        for step in range(3):
            collector.log(step=step, **sides, mask=[[step != 1] * 2], advantages=[0.5])  # type: ignore[arg-type]
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_step_without_a_token_that_counts_is_left_out_of_a_trainers_metrics(masked_step: Path, name: str) -> None:
    assert [row["step"] for row in dialect_rows(open_run(masked_step), name, None, None)] == [0, 2]


def test_the_recommendation_comes_before_the_table(capsys: Output) -> None:
    assert main(["corrections", RUN]) == 0
    answer, own, empty, gap, _, _, first = capsys.readouterr().out.splitlines()[:7]
    assert answer == "The run's own correction is as good as any of these · high confidence"
    assert own.startswith(
        "The run's own truncate token at 3 clips 0.559% of the tokens and lowers the gradient's squared error"
    )
    assert empty == "" and gap.startswith("mismatch: ") and first.startswith("truncate token at 3 (own) ")


def test_a_threshold_gives_truncation_and_masking_at_it_per_step(capsys: Output) -> None:
    found = rows(capsys, "--threshold", "2,5", "--by", "step")
    assert len(found) == 60 * 4
    assert all(row["ess_after"] is not None for row in found)


@pytest.mark.parametrize(("by", "keys"), [("lag", 8), ("reward_sign", 2), ("finish_reason", 2)])
def test_the_effect_is_shown_by_slice(by: str, keys: int, capsys: Output) -> None:
    found = rows(capsys, "--threshold", "2", "--by", by)
    assert len({row[by] for row in found}) == keys
    tokens = sum(float(str(row["tokens"])) for row in found)
    assert tokens == 2 * 13_944, "two corrections, every token once each"


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_of_a_trainer_is_carried_out(name: str, capsys: Output) -> None:
    presets = list(dialect(name).PRESETS)
    found = rows(capsys, "--dialect", name, "--preset", ",".join(presets[:3]))
    assert [row["correction"] for row in found] == [f"{name} {preset}" for preset in presets[:3]]


def test_one_preset_is_printed_in_the_trainers_syntax(capsys: Output) -> None:
    assert main(["corrections", RUN, "--dialect", "verl", "--preset", "decoupled_token_is"]) == 0
    out = capsys.readouterr().out
    assert "rollout_is_threshold: 2.0" in out
    assert "every preset beside it" in out and "--preset NAME" not in out, "what was just done is no next command"


def test_the_runs_own_correction_is_judged_on_the_gap_that_it_weighs(capsys: Output) -> None:
    assert main(["corrections", RUN, "--gap", "total"]) == 0
    told = capsys.readouterr().out
    assert "The run's own correction: truncate token at 3 weighs mismatch, not total." in told and "(own)" not in told
    assert not any(row["own"] for row in rows(capsys, "--threshold", "2"))
    (first, *_) = rows(capsys)
    periods: Any = first["sync_periods"]
    assert [each["updates"] for each in periods["periods"]] == [2, 4, 8, 16, 32] and periods["reason"] == ""
    assert (
        periods["periods"][-1]["kl_k3"] is None
        and periods["periods"][-1]["reason"] == "no token of lag 16 is on record"
    )
    bounds: Any = first["lag_bounds"]
    assert [each["updates"] for each in bounds["bounds"]] == [0, 2, 4, 8] and bounds["bounds"][1]["lags"] == [0, 2]
    updates: Any = first["updates_per_batch"]
    assert updates["updates"] == [] and updates["reason"] == "every token has update 0: no other update is on record"


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_a_configuration_file_is_read(suffix: str, tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / f"mine{suffix}"
    config = {"rollout_is": "token", "rollout_is_threshold": 1.5}
    file.write_text(json.dumps(config) if suffix == ".json" else "rollout_is: token\nrollout_is_threshold: 1.5\n")
    (row,) = rows(capsys, "--dialect", "verl", "--config", str(file))
    assert row["correction"] == f"verl mine{suffix}" and row["clipped_share"] != 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--dialect", "nope"], "choose one of verl"),
        (["--dialect", "verl", "--preset", "nope"], "it has: "),
        (["--preset", "x"], "--dialect TRAINER"),
        (["--threshold", "0.5"], "above 1"),
        (["--threshold", "2", "--level", "batch"], "token, sequence, geometric"),
        (["--by", "nope"], "there are replica"),
        (["--by", "lag", "--dialect", "trl"], "--by run or --by step"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_exit_code_2(arguments: list[str], says: str, capsys: Output) -> None:
    assert main(["corrections", RUN, *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_metrics_of_a_run_under_a_trainers_own_names(name: str, capsys: Output) -> None:
    assert main(["metrics", RUN, "--dialect", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["step"] for row in found] == list(range(1, 61))
    assert set(found[0]) - {"step"} and set(found[0]) - {"step"} <= set(dialect(name).CANONICAL) | set(found[1])


def test_a_trainers_number_stands_beside_ours_with_what_is_misleading_about_it(capsys: Output) -> None:
    assert main(["metrics", RUN, "--dialect", "verl"]) == 0
    text = capsys.readouterr().out
    (line,) = (line for line in text.splitlines() if line.startswith("rollout_corr/k3_kl") and "mismatch/kl_k3" in line)
    theirs, ours = line.split()[1], line.split()[2]
    assert float(theirs) == pytest.approx(float(ours), rel=0.01)
    assert "how theirs differs" in text


def test_errors_can_be_clustered_by_prompt_group(capsys: Output) -> None:
    def column(*arguments: str) -> list[float]:
        assert main(["metrics", RUN, *arguments, "--json"]) == 0
        return [row["mismatch/kl_k3_se"] for row in json.loads(capsys.readouterr().out)]

    by_sequence, by_group = column(), column("--cluster", "group")
    assert len(by_group) == len(by_sequence) == 60 and all(error > 0 for error in by_group)
    assert by_group != by_sequence
    assert main(["metrics", RUN, "--cluster", "group", "--by", "lag"]) == 2


def test_a_card_is_printed_and_an_unknown_metric_is_an_error(capsys: Output) -> None:
    assert main(["explain", "mismatch/kl_k3"]) == 0
    text = capsys.readouterr().out
    assert "exp(x) - 1 - x" in text and "rollout_corr/k3_kl" in text
    assert main(["explain", "kl_k3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "kl_k3"
    assert main(["explain", "kl_k4"]) != 0


def test_a_family_of_metrics_and_a_signal_are_explained_too(capsys: Output) -> None:
    assert main(["explain", "shift_correlation"]) == 0
    shown = capsys.readouterr().out
    assert all(f"shift_correlation_{shift}" in shown for shift in ("-2", "-1", "+1", "+2"))
    assert main(["explain", "shift_correlation", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["family"]) == 4
    for signal in SIGNALS:
        assert main(["explain", signal.name]) == 0
        assert capsys.readouterr().out.startswith(signal.name.split("_")[0])
    assert main(["explain", "kl_k3", "--json"]) == 0 and json.loads(capsys.readouterr().out)["name"] == "kl_k3"


def test_the_metric_that_is_read_first_comes_first_of_its_family(capsys: Output) -> None:
    assert main(["explain", "kl"]) == 0 and capsys.readouterr().out.startswith("kl_k3\n")


@pytest.mark.parametrize("trainer", NAMES)
def test_every_number_of_a_trainer_is_explained_as_the_trainers_own(trainer: str) -> None:
    for name, near in dialect(trainer).CANONICAL.items():
        ((own, card),) = entries(f"{trainer}/{name}")
        words, note = [text for _, text in card], dialect(trainer).NOTES.get(name, "")
        assert own == name and words[0].startswith(f"{trainer} (")
        assert any(text.endswith(note) for text in words), name  # the meaning may stand before the trap
        assert any((near or "no metric of ours") in text for text in words), name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("train/sampling/importance_sampling_ratio/mean", "trl (compared with"),
        ("rollout_is_seq_fraction_high", "so always 0"),
        ("ratioscope/mismatch/kl_k3_se", "exp(x) - 1 - x"),
        ("rollout:referee/kl_k3", "exp(x) - 1 - x"),
    ],
)
def test_a_name_may_have_the_prefix_of_a_tracker_or_lack_that_of_its_trainer(
    name: str, said: str, capsys: Output
) -> None:
    assert main(["explain", name]) == 0 and said in capsys.readouterr().out


@pytest.mark.parametrize("name", ["foo/kl_k3", "x/ess", "policy/step"])
def test_the_end_of_a_name_that_nobody_knows_is_no_metric(name: str, capsys: Output) -> None:
    assert main(["explain", name]) == 2 and f"no metric of the name '{name}'" in capsys.readouterr().err


def test_without_a_name_all_metrics_and_signals_are_listed(capsys: Output) -> None:
    assert main(["explain"]) == 0
    shown = capsys.readouterr().out
    assert main(["explain", "--json"]) == 0
    listed = [entry["name"] for own in json.loads(capsys.readouterr().out).values() for entry in own]
    names = [*(metric.name for metric in METRICS), *(signal.name for signal in SIGNALS)]
    assert sorted(listed) == sorted(names)
    assert all(re.search(rf"^{re.escape(name)}  ", shown, re.MULTILINE) for name in names)


@pytest.mark.parametrize("verb", ["info", "metrics", "corrections", "diagnose"])
def test_a_verb_ends_with_commands_that_work(verb: str, capsys: Output) -> None:
    assert main([verb, RUN]) == 0
    (ending,) = re.findall(r"\nnext: (ratioscope .*(?:\n {6}ratioscope .*)*)\n$", capsys.readouterr().out)
    commands = [shlex.split(line.strip().partition("   ")[0])[1:] for line in ending.splitlines()]
    assert len(commands) >= 2 and (verb, RUN) not in [tuple(words) for words in commands]
    for words in commands:
        assert main(words if words[0] in ("explain", "metrics") else [words[0], "--help"]) == 0, words
    capsys.readouterr()
    assert main([verb, RUN, "--json"]) == 0
    json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Columns with which every preset of every trainer can be carried out."""
    draws = np.random.default_rng(0)
    rollout = -draws.exponential(0.9, (24, 40)) - 1e-3
    old, current = (np.minimum(rollout + draws.normal(0, 0.35, rollout.shape), -1e-4) for _ in "oc")
    advantages = draws.choice([-1.0, 1.0], 24)
    sides = {"rollout_logprobs": rollout, "old_logprobs": old, "current_logprobs": current}
    return {name: side.astype(np.float32) for name, side in sides.items()} | {"advantages": advantages}


def _effects(capsys: Output) -> list[dict[str, Any]]:
    """The rows without the gap at other updates per batch, which is of the run and not of the correction."""
    found = json.loads(capsys.readouterr().out)
    return [{name: value for name, value in row.items() if name != "updates_per_batch"} for row in found]


@pytest.mark.parametrize(
    "absent", [("advantages",), ("current_logprobs",), ("current_logprobs", "advantages")], ids=str
)
@pytest.mark.parametrize("dialect_name", NAMES)
def test_a_preset_that_lacks_a_column_is_not_available_and_the_others_stand(
    dialect_name: str, absent: tuple[str, ...], whole: dict[str, Any], tmp_path: Path, capsys: Output
) -> None:
    rows = []
    for name, columns in (("whole", whole), ("part", {key: whole[key] for key in whole if key not in absent})):
        with Collector(tmp_path / name, writer="thread") as collector:
            collector.log(step=1, minibatch=0, **columns)
        assert main(["corrections", str(tmp_path / name), "--dialect", dialect_name, "--json"]) == 0
        rows.append({row["correction"]: row for row in _effects(capsys)})
    everything, part = rows
    assert list(everything) == [f"{dialect_name} {preset}" for preset in dialect(dialect_name).PRESETS]
    assert set(part) == set(everything) and not any(row.get("reason") for row in everything.values())
    for title, row in part.items():
        if reason := row.pop("reason", None):
            assert reason.startswith("because the batch has no ") and any(f"log {name}" in reason for name in absent)
            assert row["removed_share"] is None and row["bias"] is None
        else:
            assert row == everything[title], title


def test_a_correction_of_which_nothing_stands_is_an_error(
    whole: dict[str, Any], tmp_path: Path, capsys: Output
) -> None:
    with Collector(tmp_path / "run", writer="thread") as collector:
        collector.log(step=1, rollout_logprobs=whole["rollout_logprobs"], old_logprobs=whole["old_logprobs"])
        collector.log(step=2, **whole)
    asked = ["corrections", str(tmp_path / "run"), "--dialect", "skyrl", "--preset", "dppo_tv"]
    assert main(asked) == 0
    assert "skyrl dppo_tv: not available, because at 1 of 2 steps the batch has no" in capsys.readouterr().out
    with Collector(tmp_path / "few", writer="thread") as collector:
        collector.log(step=1, rollout_logprobs=whole["rollout_logprobs"], old_logprobs=whole["old_logprobs"])
    assert main(["corrections", str(tmp_path / "few"), *asked[2:]]) == 3
    assert "skyrl dppo_tv: not available, because the batch has no current_logprobs" in capsys.readouterr().err


@pytest.mark.parametrize("dialect_name", NAMES)
def test_what_a_batch_has_is_what_was_recorded(
    dialect_name: str, whole: dict[str, Any], tmp_path: Path, capsys: Output
) -> None:
    for name, rollout in (("alone", whole["rollout_logprobs"]), ("nan", np.full((24, 40), np.nan, np.float32))):
        old = None if name == "alone" else whole["old_logprobs"]
        with Collector(tmp_path / name, writer="thread") as collector:
            collector.log(step=1, rollout_logprobs=rollout, old_logprobs=old)
        code = main(["corrections", str(tmp_path / name), "--dialect", dialect_name])
        said = capsys.readouterr()
        assert code in (0, 3) and "not available, because" in said.out + said.err
        assert "'advantages']" not in said.err and "Warning" not in said.err


@pytest.mark.parametrize("dialect_name", NAMES)
def test_sequences_of_several_minibatches_count_as_their_first_minibatch_read_them(
    dialect_name: str, whole: dict[str, Any], tmp_path: Path, capsys: Output
) -> None:
    current = np.asarray(whole["current_logprobs"])
    known = {name: value for name, value in whole.items() if name != "current_logprobs"}
    half = len(current) // 2
    ids = [str(index) for index in range(len(current))]
    with Collector(tmp_path / "at_once", writer="thread") as collector:
        collector.log(step=1, **whole, sequence_ids=ids)
    with Collector(tmp_path / "apart", writer="thread") as collector:
        collector.log(step=1, **known, sequence_ids=ids)
        for minibatch, rows in enumerate((slice(half), slice(half, None)) * 2):
            later = current[rows] - (0.5 if minibatch > 1 else 0.0)
            collector.log(step=1, minibatch=minibatch, current_logprobs=later, sequence_ids=ids[rows])
    found = []
    for name in ("at_once", "apart"):
        assert main(["corrections", str(tmp_path / name), "--dialect", dialect_name, "--json"]) == 0
        found.append(_effects(capsys))
    assert found[0] == found[1] and len(found[0]) == len(dialect(dialect_name).PRESETS)
    assert main(["corrections", str(tmp_path / "apart"), "--dialect", dialect_name]) == 0
    assert FIRST_MINIBATCH in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("logged", "trainer", "near"),
    [
        ("mismatch_kl/all/mean", "prime_rl", "total/kl_k3"), ("train/vllm_kl@openrlhf", "openrlhf", "mismatch/kl_direct"),
        ("actor/train_infer_ratio_token_mean@sum", "roll", "mismatch/mean_weight_token"),
        ("actor/train_infer_ratio_token_mask_mean@sum", "roll", "has its definition"),
        ("optim/kl_sample_train_v2", "tinker_cookbook", "total/kl_k2"), ("my_grad_norm", "any trainer", "has its definition"),
        ("rollout_correction/ess", "ms_swift", "mismatch/ess_token"),
    ],
)  # fmt: skip
def test_a_number_of_a_trainer_without_a_dialect_has_the_nearest_metric(logged: str, trainer: str, near: str) -> None:
    ((_, card),) = entries(logged)
    shown = dict(card)
    assert shown["trainer"].startswith(trainer) and near in shown["is"] and (shown["is"] == near or shown["note"])


def test_a_name_that_is_ours_and_a_trainers_shows_both_and_every_listed_name_is_near_a_metric() -> None:
    assert [name for name, _ in entries("kl")] == ["kl_k3", "kl_direct", "kl_k2", *["kl"] * 5]
    assert [name for name, _ in entries("mismatch_kl")][-1] == "mismatch_kl/all/mean"
    rows = [row for trainer in trainers() for row in logged_names(trainer)]
    assert len(rows) > 500 and all((row.note or row.near) and (not row.near or is_metric(row.near)) for row in rows)
    assert all(entries(f"{row.name.replace('*', 'x')}@{row.trainer}") for row in rows)
