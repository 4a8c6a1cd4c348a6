"""The tokens of prompts: in whatever form they come, one list per sequence is on record, of the prompt's own length."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.sizes import examples
from support.written_run import rows_of, token_rows

from ratioscope import Budget, Collector, open_run
from ratioscope.app.upkeep.maintenance import compact
from ratioscope.errors import SchemaError
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.ingest.rows.sequence_json import sequence_json, sequence_records
from ratioscope.metrics.engines.arrow_columns import list_lengths
from ratioscope.metrics.engines.join import joined

PROMPTS = st.lists(st.lists(st.integers(0, 200_000), max_size=6), min_size=1, max_size=5)
SIDES: dict[str, Any] = {"rollout_logprobs": [[-1.0, -2.0], [-0.5]], "old_logprobs": [[-1.1, -2.0], [-0.4]]}


def padded(prompts: list[list[int]], side: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(ids, mask) of the prompts with a filler in front of them, behind them, or on both sides."""
    width = max(map(len, prompts)) + 2
    ids, mask = np.full((len(prompts), width), 9), np.zeros((len(prompts), width), bool)
    for row, prompt in enumerate(prompts):
        first = {"left": width - len(prompt), "right": 0, "both": 1}[side]
        ids[row, first : first + len(prompt)] = prompt
        mask[row, first : first + len(prompt)] = True
    return ids, mask


@given(prompts=PROMPTS, side=st.sampled_from(["left", "right", "both"]))
@examples(40)
def test_padded_and_ragged_prompts_make_the_same_rows(prompts: list[list[int]], side: str) -> None:
    ids, mask = padded(prompts, side)
    forms: list[dict[str, Any]] = [
        {"prompt_ids": prompts},
        {"prompt_ids": [np.array(prompt, np.int64) for prompt in prompts]},
        {"prompt_ids": [torch.tensor(prompt, dtype=torch.int64) for prompt in prompts]},
        {"prompt_ids": ids, "prompt_mask": mask},
        {"prompt_ids": torch.from_numpy(ids), "prompt_mask": torch.from_numpy(mask).long()},
    ]
    for form in forms:
        found = rows_of(rollout_logprobs=[[-1.0]] * len(prompts), old_logprobs=[[-1.0]] * len(prompts), **form)
        assert [row["prompt_ids"] for row in found] == prompts


@pytest.mark.parametrize(
    ("given_so", "said"),
    [
        ({"prompt_ids": np.ones((2, 3), int)}, "no prompt_mask"),
        ({"prompt_ids": [1, 2, 3]}, "no prompt_mask"),
        ({"prompt_ids": [[1]]}, "1 prompts for 2 sequences"),
        ({"prompt_ids": np.ones((2, 3), int), "prompt_mask": np.ones((2, 2), bool)}, "prompt_mask (2, 2)"),
        ({"prompt_ids": np.ones((3, 2), int), "prompt_mask": np.ones((3, 2), bool)}, "3 prompts for 2 sequences"),
        ({"prompt_ids": [[1], [2]], "prompt_mask": [[True], [True]]}, "came as lists"),
        ({"prompt_mask": np.ones((2, 2), bool)}, "without prompt_ids"),
        ({"prompt_ids": [[1 << 40], [2]]}, "wanted int32"),
        ({"prompt_ids": [["a"], ["b"]]}, "wanted int32"),
    ],
)
def test_prompts_that_cannot_belong_to_the_rows_are_refused(given_so: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaError) as refused:
        rows_of(**SIDES, **given_so)
    assert said in str(refused.value)


def test_unknown_and_empty_prompts_differ() -> None:
    assert [row["prompt_ids"] for row in rows_of(**SIDES, prompt_ids=[None, []])] == [None, []]
    assert [row["prompt_ids"] for row in rows_of(**SIDES)] == [None, None]


