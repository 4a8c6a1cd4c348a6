"""Each example dump is imported to what its description lists; the values are read a second time by other means."""

import contextlib
import io
import json
import pickle
import sqlite3
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.imported import DUMPS, imported, rejected

from ratioscope.app.cli import main
from ratioscope.ingest.importers.formats import FORMATS, skyrl
from ratioscope.ingest.importers.samples import is_target


def close(found: list[float], wanted: Any) -> bool:
    """True if equal as float32, in which log-probs are recorded."""
    return np.array_equal(np.asarray(found, np.float32), np.asarray(wanted, np.float32), equal_nan=True)


def test_slime_rollout_and_train_files_become_one_row_for_each_sample(tmp_path: Path) -> None:
    code, rows = imported(DUMPS / "slime", tmp_path / "run")
    rollout = torch.load(DUMPS / "slime" / "rollout_3.pt", weights_only=True)["samples"]
    train = torch.load(DUMPS / "slime" / "train_3.pt", weights_only=True)["samples"]
    assert code == 0 and [row["sequence_id"] for row in rows] == ["3-12", "3-13", "3-14", "3-15"]
    by_position = {sample["rollout_position"]: sample for sample in train}
    for position, (row, sample) in enumerate(zip(rows, rollout, strict=True)):
        other, length = by_position[position], sample["response_length"]
        assert row["step"] == 3 and row["token_ids"] == sample["tokens"][-length:]
        assert row["prompt_ids"] == sample["tokens"][:-length]
        assert close(row["rollout_logprobs"], sample["rollout_log_probs"])
        assert close(row["old_logprobs"], other["log_probs"]) and close(row["advantages"], other["advantages"])
        assert row["mask"] == [bool(m) for m in sample["loss_mask"]]
        assert row["loss_mask"] == [bool(m) for m in other["loss_masks"]]
        versions = [int(version) for version in sample["weight_versions"]]
        assert (row["rollout_version_min"], row["rollout_version_max"]) == (min(versions), max(versions))
        assert row["reward"] == sample["reward"] and row["finish_reason"] == sample["status"]
    assert rows[3]["mask"] == [True] * 7 and rows[3]["loss_mask"] == [False] * 7, (
        "remove_sample: sampled, and not trained on"
    )


@pytest.mark.parametrize("side", ["rollout_3.pt", "train_3.pt"])
def test_one_side_of_slime_alone_is_a_run(tmp_path: Path, side: str) -> None:
    code, rows = imported(DUMPS / "slime" / side, tmp_path / "run")
    assert code == 0 and len(rows) == 4 and all(row["rollout_logprobs"] for row in rows)
    assert (rows[0]["old_logprobs"] is None) == (side == "rollout_3.pt")


def test_nemo_rl_rows_are_cut_to_the_sampled_tokens(tmp_path: Path) -> None:
    code, rows = imported(DUMPS / "nemo_rl", tmp_path / "run")
    lines = [json.loads(line) for line in (DUMPS / "nemo_rl" / "train_data_step1.jsonl").read_text().splitlines()]
    assert code == 0 and [row["step"] for row in rows] == [1] * 4
    for row, line in zip(rows, lines, strict=True):
        mask = line["token_loss_mask"][0]
        start, end = mask.index(1), len(mask) - mask[::-1].index(1)
        assert row["token_ids"] == line["token_ids"][0][start:end] and row["prompt_ids"] == line["token_ids"][0][:start]
        assert close(row["rollout_logprobs"], line["generation_logprobs"][0][start:end])
        assert close(row["old_logprobs"], line["prev_logprobs"][0][start:end])
        assert row["mask"] == [bool(m) for m in mask[start:end]]
        assert any(row["loss_mask"]) == bool(line["sample_loss_mask"][0])
        assert json.loads(row["extra"])["content"] == line["content"][0] and row["reward"] == line["rewards"][0]


def test_nemo_rl_placeholders_are_absent_and_bare_nan_is_nan(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (DUMPS / "nemo_rl" / "train_data_step1.jsonl").read_text().splitlines()]
    lines[0]["prev_logprobs"] = [[0.0] * 12]
    lines[1]["generation_logprobs"][0][5] = float("nan")
    lines[2]["generation_logprobs"][0][5] = float("-inf")
    (tmp_path / "train_data_step7.jsonl").write_text("\n".join(map(json.dumps, lines)))
    code, rows = imported(tmp_path / "train_data_step7.jsonl", tmp_path / "run")
    assert code == 0 and rows[0]["old_logprobs"] is None and rows[1]["old_logprobs"] is not None
    assert np.isnan(rows[1]["rollout_logprobs"]).any() and -np.inf in rows[2]["rollout_logprobs"]


