"""Optional columns that tell causes apart: given in any form, read back as given, null where they were not given."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from support.written_run import rows_of, token_rows

from ratioscope import Budget, Collector, open_run
from ratioscope.errors import SchemaError
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.metrics.engines.join import joined
from ratioscope.record import MASK_REASONS

SIDES: dict[str, Any] = {"rollout_logprobs": [[-1.0, -2.0], [-0.5]], "old_logprobs": [[-1.1, -2.0], [-0.4]]}
OF_TOKENS: dict[str, tuple[str, list[Any]]] = {
    "mask_reasons": ("mask_reason", [[0, 2], [4]]),
    "sampled_ids": ("sampled_ids", [[7, 8], [9]]),
    "kv_versions": ("kv_versions", [[3, 4], [2]]),
    "router_agreement": ("router_agreement", [[1.0, 0.5], [0.25]]),
}
OF_SEQUENCES: dict[str, list[Any]] = {
    "replayed": [True, None], "prompt_tokens": [12, 9], "cached_tokens": [8, 0], "media": [None, 2], "pack_index": [0, 1],
    "pack_position": [1, 0], "queue_seconds": [0.25, None], "generation_seconds": [3.5, 1.0],
}  # fmt: skip
EVERY: dict[str, Any] = {**{argument: values for argument, (_, values) in OF_TOKENS.items()}, **OF_SEQUENCES}
COLUMNS: dict[str, list[Any]] = dict([*OF_TOKENS.values(), *OF_SEQUENCES.items()])


def run_of(folder: Path, **options: Any) -> Path:
    with Collector(folder, strict=True, **options) as collector:
        collector.log(step=1, **SIDES, sequence_ids=["a", "b"], token_ids=[[7, 1], [9]], **EVERY)
        collector.log(step=1, minibatch=0, current_logprobs=SIDES["old_logprobs"], sequence_ids=["a", "b"])
    return folder


@pytest.mark.parametrize("argument", EVERY)
def test_a_column_alone_comes_back_and_the_others_stay_null(argument: str) -> None:
    found = rows_of(**SIDES, **{argument: EVERY[argument]})
    own = OF_TOKENS[argument][0] if argument in OF_TOKENS else argument
    assert [row[own] for row in found] == COLUMNS[own]
    assert all(row[name] is None for row in found for name in COLUMNS.keys() - {own})


@pytest.mark.parametrize("argument", OF_TOKENS)
def test_per_token_columns_come_as_tensors_arrays_and_padded(argument: str) -> None:
    name, values = OF_TOKENS[argument]
    filled = np.array([values[0], [*values[1], 0]])
    for form in (filled, torch.from_numpy(filled), [torch.tensor(row) for row in values]):
        found = rows_of(**SIDES, lengths=[2, 1], **{argument: form})
        assert [row[name] for row in found] == values


@pytest.mark.parametrize("argument", OF_SEQUENCES)
def test_per_sequence_columns_come_as_one_value_or_as_an_array(argument: str) -> None:
    value = next(value for value in OF_SEQUENCES[argument] if value is not None)
    assert [row[argument] for row in rows_of(**SIDES, **{argument: value})] == [value] * 2
    assert [row[argument] for row in rows_of(**SIDES, **{argument: np.array([value, value])})] == [value] * 2


@pytest.mark.parametrize("argument", EVERY)
def test_a_column_of_another_length_is_refused(argument: str) -> None:
    with pytest.raises(SchemaError):
        rows_of(**SIDES, **{argument: EVERY[argument][:1]})


@pytest.mark.parametrize("number", [-1, len(MASK_REASONS)])
def test_a_reason_without_a_name_is_refused(number: int) -> None:
    with pytest.raises(SchemaError, match="MASK_REASONS"):
        rows_of(**SIDES, mask_reasons=[[0, number], [0]])


def test_a_run_keeps_them_in_minibatches_tokens_and_sequences(tmp_path: Path) -> None:
    run = open_run(run_of(tmp_path / "run"))
    rows = joined(run.rows(1))
    for name, values in COLUMNS.items():
        assert rows[name].to_pylist() == values * 2, name
    tokens = run.sequence(1, "a")
    for name, column in (("kv_version", "kv_versions"), ("sampled_id", "sampled_ids"), ("mask_reason", "mask_reason")):
        assert tokens[name].to_list() == COLUMNS[column][0]
    assert tokens["router_agreement"].to_list() == [1.0, 0.5]
    frame = run.sequences(1)
    assert all(frame[name].to_list() == values * 2 for name, values in OF_SEQUENCES.items())
    assert not verify(tmp_path / "run", deep=True).troubles


def test_ranks_that_share_the_tokens_of_a_sequence_make_one_row(tmp_path: Path) -> None:
    for rank in (0, 1):
        own: dict[str, Any] = {
            name: [[values[0][rank]]] for name, values in {**SIDES, **EVERY}.items() if name not in OF_SEQUENCES
        }
        with Collector(tmp_path / "run", rank=rank, strict=True) as collector:
            known: dict[str, Any] = {"cached_tokens": [8]} if rank else {}
            collector.log(step=1, sequence_ids=["a"], positions=[[rank]], **own, **known)
    rows = joined(open_run(tmp_path / "run").rows(1)).to_pylist()
    assert len(rows) == 1 and rows[0]["cached_tokens"] == 8
    assert all(rows[0][name] == values[0] for name, values in OF_TOKENS.values())


def test_a_budget_keeps_whole_rows(tmp_path: Path) -> None:
    count, random = 64, np.random.default_rng(0)
    sides: dict[str, Any] = {name: -random.exponential(size=(count, 40)) for name in SIDES}
    with Collector(tmp_path / "run", budget=Budget(step_bytes=6000, worst=1), strict=True) as collector:
        collector.log(
            step=1, **sides, sequence_ids=[f"{row}" for row in range(count)], cached_tokens=list(range(count))
        )
    kept = open_run(tmp_path / "run").rows(1).to_pylist()
    assert 0 < len(kept) < count and all(row["cached_tokens"] == int(row["sequence_id"]) for row in kept)


def test_without_ids_the_sampled_ids_are_left_out_too(tmp_path: Path) -> None:
    for text, there in (("ids", True), ("none", False)):
        rows = token_rows(run_of(tmp_path / text, text=text))
        assert (rows["sampled_ids"].null_count < len(rows)) == there
        assert rows["cached_tokens"].null_count < len(rows)


def test_an_older_run_reads_as_if_nothing_of_it_was_recorded(tmp_path: Path) -> None:
    file = tmp_path / "old" / "tokens" / "step=000000001" / "r00000-theirs.0000.parquet"
    file.parent.mkdir(parents=True)
    older = token_rows(run_of(tmp_path / "new")).drop_columns([*COLUMNS, "prompt_ids"])
    pq.write_table(older.filter(older["minibatch"].is_null()), file)
    run = open_run(tmp_path / "old")
    assert all(run.rows(1)[name].null_count == 2 for name in COLUMNS)
    assert run.records().select(list(COLUMNS)).collect().null_count().row(0) == (2,) * len(COLUMNS)