def test_the_rows_of_minibatches_get_the_prompt_of_the_row_that_has_it(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", strict=True) as collector:
        collector.log(step=1, **SIDES, sequence_ids=["a", "b"], prompt_ids=[[7, 8, 9], [4]])
        for minibatch in (0, 1):
            current = SIDES["old_logprobs"]
            collector.log(step=1, minibatch=minibatch, current_logprobs=current, sequence_ids=["a", "b"])
    run = open_run(tmp_path / "run")
    rows = run.rows(1)
    assert rows["prompt_ids"].null_count == 4  # written once per sequence
    assert joined(rows)["prompt_ids"].to_pylist() == [[7, 8, 9], [4]] * 3
    assert run.prompt_ids(1, "a") == [7, 8, 9] and run.prompt_ids(1, "b") == [4] and run.prompt_ids(1, "c") is None
    assert not verify(tmp_path / "run", deep=True).troubles


def test_ranks_that_share_tokens_and_prompts_longer_than_them_make_one_row(tmp_path: Path) -> None:
    prompts = [list(range(50)), [3]]
    for rank, positions in enumerate(([[0], [0]], [[1], []])):
        cut: dict[str, Any] = {
            name: [[rows[at] for at in own] for rows, own in zip(sides, positions, strict=True)]
            for name, sides in SIDES.items()
        }
        with Collector(tmp_path / "run", rank=rank, strict=True) as collector:
            known: dict[str, Any] = {"prompt_ids": prompts} if rank == 1 else {}
            collector.log(step=1, **cut, positions=positions, sequence_ids=["a", "b"], **known)
    rows = joined(open_run(tmp_path / "run").rows(1))
    assert rows["prompt_ids"].to_pylist() == prompts
    assert list_lengths(rows["rollout_logprobs"]).tolist() == [2, 1]


def test_a_budget_and_a_merge_keep_the_prompts_of_the_sequences_that_they_keep(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", budget=Budget(step_bytes=6000, worst=1), strict=True) as collector:
        random = np.random.default_rng(0)
        sides: dict[str, Any] = {name: -random.exponential(size=(64, 40)) for name in SIDES}
        collector.log(
            step=1, **sides, sequence_ids=[f"{row}" for row in range(64)], prompt_ids=[[row] * row for row in range(64)]
        )
    kept = open_run(tmp_path / "run").rows(1)
    assert 0 < len(kept) < 64
    assert all(row["prompt_ids"] == [int(row["sequence_id"])] * int(row["sequence_id"]) for row in kept.to_pylist())
    with Collector(tmp_path / "run", rank=1, attempt=0, strict=True) as collector:
        collector.log(step=1, **SIDES, prompt_ids=[[1, 2], [3]])
    before = open_run(tmp_path / "run").rows(1)["prompt_ids"].to_pylist()
    assert compact(tmp_path / "run").written
    assert open_run(tmp_path / "run").rows(1)["prompt_ids"].to_pylist() == before


def test_a_prompt_that_many_samples_share_can_be_read_back(tmp_path: Path) -> None:
    prompt = np.random.default_rng(0).integers(0, 150_000, 30_000)
    with Collector(tmp_path / "run", strict=True) as collector:
        collector.log(step=1, rollout_logprobs=[[-1.0]] * 256, old_logprobs=[[-1.0]] * 256, prompt_ids=[prompt] * 256)
    run = open_run(tmp_path / "run")
    assert len(run.rows(1)) == 256 and not run.quarantined
    assert (run.rows(1)["prompt_ids"][255].values.to_numpy() == prompt).all()


def test_a_run_from_before_the_column_reads_as_if_none_was_recorded(tmp_path: Path) -> None:
    with Collector(tmp_path / "new", strict=True) as collector:
        collector.log(step=1, **SIDES, sequence_ids=["a", "b"])
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    (file,) = (tmp_path / "old").glob("tokens/*/*.parquet")
    pq.write_table(token_rows(tmp_path / "old").drop_columns(["prompt_ids"]), file)
    shutil.rmtree(tmp_path / "old" / "commits")  # a folder without logs is read, too
    run = open_run(tmp_path / "old")
    assert run.rows(1)["prompt_ids"].null_count == 2 and run.prompt_ids(1, "a") is None
    assert run.records().collect()["prompt_ids"].to_list() == [None, None]


def test_the_document_of_a_sequence_has_the_prompt_only_with_the_text(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", strict=True) as collector:
        collector.log(step=1, **SIDES, sequence_ids=["a", "b"], prompt_ids=[[7, 8], [4]])
    run = open_run(tmp_path / "run")
    tokens, about = run.sequence(1, "a"), {"step": 1, "sequence_id": "a"}
    with_text = json.loads(sequence_json(tokens, about, texts=True, prompt_ids=run.prompt_ids(1, "a")))
    assert sequence_records(with_text)["prompt_ids"].to_pylist() == [[7, 8]]
    without = json.loads(sequence_json(tokens, about, prompt_ids=run.prompt_ids(1, "a")))
    assert "prompt_ids" not in without and sequence_records(without)["prompt_ids"].null_count == 1
    assert "prompt_ids" not in tokens.columns and "prompt_ids" not in run.sequences(1).columns