LENGTHS, LOSS = [6, 4, 7, 3], [[1] * 6, [1] * 4, [1, 1, 0, 0, 1, 1, 1], [1, 1, 1]]
ROLLOUT = [
    [-0.13615591824054718, -0.4858503043651581, -0.019035188481211662, -0.5016950964927673, -1.0036861896514893,
     -0.3100734353065491],
    [-0.12480312585830688, -0.05536666885018349, -1.3534647226333618, -0.21815738081932068],
    [-0.006908435374498367, -0.1848558783531189, 0.0, 0.0, -0.0010939349886029959, -0.11954159289598465, -1.7858893871307373],
    [-0.025543613359332085, -0.00298859691247344, 0.0],
]  # fmt: skip


def _fields(aligned: str) -> dict[str, torch.Tensor]:
    """The fields of a batch of the lengths above, with the response at the right or left."""
    width = max(LENGTHS)

    def laid(rows: list[list[float]], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        pad = [[0.0] * (width - len(row)) for row in rows]
        return torch.tensor(
            [p + r if aligned == "right" else r + p for r, p in zip(rows, pad, strict=True)], dtype=dtype
        )

    ones = [[1.0] * n for n in LENGTHS]
    ids = [[float(10 * r + t) for t in range(n)] for r, n in enumerate(LENGTHS)]
    prompts = torch.tensor([[0, 7, 8]] * 4)
    return {
        "sequences": torch.cat([prompts, laid(ids, torch.int64)], 1),
        "attention_mask": torch.cat([(prompts > 0).long(), laid(ones, torch.int64)], 1),
        "response_mask": laid(ones, torch.int64), "loss_mask": laid([[float(m) for m in row] for row in LOSS]),
        "rollout_logprobs": laid(ROLLOUT), "action_log_probs": laid([[x - 0.5 for x in row] for row in ROLLOUT]).bfloat16(),
    }  # fmt: skip


def _saved(tensor: torch.Tensor) -> bytes:
    stream = io.BytesIO()
    torch.save(tensor, stream)
    return stream.getvalue()


def _legacy(pad_size: int) -> bytes:
    """A batch as the package skyrl_train pickled it: a dictionary of tensors with a state that holds them once more."""
    module = types.ModuleType("skyrl_train.training_batch")
    fields = _fields("left")

    class TrainingInputBatch(dict[str, Any]):
        def __getstate__(self) -> dict[str, Any]:
            batch = {name: _saved(tensor) for name, tensor in self.items()}
            return {
                "batch_dict": batch,
                "batch_size": 4,
                "device": torch.device("cpu"),
                "metadata": {"pad_size": pad_size},
            }

    TrainingInputBatch.__module__, TrainingInputBatch.__qualname__ = module.__name__, "TrainingInputBatch"
    module.TrainingInputBatch = TrainingInputBatch  # type: ignore[attr-defined]
    sys.modules["skyrl_train"], sys.modules[module.__name__] = types.ModuleType("skyrl_train"), module
    try:
        return pickle.dumps(TrainingInputBatch(fields), 4)
    finally:
        del sys.modules["skyrl_train"], sys.modules[module.__name__]


@pytest.mark.parametrize("form", ["v040", "v030main", "legacy"])
def test_the_three_forms_of_skyrl_batches_give_the_same_rows(tmp_path: Path, form: str) -> None:
    source = DUMPS / "skyrl" / f"global_step_3_training_input_{form}.pkl"
    if form == "legacy":
        source = tmp_path / "global_step_3_training_input.pkl"
        source.write_bytes(_legacy(0))
    code, rows = imported(source, tmp_path / "run")
    assert code == 0 and [row["step"] for row in rows] == [3] * 4
    for row, length, loss, wanted in zip(rows, LENGTHS, LOSS, ROLLOUT, strict=True):
        assert close(row["rollout_logprobs"], wanted) and row["loss_mask"] == [bool(m) for m in loss]
        assert len(row["token_ids"]) == length == len(row["old_logprobs"]) and row["prompt_ids"]
        if form == "legacy":
            halves = torch.tensor([x - 0.5 for x in wanted]).bfloat16().float().numpy()
            assert close(row["old_logprobs"], halves)
    if form != "legacy":
        assert [row["group_id"] for row in rows] == ["3-0", "3-0", "3-1", "3-1"]


def test_rows_that_fill_up_a_batch_of_skyrl_are_no_samples(tmp_path: Path) -> None:
    (tmp_path / "global_step_5_training_input.pkl").write_bytes(_legacy(pad_size=1))
    code, rows = imported(tmp_path / "global_step_5_training_input.pkl", tmp_path / "run")
    assert code == 0 and len(rows) == 3 and rows[0]["step"] == 5


@pytest.mark.parametrize("kind", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_a_field_of_skyrl_may_be_of_any_type_of_whole_numbers(kind: str) -> None:
    routes = np.array([[1, 0], [0, 1], [1, 1]], kind)  # routes of experts, which a batch holds beside its log-probs
    field = {"format": "numpy", "data": routes.tobytes(), "shape": routes.shape, "dtype": str(routes.dtype)}
    read = skyrl._field(field)
    assert read.dtype == routes.dtype and np.array_equal(read, routes)


@pytest.mark.parametrize("file", ["gen_batch.dp", "tq_batch.pt"])
def test_the_caches_that_verl_wrote_hold_the_sampler_s_side(tmp_path: Path, file: str) -> None:
    code, rows = imported(DUMPS / "verl" / file, tmp_path / "run")
    wanted = json.loads((DUMPS / "verl" / "expected.json").read_text())
    assert code == 0 and [row["group_id"] for row in rows] in (["u0", "u0", "u1", "u1"], ["a", "a", "b", "b"])
    for row, sample in zip(rows, wanted, strict=True):
        assert row["token_ids"] == sample["token_ids"] and row["prompt_ids"] == sample["prompt_ids"]
        assert row["mask"] == sample["mask"] and close(row["rollout_logprobs"], sample["rollout_logprobs"])
        assert row["old_logprobs"] is None and row["rollout_version_min"] in (1, 2)
    assert rows[0]["step"] == (5 if file == "tq_batch.pt" else 0)


def test_files_without_log_probs_are_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(DUMPS / "areal" / "42.jsonl", tmp_path / "run")[0] == 3
    assert "no log-probs, no token ids and no mask" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def _export(step: int, rank: int) -> dict[str, Any]:
    return {
        "schema_version": 1, "step": step, "rank": rank, "export_sequence_idx": 0, "env_name": "math",
        "token_ids": [5, 6, 7, 8, 9], "loss_mask": [False, True, False, True, False],
        "inference_logprobs": [0, -1.0, 0, -2.0, 0], "trainer_logprobs": [-11.0, -1.5, -3.0, -2.5, -4.0],
        "entropy": [11, 1, 2, 3, 4], "advantages": [0, 1, 1, 1, 0],
    }  # fmt: skip


def test_the_token_export_of_prime_rl_spans_the_tokens_in_the_loss(tmp_path: Path) -> None:
    for step in (1, 2):
        folder = tmp_path / "token_exports" / f"step_{step}"
        folder.mkdir(parents=True)
        (folder / "STABLE").touch()
        for rank in (0, 1):
            (folder / f"rank_{rank}.jsonl").write_text(json.dumps(_export(step, rank)) + "\n")
    code, rows = imported(tmp_path / "token_exports", tmp_path / "run")
    assert code == 0 and [(row["step"], row["sequence_id"]) for row in rows] == [
        (1, "1-0-0"), (1, "1-1-0"), (2, "2-0-0"), (2, "2-1-0")]  # fmt: skip
    row = rows[0]
    assert row["token_ids"] == [6, 7, 8] and row["prompt_ids"] == [5] and row["mask"] == [True, False, True]
    assert row["rollout_logprobs"] == [-1, 0, -2] and row["current_logprobs"] == [-1.5, -3, -2.5]


def _trace() -> dict[str, Any]:
    """An episode of one trace with two branches: both answers share the question."""
    nodes = [
        {"token_ids": [1, 2], "mask": [False, False], "logprobs": []},
        {"parent": 0, "token_ids": [3, 4, 5], "mask": [False, True, True], "logprobs": [-0.1, -0.2],
         "trainer_logprobs": [-0.3, -0.4]},
        {"parent": 1, "token_ids": [6], "mask": [False], "logprobs": []},
        {"parent": 2, "token_ids": [7, 8], "mask": [False, True], "logprobs": [-0.5], "trainer_logprobs": [-0.6]},
        {"parent": 0, "token_ids": [9], "mask": [True], "logprobs": [-0.7]},
    ]  # fmt: skip
    return {"traces": [{"id": "t", "nodes": nodes, "reward": 1.0, "task": {"key": "k"}}]}


def test_branches_of_a_trace_are_rows_with_values_at_the_sampled_tokens(tmp_path: Path) -> None:
    folder = tmp_path / "rollouts" / "step_4"
    folder.mkdir(parents=True)
    (folder / "traces.jsonl").write_text(json.dumps(_trace()) + "\n")
    code, rows = imported(tmp_path / "rollouts", tmp_path / "run")
    assert code == 0 and [row["step"] for row in rows] == [4, 4]
    long, short = rows
    assert long["token_ids"] == [4, 5, 6, 7, 8] and long["prompt_ids"] == [1, 2, 3]
    assert long["mask"] == [True, True, False, False, True]
    assert close(long["rollout_logprobs"], [-0.1, -0.2, np.nan, np.nan, -0.5])
    assert close(long["current_logprobs"], [-0.3, -0.4, np.nan, np.nan, -0.6])
    assert short["token_ids"] == [9] and short["prompt_ids"] == [1, 2] and short["current_logprobs"] is None
    stated = json.loads((tmp_path / "run" / "run.json").read_text())["resolution"]
    assert stated == {"rollout": 5e-5, "current": 5e-5}, "verifiers writes 4 decimals"


def test_a_trace_with_values_of_another_form_is_rejected_and_not_read_without_them(tmp_path: Path) -> None:
    odd = _trace()
    odd["traces"][0]["nodes"][1]["trainer_logprobs"] = {"__nd__": True, "dtype": "<f4", "shape": [2], "data": "AAAA"}
    (tmp_path / "traces.jsonl").write_text(json.dumps(odd) + "\n" + json.dumps(_trace()) + "\n")
    code, rows = imported(tmp_path / "traces.jsonl", tmp_path / "run")
    assert code == 1 and rows and {each["row"] for each in rejected(tmp_path / "run")} == {0}
    assert {each["field"] for each in rejected(tmp_path / "run")} == {"current_logprobs"}


def test_logs_of_engines_are_read_choice_by_choice(tmp_path: Path) -> None:
    choice = {
        "token_ids": [4, 5],
        "logprobs": {"content": [{"logprob": -0.1}, {"logprob": -0.2}]},
        "finish_reason": "stop",
    }
    line = {"response": {"id": "r", "choices": [choice, choice], "prompt_token_ids": [1]}, "step": 6}
    (tmp_path / "log.jsonl").write_text(json.dumps(line) + "\n")
    code, rows = imported(tmp_path / "log.jsonl", tmp_path / "run")
    assert code == 0 and len(rows) == 2 and rows[0]["step"] == 6
    assert close(rows[0]["rollout_logprobs"], [-0.1, -0.2]) and rows[0]["prompt_ids"] == [1]
    meta = {"id": "x", "output_token_logprobs": [[-0.5, 7, None], [-0.25, 8, None]], "weight_version": "3"}
    (tmp_path / "sglang.jsonl").write_text(json.dumps({"text": "a", "meta_info": meta}) + "\n")
    code, rows = imported(tmp_path / "sglang.jsonl", tmp_path / "sglang", "--step", "2")
    assert code == 0 and rows[0]["token_ids"] == [7, 8] and rows[0]["rollout_version_min"] == 3 and rows[0]["step"] == 2


def test_a_version_that_is_a_name_is_kept_and_is_no_version(tmp_path: Path) -> None:
    meta = {"output_token_logprobs": [[-0.5, 7, None]], "weight_version": "default"}
    (tmp_path / "sglang.jsonl").write_text(json.dumps({"text": "a", "meta_info": meta}) + "\n")
    code, rows = imported(tmp_path / "sglang.jsonl", tmp_path / "run")
    assert code == 0 and rows[0]["rollout_version_min"] is None, "SGLang's server says `default` until it is told one"
    assert json.loads(rows[0]["extra"])["weight_version"] == "default"


def test_a_sample_of_slime_whose_reward_has_parts_keeps_its_log_probs(tmp_path: Path) -> None:
    held = torch.load(DUMPS / "slime" / "rollout_3.pt", weights_only=True)
    held["samples"][0] |= {"reward": {"score": 1.0, "format": 0.5}, "weight_versions": ["default", "3"]}
    torch.save(held, tmp_path / "rollout_3.pt")
    code, rows = imported(tmp_path / "rollout_3.pt", tmp_path / "run")
    assert code == 0 and len(rows) == 4 and rows[0]["rollout_logprobs"] and rows[0]["reward"] is None
    kept = json.loads(rows[0]["extra"])
    assert kept["reward"] == {"score": 1.0, "format": 0.5} and kept["weight_versions"] == ["default", "3"]
    assert rows[0]["rollout_version_min"] is None and rows[1]["rollout_version_min"] == 3
    assert "reward" not in json.loads(rows[1]["extra"])


def _database(path: Path, *statements: str) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as base:
        for statement in statements:
            base.execute(statement)
        base.commit()
    return path


WIRE = "(run_attempt INT, iteration INT, group_idx INT, traj_idx INT, seq_id TEXT, sample_idx INT, policy_version INT,"


def test_databases_of_tinker_and_rllm_hold_the_sampler_s_side(tmp_path: Path) -> None:
    tinker = _database(
        tmp_path / "capture.sqlite",
        f"CREATE TABLE wire_rows {WIRE} prompt_tokens TEXT, sampled_tokens TEXT, logprobs TEXT)",
        "INSERT INTO wire_rows VALUES (0, 4, 1, 0, 's', 0, 3, '[1]', '[7, 8]', '[-0.5, -0.25]')",
        "INSERT INTO wire_rows VALUES (0, 4, 1, 1, 's', 0, 3, '[1]', '[7]', 'no list')",
    )
    code, rows = imported(tinker, tmp_path / "tinker")
    assert (
        code == 1 and len(rows) == 1 and rows[0]["token_ids"] == [7, 8] and rows[0]["rollout_logprobs"] == [-0.5, -0.25]
    )
    assert rows[0]["step"] == 4 and rows[0]["rollout_version_min"] == 3 and rows[0]["prompt_ids"] == [1]
    call = {
        "session_id": "x",
        "completion_token_ids": [9],
        "prompt_token_ids": [2],
        "logprobs": [-1],
        "weight_version": 6,
    }
    table = ("CREATE TABLE traces (id TEXT, data TEXT)", f"INSERT INTO traces VALUES ('a', '{json.dumps(call)}')")
    rllm = _database(tmp_path / "gateway.db", *table)
    code, rows = imported(rllm, tmp_path / "rllm", "--step", "2")
    assert code == 0 and rows[0]["token_ids"] == [9] and rows[0]["rollout_version_max"] == 6 and rows[0]["step"] == 2


@pytest.mark.parametrize(
    "made",
    [
        "CREATE VIEW wire_rows AS SELECT 1 AS sampled_tokens, load_extension('x') AS logprobs",
        "CREATE VIRTUAL TABLE wire_rows USING fts5(sampled_tokens, logprobs)",
        "CREATE TABLE other (x)",
    ],
)
def test_what_is_no_plain_table_of_a_database_is_refused(tmp_path: Path, made: str) -> None:
    assert imported(_database(tmp_path / "capture.sqlite", made), tmp_path / "run")[0] == 3
    (tmp_path / "text.db").write_text("no database")
    assert imported(tmp_path / "text.db", tmp_path / "run")[0] == 3


def test_a_run_of_both_sides_is_graded_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(DUMPS / "slime", tmp_path / "run")
    capsys.readouterr()
    assert main(["metrics", str(tmp_path / "run"), "--json"]) == 0
    assert "kl_k3" in capsys.readouterr().out
    assert main(["verify", "--deep", str(tmp_path / "run")]) == 0 and rejected(tmp_path / "run") == []


def test_every_line_of_every_table_names_a_column_and_every_name_is_unique() -> None:
    lines = [line for known in FORMATS for part in known.parts for line in part.columns]
    assert len(lines) > 150 and all(is_target(line.into) or line.into == "step" for line in lines)
    assert len({known.name for known in FORMATS}) == len(FORMATS)
