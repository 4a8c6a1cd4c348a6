"""The prime-rl adapter on prime-rl's own code: train sink, packing, transport, train(), loss, exporter and metrics, on a CPU.

Needs a checkout of PrimeIntellect-ai/prime-rl (it is not published), tested with 559b4477 of 2026-08-21, in a folder of SOURCES.
Skipped otherwise. Later sources have no token exporter (pull request 3444). None could be had, so the exporter's lines are cut
from this one.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.imported import imported
from support.written_run import token_rows

import ratioscope
from ratioscope.metrics.engines.join import joined

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="prime-rl runs on torch")
driving = pytest.importorskip("upstream.prime_rl_drive", reason="prime-rl is not importable here")

IPO: dict[str, Any] = {"loss": ("IPOLossConfig", {"ipo_threshold": 0.02})}
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"export": True},
    {"exporter": False},
    {**IPO},
    {**IPO, "exporter": False},
    {"loss": ("DefaultLossConfig", {"dppo_mask_low": 0.01, "dppo_mask_high": 0.01, "kl_tau": 0.1})},
    {"loss": ("CustomLossConfig", {"import_path": "upstream.prime_rl_drive.reinforce"}), "exporter": False},
    {"filter_zero_advantages": True, "lag": 1},
    {"reference": True},
    {"reference": True, "exporter": False},
    {"observed": True},
    {"observed": True, "exporter": False},
)


def float32(values: Any) -> list[float]:
    return [float(value) for value in np.asarray(values, np.float32)]


def held(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per sequence with a sampled token, from what the orchestrator sent and what the model's output held."""
    rows, calls = [], iter(trace["outputs"])
    for step, batches in enumerate(trace["sent"][:3], start=1):
        for number, batch in enumerate(batches):
            output, start = next(calls), 0
            none = [None] * len(batch.input_ids)
            rl, cross, ref = (getattr(batch, name) or none for name in ("rl_weights", "ce_weights", "ref_kl_weights"))
            for place, length in enumerate(batch.sequence_lengths):
                sampled = [i for i in range(start + 1, start + length) if batch.loss_mask[i] and not cross[i]]
                if sampled:
                    cut = slice(sampled[0], sampled[-1] + 1)
                    inside = [i in sampled for i in range(cut.start, cut.stop)]
                    weighed = [rl[i] is None or rl[i] != 0 or bool(ref[i]) for i in range(cut.start, cut.stop)]
                    rows.append({
                        "sequence_id": f"{step}-0-{number}-{place}", "step": step, "trainer_version": step - 1,
                        "token_ids": batch.input_ids[cut], "prompt_ids": batch.input_ids[start : cut.start],
                        "rollout_logprobs": float32(batch.inference_logprobs[cut]),
                        "current_logprobs": output["logprobs"][cut].tolist(), "entropy": output["entropy"][cut].tolist(),
                        "reference_logprobs": float32(batch.ref_logprobs[cut]) if batch.ref_logprobs else None,
                        "advantages": float32(batch.advantages[cut]), "mask": inside,
                        "loss_mask": [a and b for a, b in zip(inside, weighed, strict=True)],
                    })  # fmt: skip
                start += length
    return rows


def recorded(run: Path) -> list[dict[str, Any]]:
    """The rows that were trained on: the orchestrator has sent a fourth step's, too."""
    rows = [row for row in joined(token_rows(run)).to_pylist() if row["current_logprobs"] is not None]
    return sorted(rows, key=lambda row: [int(part) for part in row["sequence_id"].split("-")])


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_prime_rl_holds_is_recorded_and_its_training_is_bit_identical(tmp_path: Path, settings: Any) -> None:
    trace = driving.drive(tmp_path / "run", tmp_path / "own", options={"strict": True}, **settings)
    assert trace["refused"] is None and trace["finished"]
    rows, wanted = recorded(tmp_path / "run"), held(trace)
    assert len(rows) == len(wanted) and len(rows) >= 18
    for row, own in zip(rows, wanted, strict=True):
        assert {name: row[name] for name in own} == own
    assert_facts(rows, trace)
    assert_logged(rows, tmp_path / "own")
    if settings.get("export"):
        assert_imported(rows, tmp_path)
    other = driving.drive(None, tmp_path / "other", **settings)
    assert all(torch.equal(mine, yours) for mine, yours in zip(trace["weights"], other["weights"], strict=True))
    assert trace["rng"][:2] == other["rng"][:2] and torch.equal(trace["rng"][2], other["rng"][2])
    assert logged(tmp_path / "own") == logged(tmp_path / "other")


