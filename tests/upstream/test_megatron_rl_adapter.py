"""The Megatron-RL adapter on megatron/rl/rl_utils.py itself: rows, missing log-probs, and the age of policy and KV cache.

Needs a checkout of NVIDIA/Megatron-LM in a folder of SOURCES. Skipped otherwise.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.adapter_properties import differences, left_behind
from support.written_run import commit_lines, token_rows

import ratioscope

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="Megatron runs on torch")
driving = pytest.importorskip("upstream.megatron_rl_drive", reason="Megatron-RL is not importable here")


@pytest.fixture
def recorded(tmp_path: Path) -> Any:
    return driving.drive(tmp_path / "run", options={"strict": True})


def test_what_megatron_computes_is_the_same_to_the_last_bit(recorded: Any) -> None:
    assert recorded["finished"] and recorded["refused"] is None and left_behind("megatron_rl") == []
    plain = driving.drive(None)
    for one, other in zip(recorded["held"], plain["held"], strict=True):
        for name in ("old", "aligned", "masks", "trajs", "told", "mean", "advantages"):
            assert differences(one[name], other[name]) == [], name


def test_the_rows_are_what_megatron_compares(recorded: Any, tmp_path: Path) -> None:
    found = token_rows(tmp_path / "run").to_pylist()
    assert len(found) == 4 * len(recorded["held"])
    for number, row in enumerate(found):
        held, place = recorded["held"][number // 4], number % 4
        generated = torch.where(held["masks"][place])[0]
        rollout = [one for group in held["groups"] for one in group][place]
        assert row["step"] == number // 4 + 1 and row["trainer_version"] == row["step"] - 1
        assert row["token_ids"] == held["trajs"][place][generated].tolist()
        assert row["prompt_ids"] == held["trajs"][place][: int(generated[0])].tolist()
        assert row["old_logprobs"] == held["old"][place][generated - 1].tolist()
        told = np.array(row["rollout_logprobs"])
        known = len(rollout.logprobs[0])
        assert told[:known].tolist() == held["aligned"][place][generated - 1][:known].tolist()
        assert np.isnan(told[known:]).all() and len(told) - known == place % 2
        assert row["reward"] == rollout.reward and row["advantages"] == [pytest.approx(held["advantages"][place])]
        assert row["group_id"] == f"{row['step']}-{place // 2}"


def test_each_token_has_the_version_of_its_policy_and_of_its_kv_cache(recorded: Any, tmp_path: Path) -> None:
    for row in token_rows(tmp_path / "run").to_pylist():
        before = max(row["step"] - 2, 0)
        now = row["step"] - 1
        assert row["kv_versions"] == [before] * len(row["mask"])
        assert row["rollout_versions"] == [before] * 2 + [now] * (len(row["mask"]) - 2)


def test_log_probs_that_megatron_fills_in_are_missing_and_said(recorded: Any, tmp_path: Path) -> None:
    notes = {line.get("event"): line["note"] for line in commit_lines(tmp_path / "run") if "note" in line}
    assert (
        notes["filled_with_old"].startswith("2 sampled tokens")
        and "current is not recorded" in notes["no_current_logprobs"]
    )
    run = ratioscope.open_run(tmp_path / "run")
    assert run.policies == ("rollout", "old") and run.metrics(by=())["mismatch/non_finite"].sum() == 6
