"""The torchtitan RL adapter on torchtitan's own samples, batches, losses and policy trainer, 0.3.0 and a checkout, on a CPU.

Needs torchmonarch on PYTHONPATH and torchtitan in folders of SOURCES. Skipped otherwise.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.adapter_properties import differences, left_behind
from support.launched import launch
from support.sources import root
from support.written_run import commit_lines, token_rows

import ratioscope

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="torchtitan runs on torch")
driving = pytest.importorskip("upstream.torchtitan_rl_drive", reason="torchmonarch is not importable here")

SOURCES = ("torchtitan", "torchtitan_newer")
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"loss": "DAPO", "missing": True},
    {"chunks": 4},
    {"chunks": 4, "loss": "DAPO", "missing": True, "multiple": 4},
    {"ranks": 2, "turns": 1},
    {"named": False},
)


def drive(run: Path | None, source: str, **settings: Any) -> dict[str, Any]:
    return driving.drive(run, source=source, options={"strict": True}, **settings)  # type: ignore[no-any-return]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_torchtitan_holds_is_recorded_and_its_training_is_bit_identical(
    tmp_path: Path, settings: Any, source: str
) -> None:
    recorded, plain = drive(tmp_path / "run", source, **settings), drive(None, source, **settings)
    assert recorded["attachment"] == (True, None) and left_behind("torchtitan_rl") == []
    for name in ("told", "parameters", "random_state"):
        assert differences(recorded[name], plain[name]) == [], name
    found = sorted(
        (row["step"], token, _known(rollout), advantage, current, entropy)
        for row in token_rows(tmp_path / "run").to_pylist()
        for token, mask, rollout, current, entropy, advantage in zip(
            row["token_ids"], row["mask"], row["rollout_logprobs"], row["current_logprobs"], row["entropy"],
            row["advantages"], strict=True,
        )
        if mask
    )  # fmt: skip
    held = sorted(token for batch in recorded["held"] for token in _held(*batch))
    assert [one[:4] for one in found] == [one[:4] for one in held] and held
    np.testing.assert_allclose(
        [one[4:] for one in found], [one[4:] for one in held], atol=1e-4
    )  # another order of sums


def _known(value: float) -> float:
    return 7.0 if np.isnan(value) else round(value, 6)


def _held(step: int, batch: Any, table: Any) -> Any:
    """Each sampled token as torchtitan's tensors have it, with the log-prob and entropy of the model that it trained."""
    entropies = -(table.exp() * table).sum(-1)
    columns = (batch.token_ids, batch.labels, batch.generator_logprobs, batch.advantages, batch.loss_mask)
    for before, token, rollout, advantage, sampled in zip(*(c.flatten().tolist() for c in columns), strict=True):
        if sampled:
            yield step, token, _known(rollout), advantage, float(table[before, token]), float(entropies[before])


@pytest.mark.parametrize("source", SOURCES)
def test_a_sample_keeps_its_name_group_versions_prompt_and_turns(tmp_path: Path, source: str) -> None:
    drive(tmp_path / "run", source, steps=3)
    found = token_rows(tmp_path / "run").to_pylist()
    assert len(found) == 18 and {row["sequence_id"] for row in found} == {
        f"group={group}/rollout={place}/turn=0" for group in range(9) for place in range(2)
    }
    for row in found:
        assert f"group={row['group_id']}/" in row["sequence_id"] and (int(row["group_id"]) // 3) == row["step"] - 1
        assert row["rollout_version_max"] == row["trainer_version"] == row["step"] - 1
        assert row["rollout_version_min"] == max(0, row["step"] - 2)
        assert len(row["prompt_ids"]) == 3 and row["mask"][0] and row["mask"][-1]
        assert row["mask"].count(False) == 2  # the reply between both turns
        assert row["old_logprobs"] is None
    assert ratioscope.open_run(tmp_path / "run").policies == ("rollout", "current")


@pytest.mark.parametrize("source", SOURCES)
def test_tokens_that_the_loss_leaves_out_are_counted_and_shown(tmp_path: Path, source: str) -> None:
    drive(tmp_path / "run", source, missing=True)
    notes = [line for line in commit_lines(tmp_path / "run") if line.get("event") == "left_out_of_the_loss"]
    assert len(notes) == 1 and "have no finite log-prob of the generator" in notes[0]["note"]
    rows = token_rows(tmp_path / "run").to_pylist()
    missing = [np.isnan(one) for row in rows for one in row["rollout_logprobs"]]
    assert sum(missing) == 12 == ratioscope.open_run(tmp_path / "run").metrics(by=())["total/non_finite"].sum()
    reasons = [reason for row in rows for reason in row["mask_reason"] or [0] * len(row["mask"])]
    assert [reason == 7 for reason in reasons] == missing


def test_without_names_the_record_says_so_and_keeps_the_rest(tmp_path: Path) -> None:
    drive(tmp_path / "run", "torchtitan", named=False)
    rows = token_rows(tmp_path / "run").to_pylist()
    assert len(rows) == 12 == len({(row["step"], row["sequence_id"]) for row in rows})
    assert {row["group_id"] for row in rows} == {None} == {row["rollout_version_min"] for row in rows}
    assert [line for line in commit_lines(tmp_path / "run") if line.get("event") == "no_names"]


def test_what_processes_of_a_real_monarch_hold_is_recorded_under_the_names_of_the_controllers_samples(
    tmp_path: Path,
) -> None:
    root("torchtitan")
    traces = []
    for name in ("on", "off"):
        recorded = tmp_path / "run" if name == "on" else None
        launch("upstream.torchtitan_rl_monarch", str(tmp_path / name), recorded=recorded)
        traces.append(torch.load(tmp_path / name, weights_only=True))
    assert differences(*traces) == []
    rows = token_rows(tmp_path / "run").to_pylist()
    told = [
        (row["step"], token, rollout, advantage)
        for row in rows
        for token, mask, rollout, advantage in zip(
            row["token_ids"], row["mask"], row["rollout_logprobs"], row["advantages"], strict=True
        )
        if mask
    ]
    columns = ("labels", "generator_logprobs", "advantages", "loss_mask")
    held = [
        (step, *values[:3])
        for step, batch in traces[0]["held"]
        for values in zip(*(batch[name].flatten().tolist() for name in columns), strict=True)
        if values[3]
    ]
    assert sorted(told) == sorted(held) and {row["rank"] for row in rows} == {0, 1}
    assert {row["sequence_id"] for row in rows} == {f"group={g}/rollout={p}/turn=0" for g in range(9) for p in range(2)}
    assert all(row["rollout_version_max"] == row["trainer_version"] for row in rows)
