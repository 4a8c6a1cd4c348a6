"""The open-instruct adapter on its own code: data preparation, packing, traces, the trainer's step and its losses, on a CPU.

Needs a checkout of allenai/open-instruct (it is not published), tested with e6c3044a of 2026-08-20, in a folder of SOURCES.
Skipped otherwise.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.imported import imported
from support.written_run import token_rows

import ratioscope
from ratioscope.metrics.engines.join import joined

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="open-instruct runs on torch")
driving = pytest.importorskip("upstream.open_instruct_drive", reason="open-instruct is not importable here")

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"num_mini_batches": 2},
    {"num_mini_batches": 2, "num_epochs": 2},
    {"use_vllm_logprobs": True},
    {"use_rho_correction": False, "load_ref_policy": False, "record_entropy": False},
    {"rho_mask_lower_bound": 0.9, "rho_mask_upper_bound": 1.1, "num_mini_batches": 2},
    {"rho_mask_upper_bound": 1.1, "rho_mask_sequence_level": True},
    {"rho_mask_upper_bound": 0.05, "rho_mask_tv_divergence": True},
    {"loss_fn": "cispo", "loss_denominator": "10"},
    {"mask_tool_use": False},
    {"nan": True},
)


def held(trace: dict[str, Any], settings: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per document with a response and visit of its pack, from the batches and from the calls of the loss."""
    rows = []
    for step, batch in enumerate(trace["batches"], start=1):
        calls = [call for call in trace["calls"] if call["step"] == step]
        packs = len(calls) // settings.get("num_epochs", 1)
        updates = max(math.ceil(len(batch.query_responses) / settings.get("num_mini_batches", 1) - 0.5), 1)
        for visit, call in enumerate(calls):
            number = visit % packs
            documents, mask = batch.attention_masks[number][0].tolist(), batch.response_masks[number][0].tolist()
            for document in range(1, max(documents) + 1):
                sampled = [i for i, (d, m) in enumerate(zip(documents, mask, strict=True)) if d == document and m]
                cut, scored = slice(sampled[0], sampled[-1] + 1), slice(sampled[0] - 1, sampled[-1])
                tokens = batch.query_responses[number][0].tolist()
                old = None if settings.get("use_vllm_logprobs") else call["old"]
                weights = call["weights"][0, scored].tolist()
                rows.append({
                    "sequence_id": f"{step}-0-{number}-0-{document - 1}", "step": step, "minibatch": visit // updates,
                    "trainer_version": step - 1, "token_ids": tokens[cut], "mask": mask[cut],
                    "prompt_ids": tokens[documents.index(document) : cut.start],
                    "rollout_logprobs": batch.vllm_logprobs[number][0, cut].tolist(),
                    "old_logprobs": None if old is None else old[0, scored].tolist(),
                    "current_logprobs": call["current"][0, scored].tolist(),
                    "reference_logprobs": None if call["reference"] is None else call["reference"][0, scored].tolist(),
                    "entropy": None if call["entropy"] is None else call["entropy"][0, scored].tolist(),
                    "advantages": batch.advantages[number][0, cut].tolist(),
                    "loss_mask": [m and weight != 0 for m, weight in zip(mask[cut], weights, strict=True)],
                })  # fmt: skip
    return sorted(rows, key=order)


def order(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["step"], row["sequence_id"], row["minibatch"]


def recorded(run: Path) -> list[dict[str, Any]]:
    """The rows of the trainer's visits, with the facts of the data preparation."""
    rows = joined(token_rows(run)).to_pylist()
    return sorted((row for row in rows if row["current_logprobs"] is not None), key=order)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_open_instruct_holds_is_recorded_and_its_training_is_bit_identical(tmp_path: Path, settings: Any) -> None:
    trace = driving.drive(tmp_path / "run", tmp_path / "traces", options={"strict": True}, **settings)
    assert trace["refused"] is None and trace["finished"]
    rows, wanted = recorded(tmp_path / "run"), held(trace, settings)
    assert len(rows) == len(wanted) >= 18
    for row, own in zip(rows, wanted, strict=True):
        np.testing.assert_equal({name: row[name] for name in own}, own)  # NaN equals NaN
    assert_facts(rows, trace)
    if not settings.get("nan"):
        assert_logged(rows, trace)
    if settings == {}:
        assert_imported(rows, tmp_path)
    other = driving.drive(None, tmp_path / "other", **settings)
    assert repr(trace["logs"]) == repr(other["logs"]) and torch.equal(trace["table"], other["table"])
    assert all(torch.equal(mine, yours) for mine, yours in zip(trace["gradients"], other["gradients"], strict=True))
    assert trace["rng"][:2] == other["rng"][:2] and torch.equal(trace["rng"][2], other["rng"][2])


def assert_facts(rows: list[dict[str, Any]], trace: dict[str, Any]) -> None:
    """Group, reward, finish reason and version are those of the engine's answer with the row's tokens."""
    answers = {tuple(tokens): (one, i) for one in trace["answered"] for i, tokens in enumerate(one.responses)}
    for row in rows:
        answer, i = answers[tuple(row["token_ids"])]
        assert row["group_id"] == f"{row['step']}-{answer.index}" and row["reward"] == answer.reward_scores[i]
        assert row["finish_reason"] == answer.finish_reasons[i] and row["rollout_version_max"] == answer.model_step


def assert_logged(rows: list[dict[str, Any]], trace: dict[str, Any]) -> None:
    """The records give open-instruct's difference of its log-probs and vLLM's: it logs that of a step's last pack."""
    for step, (scalars, _) in enumerate(trace["logs"], start=1):
        last = max((row for row in rows if row["step"] == step), key=lambda row: (row["minibatch"], pack(row)))
        visit = [
            row for row in rows if (row["minibatch"], row["step"], pack(row)) == (last["minibatch"], step, pack(last))
        ]
        gaps = [
            np.abs(np.array(row["current_logprobs"]) - np.array(row["rollout_logprobs"]))[row["mask"]] for row in visit
        ]
        assert scalars["debug/vllm_vs_local_logprob_diff_mean"] == pytest.approx(np.concatenate(gaps).mean(), rel=1e-5)


def pack(row: dict[str, Any]) -> int:
    return int(row["sequence_id"].split("-")[2])


def assert_imported(rows: list[dict[str, Any]], folder: Path) -> None:
    """The rollouts that open-instruct saves give the recorded rows; it counts a step from 0 there and from 1 in its log."""
    code, found = imported(folder / "traces", folder / "imported")  # its metadata lies beside the rows
    own = {tuple(row["token_ids"]): row for row in found}
    assert code == 0 and len(own) == len(found) == 24
    for row in rows:
        match = own[tuple(row["token_ids"])]
        assert match["step"] == row["step"] - 1 and match["reward"] == row["reward"]
        for name in ("rollout_logprobs", "prompt_ids", "finish_reason"):
            assert match[name] == row[name]


def test_a_run_of_open_instruct_opens_with_its_lag(tmp_path: Path) -> None:
    driving.drive(tmp_path / "run", tmp_path / "traces", options={"strict": True}, num_mini_batches=2)
    run = ratioscope.open_run(tmp_path / "run")
    assert run.metrics(by=["step", "lag"]).select("step", "lag").rows() == [(1, "0"), (2, "1"), (3, "1")]
    assert run.info["trainer"].startswith("open-instruct")
