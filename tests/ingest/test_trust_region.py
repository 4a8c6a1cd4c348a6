"""The trust region's budget: old is rollout, current is old, tokens outside the run's own clip before any update, each if so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pages_read import Read

from ratioscope.app.cli import main
from ratioscope.app.presentation.trust_words import trust_words
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.trust_region import UNKNOWN, TrustRegion, plain_trust, trust_region
from ratioscope.ingest.run import open_run
from ratioscope.metrics.dialects import dialect
from ratioscope.metrics.dialects.clip_band import ClipBand, clip_band

TRL = {"args": {"vllm_importance_sampling_mode": "token_truncate", "epsilon": 0.2, "epsilon_high": 0.28}}
FAR = 0.5
"""A log-ratio outside every usual clip."""


def made(
    folder: Path, *, trainer: str = "trl", config: dict[str, Any] | None = None, bypass: bool = False, still: bool = False,
    far: int = 0, per_batch: int = 1, versions: bool = True,
) -> Path:  # fmt: skip
    """A run of 8 steps of 40 tokens. far: tokens of each step that current moves by FAR. per_batch: steps for which old is kept.

    bypass: old is rollout. still: current is old. Without versions nothing tells how old `old` is.
    """
    random = np.random.default_rng(5)
    with Collector(folder, trainer=trainer, config=TRL if config is None else config, writer="thread") as collector:
        for step in range(1, 9):
            rollout = -random.exponential(1.0, (4, 10)) - 1.0
            old = rollout if bypass else rollout + random.normal(0, 0.01, rollout.shape)
            current = old.copy() if still else old + random.normal(0, 0.001, old.shape)
            current[0, :far] = old[0, :far] + FAR
            version = step - 1 - (step - 1) % per_batch if versions else None
            collector.log(
                step=step, minibatch=0, trainer_version=version,
                rollout_logprobs=rollout, old_logprobs=old, current_logprobs=current,
            )  # fmt: skip
    return folder


def trust_of(folder: Path) -> TrustRegion:
    run = open_run(folder)
    return trust_region(run, run.steps)


def test_tokens_outside_the_runs_own_clip_are_counted(tmp_path: Path) -> None:
    found = trust_of(made(tmp_path / "run", far=3))
    assert found.band == ClipBand(0.8, 1.28) and found.spent is not None
    assert (found.spent.gap, found.spent.tokens, found.spent.outside, found.spent.steps) == ("drift", 8 * 40, 8 * 3, 8)
    assert (
        "7.5% of 320 tokens at the first minibatch of 8 steps lie outside the run's own clip, 0.8 to 1.28"
        in trust_words(found)
    )
    assert plain_trust(found)["spent"]["share"] == pytest.approx(3 / 40)


def test_a_step_after_an_update_on_the_same_batch_is_not_before_any_update(tmp_path: Path) -> None:
    found = trust_of(made(tmp_path / "run", far=3, per_batch=2)).spent
    assert found is not None and found.steps == 4 and found.tokens == 4 * 40
    some = open_run(tmp_path / "run")
    assert trust_region(some, [2, 4]).because == UNKNOWN  # the steps before them show that old was kept


def test_old_that_is_rollout_and_current_that_is_old_are_told_with_what_they_mean(tmp_path: Path) -> None:
    bypass = trust_of(made(tmp_path / "bypass", bypass=True, far=1))
    assert trust_words(bypass).startswith(
        "Old is a copy of rollout, bit for bit (bypass). The clip of trl then holds current near"
    )
    assert bypass.spent is not None and bypass.spent.outside == 8
    still = trust_of(made(tmp_path / "still", still=True))
    assert "the clip never acts. In trl the clip then bounds no update" in trust_words(still)
    assert still.spent is not None and still.spent.outside == 0 and "outside" not in trust_words(still)


def test_nothing_is_said_where_nothing_holds(tmp_path: Path) -> None:
    assert trust_words(trust_of(made(tmp_path / "run"))) == ""


@pytest.mark.parametrize(
    ("given", "because"),
    [
        ({"config": {}}, "no correction settings are on record"),
        ({"versions": False}, UNKNOWN),
        ({"config": {"args": {**TRL["args"], "loss_type": "cispo"}}}, "clips no ratio of single tokens"),
        ({"config": {"args": {**TRL["args"], "epsilon": "wide"}}}, "cannot be read"),
    ],
    ids=str,
)
def test_an_unknown_budget_has_its_reason(tmp_path: Path, given: dict[str, Any], because: str) -> None:
    found = trust_of(made(tmp_path / "run", **given, far=3))
    assert found.spent is None and because in found.because and "outside" not in trust_words(found)


ACTOR = {"clip_ratio": 0.2, "clip_ratio_high": 0.28}
VERL = {"algorithm": {"rollout_correction": {}}, "actor_rollout_ref": {"actor": ACTOR}}
BYPASS = {**VERL, "algorithm": {"rollout_correction": {"bypass_mode": True}}}
GSPO = {**VERL, "actor_rollout_ref": {"actor": {**ACTOR, "policy_loss": {"loss_mode": "gspo"}}}}


@pytest.mark.parametrize(
    ("name", "config", "band"),
    [
        ("verl", VERL, ClipBand(0.8, 1.28)),
        ("verl", BYPASS, ClipBand(0.8, 1.28, "rollout")),
        ("verl", GSPO, None),
        ("slime", {"args": {"use_tis": False, "eps_clip": 0.1}}, ClipBand(0.9, 1.1)),
        ("slime", {"args": {"use_tis": False, "use_rollout_logprobs": True}}, ClipBand(0.8, 1.2, "rollout")),
        ("slime", {"args": {"use_tis": False, "advantage_estimator": "gspo"}}, None),
        ("skyrl", {"trainer": {"algorithm": {"eps_clip_high": 0.3}}}, ClipBand(0.8, 1.3)),
        ("skyrl", {"trainer": {"algorithm": {"policy_loss_type": "dppo"}}}, None),
        ("nemo_rl", {"loss_fn": {"ratio_clip_min": 0.2, "ratio_clip_max": 0.28}}, ClipBand(0.8, 1.28)),
        ("nemo_rl", {"loss_fn": {"disable_ppo_ratio": True}}, None),
        ("areal", {"actor": {"eps_clip": 0.4}}, ClipBand(0.6, 1.4)),
        ("trl", {"importance_sampling_level": "sequence"}, None),
        ("fireworks", {"tis": {}, "loss": "dapo"}, ClipBand(0.8, 1.28)),
        ("fireworks", {"tis": {}, "loss": "reinforce"}, None),
    ],
)  # fmt: skip
def test_each_trainers_settings_give_its_band(name: str, config: dict[str, Any], band: ClipBand | None) -> None:
    found = clip_band(name, dialect(name).parse(config), config)
    if band is None or found is None:
        assert found is band
    else:
        assert (found.low, found.high) == pytest.approx((band.low, band.high)) and found.anchor == band.anchor


@pytest.mark.slow
def test_diagnose_and_overview_say_it_and_a_run_without_it_has_no_line(
    tmp_path: Path, read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, calm = made(tmp_path / "spent", bypass=True, far=3), made(tmp_path / "calm")
    assert main(["diagnose", str(folder)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        said.count("Old is a copy of rollout, bit for bit (bypass).") == 1 and "lie outside the run's own clip" in said
    )
    pages = [" ".join(part.proto.body for part in read("overview", each).html) for each in (folder, calm)]
    assert "lie outside the run" in pages[0] and "trust region" not in pages[1]
