"""Dumps as people keep them: compressed, under names of their own, beside logs, and in folders of folders."""

import gzip
import json
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.hostile_dumps import SHAPES
from support.imported import DUMPS, imported, rejected

from ratioscope import open_run
from ratioscope.app.cli import main


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


PACK = {".gz": gzip.compress, ".zst": zstd}


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("name", ["nemo_rl/train_data_step1.jsonl", "slime/train_3.pt", "martingale/tokens.db"])
def test_a_compressed_dump_becomes_the_run_that_the_plain_one_becomes(tmp_path: Path, name: str, ending: str) -> None:
    plain, packed = DUMPS / name, tmp_path / f"{Path(name).name}{ending}"
    packed.write_bytes(PACK[ending](plain.read_bytes()))
    code, rows = imported(packed, tmp_path / "run")
    _, wanted = imported(plain, tmp_path / "plain")
    assert code == 0 and rows and repr(rows) == repr(wanted), "repr, because NaN is unequal to itself"


@pytest.mark.parametrize("ending", PACK)
def test_parts_that_were_packed_one_after_the_other_are_read_to_the_end(tmp_path: Path, ending: str) -> None:
    lines = (DUMPS / "nemo_rl" / "train_data_step1.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / f"train_data_step1.jsonl{ending}").write_bytes(b"".join(map(PACK[ending], lines)))
    code, rows = imported(tmp_path / f"train_data_step1.jsonl{ending}", tmp_path / "run")
    assert code == 0 and len(rows) == len(lines)


def rows_of_numbers(count: int) -> bytes:
    rng = random.Random(0)
    return b"".join(
        json.dumps({"rollout_logprobs": [-rng.random() for _ in range(50)]}).encode() + b"\n" for _ in range(count)
    )


@pytest.mark.parametrize("ending", PACK)
def test_a_compressed_file_that_is_cut_off_gives_the_rows_before_the_cut_and_says_so(
    tmp_path: Path, ending: str
) -> None:
    packed = PACK[ending](rows_of_numbers(4000))
    (tmp_path / f"rows.jsonl{ending}").write_bytes(packed[: len(packed) * 3 // 4])
    code, rows = imported(tmp_path / f"rows.jsonl{ending}", tmp_path / "run")
    last = rejected(tmp_path / "run")[-1]["reason"]
    assert code == 1 and 1000 < len(rows) < 4000 and ("cut off" in last), last


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.pt"])
def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.zst").write_bytes(zstd(b" " * (1 << 27)))
    code, _ = imported(tmp_path / f"{name}.zst", tmp_path / "run", "--most-memory", "0.05")
    assert code == 3 and not (tmp_path / "run").exists()


def test_files_of_one_rollout_are_joined_whatever_their_names(tmp_path: Path) -> None:
    for name, other in (("rollout_3.pt", "a/qwen3-4b.pt"), ("train_3.pt", "b/run_v2_of_7.pt")):
        (tmp_path / "dump" / other).parent.mkdir(parents=True)
        shutil.copy(DUMPS / "slime" / name, tmp_path / "dump" / other)
    code, rows = imported(tmp_path / "dump", tmp_path / "run")
    _, wanted = imported(DUMPS / "slime", tmp_path / "plain")
    assert code == 0 and repr(rows) == repr(wanted) and all(row["old_logprobs"] for row in rows)


def test_groups_of_nemo_rl_s_replay_buffer_have_two_versions(tmp_path: Path) -> None:
    """Written by NeMo-RL 7ea279ab (tests/upstream/test_nemo_rl_dumps.py): three groups of two, one sample not in the loss."""
    code, rows = imported(DUMPS / "nemo_rl_checkpoint", tmp_path / "run")
    assert code == 0 and [row["step"] for row in rows] == [4, 4, 5, 5, 5, 5]
    assert [row["rollout_version_min"] for row in rows] == [3, 3, 3, 3, 4, 4]
    assert [row["trainer_version"] for row in rows] == [4, 4, 5, 5, 5, 5]
    assert [any(row["loss_mask"]) for row in rows] == [True, True, True, False, True, True]
    assert rows[3]["token_ids"] == [11, 11, 7, 9] and rows[3]["prompt_ids"] == [1, 2, 4, 4]
    wanted = np.asarray([-0.2, -0.4, np.nan, -0.5], np.float32)
    assert np.array_equal(np.float32(rows[3]["rollout_logprobs"]), wanted, equal_nan=True)


FIREWORKS = [
    {"train/inference_k1": 0.5, "train/step": 1, "rollout/step": 1, "step": 1},
    {"train/inference_k1": None, "train/step": 2, "rollout/step": 2, "step": 2},
    {"producer/event": 1, "producer/in_flight_samples": 4, "step": 1},
]


def test_records_of_fireworks_producer_never_meet_those_of_the_trainer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As log_metrics of the cookbook writes them: null is a number that is not finite."""
    (tmp_path / "dump").mkdir()
    log = tmp_path / "dump" / "metrics.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in FIREWORKS))
    assert main(["import", str(tmp_path / "dump"), "-o", str(tmp_path / "run")]) == 1
    found = {(row["step"], row["name"]): row["value"] for row in open_run(tmp_path / "run").logged.to_dicts()}
    assert found.pop((2, "train/inference_k1")) != 0.5 and not any("producer" in name for _, name in found)
    assert found[1, "train/inference_k1"] == 0.5
    (row,) = rejected(tmp_path / "run")
    assert (row["row"], row["field"]) == (2, "producer/event") and "counts events" in row["reason"]


def test_a_log_of_numbers_beside_dumps_is_named_and_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(DUMPS / "nemo_rl", tmp_path / "dump")
    (tmp_path / "dump" / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n')
    (tmp_path / "dump" / "verl.jsonl").write_text('{"step": 1, "data": {"loss": 0.5}}\n')
    code, rows = imported(tmp_path / "dump", tmp_path / "run")
    said = " ".join(capsys.readouterr().out.split())
    assert code == 0 and len(rows) == 4 and "metrics.jsonl (a table of numbers by step; import it by itself)" in said
    assert "verl.jsonl (verl's file logger; import it by itself)" in said


def test_a_trajectory_of_one_line_is_no_log_of_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"step": 1, "prompt_group": 0, "completion_index": 0, "reward": 1.0, "advantage": 0.5, "completion_len": 3,
           "prompt": "q", "completion": "a", "ground_truth": "a", "truncated": False}  # fmt: skip
    (tmp_path / "step_0001.jsonl").write_text(json.dumps(row) + "\n")
    assert imported(tmp_path / "step_0001.jsonl", tmp_path / "run")[0] == 3
    assert "no log-probs and no token ids" in capsys.readouterr().err


def test_the_columns_of_miles_dashboard_are_passed_over_beside_its_dumps(tmp_path: Path) -> None:
    """They hold the sampler's side alone, under the same ids: read first, they kept the rows of both sides out."""
    sample = next(shape for shape in SHAPES if shape.name == "miles")
    for folder in ("rollout_data", "dashboard_columns"):
        (tmp_path / "dump" / folder).mkdir(parents=True)
    sample.write(tmp_path / "dump" / "rollout_data" / "3.pt", [sample.row])
    held = {"sample_index": sample.row["index"], **{name: sample.row[name] for name in ("tokens", "response_length")}}
    columns = pa.Table.from_pylist(
        [held | {"rollout_log_probs": sample.row["rollout_log_probs"], "loss_mask": [1, 0, 1]}]
    )
    for step in (3, 4):
        pq.write_table(columns, tmp_path / "dump" / "dashboard_columns" / f"rollout_{step}.parquet")
    code, rows = imported(tmp_path / "dump", tmp_path / "run")
    assert code == 0 and [(row["step"], row["rollout_version_min"]) for row in rows] == [(3, 3), (4, None)]


@pytest.mark.parametrize("ending", PACK)
def test_a_small_file_that_unpacks_to_much_is_refused_before_it_fills_the_disk(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    packed = PACK[ending](bytes(1 << 26))
    (tmp_path / f"a.pkl{ending}").write_bytes(packed)
    assert imported(tmp_path / f"a.pkl{ending}", tmp_path / "run")[0] > 1
    words = capsys.readouterr().err
    assert f"unpacks to more than {1 << 24} bytes (100 times its own {len(packed)})" in words and "unpack it" in words
    free = SimpleNamespace(free=1 << 20)
    monkeypatch.setattr("ratioscope.ingest.importers.compression.shutil.disk_usage", lambda folder: free)
    assert imported(tmp_path / f"a.pkl{ending}", tmp_path / "run")[0] > 1
    assert f"unpacks to more than {1 << 19} bytes (half of what is free in" in capsys.readouterr().err
    assert not list((tmp_path / "temporary").iterdir())


def test_responses_without_token_ids_keep_their_log_probs(tmp_path: Path) -> None:
    lists = [
        {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.25}]},
        {"tokens": ["c"], "token_logprobs": [-1.0]},
    ]
    lines = [{"id": f"r{at}", "choices": [{"index": 0, "logprobs": each}]} for at, each in enumerate(lists)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, rows = imported(tmp_path / "log.jsonl", tmp_path / "run")
    assert code == 0 and [row["rollout_logprobs"] for row in rows] == [[-0.5, -0.25], [-1.0]]
    assert [row["token_ids"] for row in rows] == [None, None]


def test_log_probs_under_names_that_nobody_knows_are_named_with_what_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"lp_vllm": [-0.5, -0.25], "lp_fsdp": [-0.5, -0.125], "ids": [3, 4], "lengths": [-1, -2], "text": "a"}
    (tmp_path / "two.jsonl").write_text(json.dumps(row) + "\n")
    assert imported(tmp_path / "two.jsonl", tmp_path / "run")[0] > 1
    words = capsys.readouterr().err
    assert "lists that may be log-probs: lp_vllm, lp_fsdp; say whose with --map rollout_logprobs=lp_vllm)" in words
    named = ("--map", "rollout_logprobs=lp_vllm", "--map", "old_logprobs=lp_fsdp")
    code, rows = imported(tmp_path / "two.jsonl", tmp_path / "run", *named)
    assert code == 0 and rows[0]["old_logprobs"] == [-0.5, -0.125] and rows[0]["token_ids"] is None
