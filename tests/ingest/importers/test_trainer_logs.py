"""Logs with the names of each trainer's own source: recognised, drawn where equal, else with the reason."""

import json
import sqlite3
from pathlib import Path

import pytest
from support.paths import ROOT

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.ingest.importers.scalars.agreement import LoggedMetrics, likely_trainer, why_own
from ratioscope.metrics.logged_names import trainers

LOGS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "verl": (
        {"rollout_corr/k3_kl": "mismatch/kl_k3", "training/rollout_probs_diff_mean": "mismatch/prob_diff"},
        {"rollout_corr/rollout_is_seq_fraction_high": "so always 0", "actor/kl_loss": "reference model"},
    ),
    "trl": (
        {},
        {
            "train/sampling/sampling_logp_difference/max": "ours where a log line holds one batch",
            "train/sampling/importance_sampling_ratio/max": "never above C_max", "train/kl": "against the reference model",
            "train/sampling/sampling_logp_difference/mean": "a plain mean over processes", "train/reward": "before advantages",
            "eval/sampling/sampling_logp_difference/max": "evaluation set", "eval_kl": "evaluation set",
        },
    ),
    "slime": (
        {},
        {"train/tis": "before the clip", "train/ppo_kl": "close to drift/ppo_kl", "rollout/entropy": "masked ones too"},
    ),
    "miles": ({}, {"train/train_rollout_kl": "clamped to +-10", "train/ess_ratio": "ours is of weights over rollout"}),
    "skyrl": (
        {"policy/rollout_train_logprobs_abs_diff_mean": "mismatch/abs_log_ratio"},
        {"policy/loss_metrics/is_ratio_min": "0 as soon as one position is masked", "loss/avg_kl": "not of the sampler"},
    ),
    "nemo_rl": (
        {},
        {
            "train/gen_kl_error": "reference_policy_kl_type", "train/policy_kl_error": "does not estimate",
            "train/probs_ratio_max": "PPO ratio",
        },
    ),
    "areal": (
        {},
        {
            "ppo_actor/update/behave_imp_weight/avg": "after the clamp",
            "ppo_actor/update/compute_logp/kl_div_dual/avg": "close to total/kl_k3",
        },
    ),
    "unsloth": (
        {},
        {
            "train/sampling/sampling_logp_difference/max": "then a mean over the micro-batches",
            "train/sampling/rollout_kl_k3/mean": "close to mismatch/kl_k3",
            "train/sampling/sampling_logp_difference/mean": "padding",
        },
    ),
    "ms_swift": (
        {},
        {"train/rollout_correction/chi2_seq": "geometric mean", "train/rollout_correction/ess": "after the correction"},
    ),
    "prime_rl": (
        {"mismatch_kl/all/mean": "total/kl_k3"},
        {"unmasked_mismatch_kl/mean": "tail is missing", "is_masked/mean": "of DPPO by the sign", "off_policy/max": "slice lag"},
    ),
    "openrlhf": (
        {"train/vllm_kl": "mismatch/kl_direct"},
        {"train/is_filter_ratio": "band of the correction", "train/logprobs_diff": "reference model"},
    ),
    "molt": (
        {"train/vllm_kl": "mismatch/kl_direct", "train/mismatch/k3_kl": "total/kl_k3"},
        {"train/mismatch/bitwise_frac": "differ in any bit", "train/sc_sampler_head_mass": "likeliest tokens"},
    ),
    "open_instruct": (
        {},
        {"debug/vllm_local_reverse_kl": "no KL", "val/rho_weight": "after the clamp", "objective/kl1_avg": "not the sampler"},
    ),
    "roll": (
        {},
        {"actor/train_infer_ratio_token_mean": "a mean per sequence first", "actor/policykl": "an increase is positive"},
    ),
    "tinker_cookbook": (
        {"optim/kl_sample_train_v1": "total/kl_direct", "optim/kl_sample_train_v2": "total/kl_k2"},
        {"optim/entropy": "not an entropy", "kl_pre_post_v1": "the size of the update"},
    ),
    "art": ({}, {"loss/kl_policy_ref": "not of the sampler", "loss/train": "a loss"}),
    "fireworks": ({}, {"train/inference_k3": "compares rollout's raw log-probs", "train/ppo_kl": "K3 of current over old"}),
}  # fmt: skip
"""trainer -> (its name -> the metric of ours that it is), (its name -> words of the reason why it is none)."""
VERSION = {"verl": "0.9.1", "openrlhf": "0.11.2"}


def test_every_trainer_of_the_table_has_a_log_here() -> None:
    assert set(LOGS) == set(trainers())


@pytest.mark.parametrize("trainer", LOGS)
def test_a_log_of_a_trainer_is_recognised_and_each_number_drawn_or_reasoned(trainer: str) -> None:
    drawn, reasons = LOGS[trainer]
    assert likely_trainer([*drawn, *reasons]) == (trainer, None)
    names = LoggedMetrics(trainer, VERSION.get(trainer))
    assert {name: names.metric(name) for name in (*drawn, *reasons)} == drawn | dict.fromkeys(reasons)
    for name, words in reasons.items():
        assert words in why_own(name, trainer, VERSION.get(trainer)), name