def assert_facts(rows: list[dict[str, Any]], trace: dict[str, Any]) -> None:
    """Group, reward and versions are those of the episode of the row's trace."""
    episodes = {episode.traces[0].id: episode for episode in trace["episodes"]}
    for row in rows:
        episode = episodes[json.loads(row["extra"])["trace"]]
        one, policy = episode.traces[0], episode.run.work.policy
        assert row["group_id"] == episode.group.id and row["reward"] == pytest.approx(one.reward)
        assert row["finish_reason"] == one.stop_condition and row["rollout_version_min"] == policy.start
        tokens = [branch.token_ids[: driving.SEQ_LEN] for branch in one.branches]
        assert any(own[len(row["prompt_ids"]) :][: len(row["token_ids"])] == row["token_ids"] for own in tokens)


def logged(own: Path) -> dict[int, dict[str, float]]:
    """What prime-rl's file monitor wrote of its loss, by step."""
    found: dict[int, dict[str, float]] = {}
    for line in (own / "metrics.jsonl").read_text().splitlines():
        values = json.loads(line)
        kept = ("mismatch_kl/", "entropy/", "loss/", "is_masked", "masked_", "unmasked_", "ref_kl", "nll")
        found.setdefault(values["step"], {}).update({k: v for k, v in values.items() if k.startswith(kept)})
    return found


def assert_logged(rows: list[dict[str, Any]], own: Path) -> None:
    """The records give prime-rl's mismatch_kl of each step: K3 of current over rollout, over the tokens in its losses."""
    for step, values in logged(own).items():
        gaps = [
            np.array(row["current_logprobs"])[row["loss_mask"]] - np.array(row["rollout_logprobs"])[row["loss_mask"]]
            for row in rows
            if row["step"] == step
        ]
        gap = np.concatenate(gaps)
        assert values["mismatch_kl/all/mean"] == pytest.approx(float(np.mean(np.expm1(gap) - gap)), rel=1e-4, abs=1e-7)


def assert_imported(rows: list[dict[str, Any]], folder: Path) -> None:
    """The files of prime-rl's exporter give the recorded rows."""
    code, found = imported(folder / "own" / "token_exports", folder / "imported")
    assert code == 0 and len(found) == len(rows)
    mine = sorted(rows, key=lambda row: (row["step"], row["token_ids"]))
    names = ("token_ids", "prompt_ids", "rollout_logprobs", "current_logprobs", "entropy", "advantages", "mask")
    for row, own in zip(sorted(found, key=lambda row: (row["step"], row["token_ids"])), mine, strict=True):
        assert {name: row[name] for name in names} == {name: own[name] for name in names}


@pytest.mark.parametrize("exporter", [True, False])
def test_a_run_of_prime_rl_opens_with_its_lag(tmp_path: Path, exporter: bool) -> None:
    driving.drive(tmp_path / "run", tmp_path / "own", options={"strict": True}, lag=1, exporter=exporter)
    run = ratioscope.open_run(tmp_path / "run")
    assert run.metrics(by=["step", "lag"]).select("step", "lag").rows() == [(1, "0"), (2, "1"), (3, "1")]
    assert run.gaps == ("total",) and run.info["config"]["loss"]["dppo_mask_low"] == 0.2
