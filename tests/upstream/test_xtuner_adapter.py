"""The xtuner adapter on xtuner's own packing, training worker and losses of b934f462, on a CPU.

Needs ray, mmengine and xtuner's other imports on PYTHONPATH, and a checkout in a folder of SOURCES. Skipped otherwise.
"""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.adapter_properties import differences, left_behind
from support.launched import two_ranks
from support.sources import root
from support.written_run import commit_lines, token_rows

import ratioscope

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="xtuner runs on torch")
driving = pytest.importorskip("upstream.xtuner_drive", reason="xtuner is not importable here")

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"mode": "chunk", "optimizer_steps": 2},
    {"correction": True, "optimizer_steps": 2},
    {"reference": True},
    {"rollout": False},
)
COMPUTED = ("told", "losses", "parameters", "random_state")


def drive(run: Path | None, **settings: Any) -> dict[str, Any]:
    return driving.drive(run, options={"strict": True}, **settings)  # type: ignore[no-any-return]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_xtuner_holds_is_recorded_and_its_training_is_bit_identical(tmp_path: Path, settings: Any) -> None:
    recorded, plain = drive(tmp_path / "run", **settings), drive(None, **settings)
    assert recorded["attachment"] == (True, None) and left_behind("xtuner") == []
    for name in COMPUTED:
        assert differences(recorded[name], plain[name]) == [], name
    told = sorted(token for row in token_rows(tmp_path / "run").to_pylist() for token in _told(row))
    held = sorted(token for step in recorded["held"] for token in _held(step, recorded["engine"], settings))
    assert [one[:5] for one in told] == [one[:5] for one in held] and len(held) > 60
    np.testing.assert_allclose([one[5:] for one in told], [one[5:] for one in held], atol=1e-5)
    left = sum(not one[3] for one in held)
    said = [line for line in commit_lines(tmp_path / "run") if line.get("event") == "rejected_without_current"]
    assert (left > 0) == bool(settings.get("correction")) == bool(said)


def _told(row: dict[str, Any]) -> Any:
    rollout = row["rollout_logprobs"] or [7.0] * len(row["mask"])
    columns = (row["mask"], row["token_ids"], row["loss_mask"], rollout, row["advantages"])
    computed = (row["old_logprobs"], row["current_logprobs"], row["reference_logprobs"] or row["old_logprobs"])
    before = [row["prompt_ids"][-1], *row["token_ids"][:-1]]
    for place, (sampled, token, kept, logprob, advantage) in enumerate(zip(*columns, strict=True)):
        if sampled:
            known = before[place], token, round(logprob, 6), advantage
            where = row["step"], row["minibatch"], row["pack_index"]
            yield *where, kept, known, *(values[place] for values in computed)


def _held(held: dict[str, Any], engine: Any, settings: Any) -> Any:
    """Each trained token as xtuner's tensors have it, with the log-probs of the weights before the rollout and the update."""
    updates = settings.get("optimizer_steps", 1)
    per_update = math.ceil(len(held["packs"]) / updates)
    reference = driving.reference_engine().table()
    for place, (pack, inputs, kept) in enumerate(zip(held["packs"], held["inputs"], held["masks"], strict=True)):
        update = place // per_update
        current = engine.tables[(held["step"] - 1) * updates + update]
        for spot in torch.where(pack["shifted_labels"][0] != -100)[0].tolist():
            before, token = int(inputs[0, spot]), int(pack["shifted_labels"][0, spot])
            logprob = round(float(pack["rollout_logprobs"][0, spot]), 6) if settings.get("rollout", True) else 7.0
            known = before, token, logprob, float(pack["advantages"][0, spot])
            old = held["old"][before, token]
            last = reference[before, token] if settings.get("reference") else old
            now = float(current[before, token]) if kept[0, spot] else float("nan")
            computed = (float(old), now, float(last))
            yield held["step"], update, place, bool(kept[0, spot]), known, *computed


def test_a_sequence_is_its_prompt_its_tokens_and_its_place_in_a_pack(tmp_path: Path) -> None:
    drive(tmp_path / "run")
    rows = token_rows(tmp_path / "run").to_pylist()
    assert len(rows) == 18 == len({row["sequence_id"] for row in rows})
    for row in rows:
        assert len(row["prompt_ids"]) in (3, 4) and row["mask"][0] and row["mask"][-1]
        assert (row["pack_index"], row["pack_position"]) == tuple(map(int, row["sequence_id"].split("-")[2:]))
        assert (
            row["trainer_version"] == row["step"] - 1 and row["rollout_version_min"] is None and row["group_id"] is None
        )
    run = ratioscope.open_run(tmp_path / "run")
    assert run.policies == ("rollout", "old", "current") and run.gaps == ("mismatch", "total", "drift")


@pytest.mark.parametrize("replicas", (1, 2))
def test_each_of_two_ranks_records_what_it_held_and_of_copies_one_does(tmp_path: Path, replicas: int) -> None:
    root("xtuner")  # a rank that has no checkout cannot skip the test
    held = dict[str, list[Any]]()
    for name in ("on", "off"):
        (tmp_path / name).mkdir()
        run = tmp_path / "on" / "run" if name == "on" else None
        held[name] = two_ranks("upstream.xtuner_drive", tmp_path / name, run, {"replicas": replicas})
    for on, off in zip(held["on"], held["off"], strict=True):
        assert on["finished"] == (True, None)
        for name in ("told", "losses", "parameters"):
            assert differences(on[name], off[name]) == [], name
    rows = token_rows(tmp_path / "on" / "run").to_pylist()
    wanted = held["on"] if replicas == 1 else held["on"][:1]
    assert {row["rank"] for row in rows} == set(range(len(wanted)))
    assert len({row["sequence_id"] for row in rows}) == len(rows) == 18 * len(wanted)
    for rank, trace in enumerate(wanted):
        told = sorted(token for row in rows if row["rank"] == rank for token in _told(row))
        engine = SimpleNamespace(tables=trace["tables"])
        assert [one[:5] for one in told] == sorted(
            token[:5] for step in trace["held"] for token in _held(step, engine, {})
        )


def test_a_split_pack_and_packs_without_rollout_log_probs_are_said(tmp_path: Path) -> None:
    drive(tmp_path / "split", sp_size=2)
    assert [line["event"] for line in commit_lines(tmp_path / "split") if line["kind"] == "event"] == ["split"]
    drive(tmp_path / "without", rollout=False)
    assert {"no_rollout_logprobs", "no_groups"} <= {line.get("event") for line in commit_lines(tmp_path / "without")}
    assert ratioscope.open_run(tmp_path / "without").policies == ("old", "current")