def test_a_trackio_store_of_trl_gives_the_largest_difference(tmp_path: Path) -> None:
    """The callbacks of Hugging Face put train/ or eval/ before every name."""
    base = sqlite3.connect(tmp_path / "grpo.db")
    base.executescript((ROOT / "tests" / "data" / "scalars" / "trackio.sql").read_text())
    logged = {"train/sampling/sampling_logp_difference/max": 0.5, "eval/sampling/sampling_logp_difference/max": 9.0}
    base.execute("UPDATE metrics SET metrics = ?", (json.dumps({**logged, "train/kl": 0.1}).encode(),))
    base.commit()
    base.close()
    assert main(["import", str(tmp_path / "grpo.db"), "-o", str(tmp_path / "run")]) == 0
    run = open_run(tmp_path / "run")
    largest = run.logged.filter(run.logged["name"] == "train/sampling/sampling_logp_difference/max")
    assert run.info["trainer"] == "trl" and set(largest["value"].to_list()) == {0.5}


PPO = (
    "objective/kl", "objective/entropy", "objective/non_score_reward", "objective/rlhf_reward", "objective/scores",
    "policy/approxkl_avg", "policy/clipfrac_avg", "policy/entropy_avg", "loss/policy_avg", "loss/value_avg",
    "val/clipfrac_avg", "val/ratio", "val/ratio_var", "val/num_eos_tokens", "eps", "lr", "episode",
)  # fmt: skip
"""All that TRL's PPOTrainer logs at f2cd577."""


def test_no_number_of_trls_ppo_is_read_as_a_metric(tmp_path: Path) -> None:
    """Its objective/entropy is a sum per response, and its means hold padding."""
    rows = [{"step": step} | dict.fromkeys(PPO, 0.5 * step) for step in range(1, 4)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["import", str(tmp_path / "log.jsonl"), "-o", str(tmp_path / "run")]) == 0
    run = open_run(tmp_path / "run")
    assert run.info["trainer"] == "trl" and run.logged["metric"].null_count() == len(run.logged) == 3 * len(PPO)
    assert not {name for name in run.metrics().columns if "/" in name}
    assert "no entropy per token" in why_own("objective/entropy", "trl", None)
    assert all(why_own(name, "trl", None) != "its definition is not known" for name in PPO)


def test_a_log_of_prime_rl_is_graded_by_its_mismatch_kl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"step": step, "mismatch_kl/all/mean": 0.001 * step, "entropy/all/mean": 0.3, "is_masked/mean": 0.01}
        for step in range(1, 5)
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["import", str(tmp_path / "log.jsonl"), "-o", str(tmp_path / "run")]) == 0
    assert "total/kl_k3 is drawn from mismatch_kl/all/mean" in capsys.readouterr().out
    run = open_run(tmp_path / "run")
    assert run.info["trainer"] == "prime_rl" and run.gaps == ("total",)
    assert run.metrics()["total/kl_k3"].to_list() == [0.001, 0.002, 0.003, 0.004]
    assert main(["metrics", str(tmp_path / "run"), "--logged"]) == 0 and "of DPPO" in " ".join(
        capsys.readouterr().out.split()
    )


def test_numbers_of_prime_rl_keep_their_producer_and_those_without_a_step_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file monitor adds several lines for each step, from two processes and from engines, while it is read."""
    rows: list[dict[str, object]] = []
    for step in range(1, 4):
        rows += [
            {"step": step, "time": 9.0, name: 0.5 * step, "producer": "trainer"} for name in ("time/step", "perf/mfu")
        ]
        rows.append({"step": step, "time": 9.0, "mismatch_kl/all/mean": 0.001 * step, "producer": "trainer"})
        rows.append({"step": step, "time": 9.5, "time/step": 7.0, "off_policy/mean": 1.0, "producer": "orchestrator"})
        rows.append({"step": None, "time": 9.5, "inference/kv": 0.5, "producer": "orchestrator"})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "metrics.jsonl").write_text(text + text[:30])
    assert main(["import", str(tmp_path / "metrics.jsonl"), "-o", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "set aside: rows of engines and machines, which name no step (3)" in said
    assert "set aside: lines that do not end yet (1)" in said
    run = open_run(tmp_path / "run")
    assert run.info["trainer"] == "prime_rl" and run.metrics()["total/kl_k3"].to_list() == [0.001, 0.002, 0.003]
    held = {(row["name"], row["step"]): row["value"] for row in run.logged.to_dicts()}
    assert held["time/step", 3] == 1.5 and held["orchestrator/time/step", 3] == 7.0
    assert not {name for name, _ in held} & {"time", "producer", "inference/kv"}
