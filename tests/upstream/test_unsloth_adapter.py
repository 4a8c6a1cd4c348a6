"""The unsloth adapter on unsloth's own package (2026.10.9): the trainers that it generates from TRL, its log-probs and losses.

Needs unsloth, unsloth_zoo and peft. Skipped otherwise.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.adapter_properties import differences
from support.written_run import commit_lines, token_rows

import ratioscope
from ratioscope.record import MASK_REASONS

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

for package in ("unsloth", "unsloth_zoo", "peft"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
driving = pytest.importorskip("upstream.unsloth_drive")

IS = {"vllm_stub": True, "num_iterations": 2, "vllm_importance_sampling_correction": True}
SCENES: dict[str, dict[str, Any]] = {
    "vLLM": {"vllm_stub": True},
    "two passes": {"vllm_stub": True, "num_iterations": 2},
    "a reference": {"vllm_stub": True, "beta": 0.1},
    "rejected tokens": {**IS, "vllm_importance_sampling_mode": "token_mask", "vllm_importance_sampling_clip_max": 1.0},
    "rejected sequences": {
        **IS, "vllm_importance_sampling_mode": "sequence_mask", "vllm_importance_sampling_clip_max": 1.0
    },
    "its own rejection": {
        **IS, "vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 2.0,
        "variables": {"UNSLOTH_GRPO_ROLLOUT_RS": "token_k2", "UNSLOTH_GRPO_ROLLOUT_RS_THRESHOLD": "0.00001"},
    },
    "an environment's tokens": {"env_mask": True},
    "cut completions": {"vllm_stub": True, "mask_truncated_completions": True},
    "high entropy": {"vllm_stub": True, "top_entropy_quantile": 0.5},
    "an off-policy mask": {"vllm_stub": True, "num_iterations": 2, "off_policy_mask_threshold": 0.001},
    "rollout as old": {**IS, "variables": {"UNSLOTH_GRPO_ROLLOUT_LOGPROBS_AS_OLD": "1"}},
    "transformers samples": {"rollout": False},
    "by name": {"vllm_stub": True, "by_name": True},
    "RLOO": {"vllm_stub": True, "rloo": True, "beta": 0.1},
}  # fmt: skip
GRPO = [name for name in SCENES if name != "RLOO"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return driving.scenes(SCENES, tmp_path_factory.mktemp("unsloth"))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", SCENES)
def test_its_training_is_the_same_to_the_last_bit(found: Any, name: str) -> None:
    recorded, plain = found[name]["recorded"], found[name]["plain"]
    assert recorded["refused"] is None
    for part in ("losses", "gradients", "parameters", "random_state", "batches", "held", "log_history"):
        assert differences(recorded[part], plain[part]) == [], part
    assert any(gradient.abs().sum() > 0 for step in recorded["gradients"] for gradient in step.values())


@pytest.mark.parametrize("name", GRPO)
def test_the_rows_are_what_its_loss_took(found: Any, name: str) -> None:
    recorded, rows = found[name]["recorded"], token_rows(Path(found[name]["run"])).to_pylist()
    held = [(batch, taken) for batch, taken in zip(recorded["batches"], recorded["held"], strict=True)]
    assert len(rows) == sum(len(batch["completion_ids"]) for batch, _ in held)
    for batch, taken in held:
        for place in range(len(batch["completion_ids"])):
            (row,) = _rows_of(rows, batch, place)
            if name == "an environment's tokens" and not all(row["token_ids"]):
                continue  # unsloth shifts its mask of tools behind a sampled padding token
            if batch["completion_mask"][place].any():
                _assert_visible(row, batch, taken, place, name)
            else:
                assert row["current_logprobs"] is None and not any(row["loss_mask"]) and any(row["mask"])


def _rows_of(rows: list[dict[str, Any]], batch: dict[str, Any], place: int) -> list[dict[str, Any]]:
    ids, prompt = (
        [token for token in batch[name][place].tolist() if token] for name in ("completion_ids", "prompt_ids")
    )
    rows = [row for row in rows if row["step"] == batch["global_step"] + 1 and row["prompt_ids"] in (prompt, None)]
    return [row for row in rows if [token for token in row["token_ids"] if token] == ids][:1]


def _assert_visible(row: dict[str, Any], batch: dict[str, Any], taken: dict[str, Any], place: int, name: str) -> None:
    own, mask = taken["mask"][place].bool(), np.array(row["mask"])
    assert np.array(row["token_ids"])[mask].tolist() == taken["ids"][place][own].tolist()
    wanted = {"current_logprobs": "current", "old_logprobs": "old", "reference_logprobs": "reference"}
    for column, of_loss in wanted.items():
        if column == "old_logprobs" and name == "rollout as old":
            assert row[column] is None
        elif of_loss in taken or column == "old_logprobs":
            values = taken.get(of_loss, taken["current"])[place][own].tolist()
            assert np.array(row[column])[mask].tolist() == values, column
        else:
            assert row[column] is None
    rollout = batch.get("sampling_per_token_logps")
    if rollout is None:
        assert row["rollout_logprobs"] is None
    else:
        assert np.array(row["rollout_logprobs"])[mask].tolist() == rollout[place][: len(mask)][mask].tolist()
        sampled = (batch["completion_ids"] * batch.get("tool_mask", 1))[place][: len(mask)]  # 0 is padding
        assert mask.tolist() == sampled.bool().tolist()
    assert row["advantages"] == [batch["advantages"][place].item()]
    assert row["generation_step"] - 1 == row["rollout_version_min"] <= row["trainer_version"]


REASONS = {
    "rejected tokens": {"high"},
    "rejected sequences": {"sequence"},
    "its own rejection": {"other"},
    "high entropy": {"other"},
    "cut completions": {"length"},
}


@pytest.mark.parametrize("name", REASONS)
def test_the_tokens_that_its_loss_leaves_out_have_their_reason(found: Any, name: str) -> None:
    rows = token_rows(Path(found[name]["run"])).to_pylist()
    numbers = {number for row in rows if all(row["mask"]) for number in row["mask_reason"] or ()}
    assert {MASK_REASONS[number] for number in numbers} - {"kept"} == REASONS[name]
    assert any(all(row["mask"]) for row in rows)
    for row in rows:
        told = row["mask_reason"] or [0] * len(row["mask"])
        assert row["loss_mask"] == [on and not why for on, why in zip(row["mask"], told, strict=True)]
        if name == "rejected tokens" and all(row["mask"]):  # unsloth shifts its pairs behind a sampled padding token
            pairs = zip(row["old_logprobs"], row["rollout_logprobs"], strict=True)
            assert row["loss_mask"] == [old <= rollout for old, rollout in pairs]


def test_what_is_not_recorded_is_said(found: Any) -> None:
    kinds = {name: {line.get("event") for line in commit_lines(Path(found[name]["run"]))} for name in GRPO}
    assert "no_off_policy_mask" in kinds["an off-policy mask"]
    assert "no_rollout_logprobs" in kinds["transformers samples"]
    assert "old_is_current" in kinds["vLLM"] and "old_is_current" not in kinds["two passes"]


def test_a_run_of_unsloth_opens(found: Any) -> None:
    assert ratioscope.open_run(found["two passes"]["run"]).policies == ("rollout", "old", "current")
    assert ratioscope.open_run(found["rollout as old"]["run"]).policies == ("rollout", "current")
    assert ratioscope.open_run(found["RLOO"]["run"]).policies == ("rollout", "old", "current")
    info = ratioscope.open_run(found["vLLM"]["run"]).info
    assert info["trainer"].startswith("unsloth ")
