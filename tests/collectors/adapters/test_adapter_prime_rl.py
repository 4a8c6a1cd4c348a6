"""The adapter for prime-rl, on a stand-in of exact signatures; see standins/prime_rl.py."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from standins.prime_rl import Ranks, drive

import ratioscope
from ratioscope.collectors.adapters.prime_rl import Losses
from ratioscope.collectors.adapters.prime_rl.rows import PackedSequences, packed_rows
from ratioscope.collectors.watching.hooks import MARK
from ratioscope.ingest.analysis.support import support_of


def rows_of(run_dir: Path) -> pl.DataFrame:
    """The trainer's rows of a run's token files."""
    rows = pl.concat([pl.read_parquet(file) for file in sorted(run_dir.glob("tokens/*/*.parquet"))])
    return rows.filter(pl.col("current_logprobs").is_not_null()).sort("step", "sequence_id")


def records_of(run_dir: Path) -> pl.DataFrame:
    """The run's rows as a reader has them, parts of one put together."""
    found = ratioscope.open_run(run_dir).sequences()
    return found.sort("step", "sequence_id")


def expected(held: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of a micro-batch, token by token; written apart from the adapter."""
    sent, start = held["sent"], 0
    for place, length in enumerate(sent["sequence_lengths"]):
        cross = sent["ce_weights"] or [0.0] * len(sent["input_ids"])
        weights = sent["rl_weights"] or [1.0] * len(sent["input_ids"])
        places = [t for t in range(start, start + length) if sent["loss_mask"][t] and cross[t] == 0.0]
        if places:
            tokens = range(places[0], places[-1] + 1)
            yield {
                "sequence_id": f"{held['step']}-0-{held['micro_step']}-{place}",
                "token_ids": [sent["input_ids"][t] for t in tokens],
                "rollout_logprobs": [sent["inference_logprobs"][t] for t in tokens],
                "current_logprobs": [held["logprobs"][t] for t in tokens],
                "entropy": [held["entropy"][t] for t in tokens],
                "advantages": [sent["advantages"][t] for t in tokens],
                "mask": [t in places for t in tokens],
                "loss_mask": [t in places and weights[t] != 0 for t in tokens],
            }
        start += length


@pytest.mark.parametrize("how", [{}, {"export": True}, {"exporter": False}], ids=str)
def test_rollout_and_current_are_what_the_trainer_held_token_by_token(tmp_path: Path, how: dict[str, Any]) -> None:
    trace = drive(tmp_path / "run", strict=True, **how)
    wanted = [row for held in trace["held"] for row in expected(held)]
    recorded = {row["sequence_id"]: row for row in rows_of(tmp_path / "run").iter_rows(named=True)}
    assert len(wanted) == len(recorded) == 3 * 5  # of six, one was sampled by a frozen model
    for row in wanted:
        own = recorded[row["sequence_id"]]
        assert (
            own["token_ids"] == row["token_ids"] and own["mask"] == row["mask"] and own["loss_mask"] == row["loss_mask"]
        )
        for name in ("rollout_logprobs", "current_logprobs", "entropy", "advantages"):
            assert np.array_equal(np.float32(own[name]), np.asarray(row[name], np.float32)), name
        assert own["old_logprobs"] is None and own["minibatch"] == 0 and own["trainer_version"] == own["step"] - 1


def test_tokens_taken_out_of_the_loss_were_sampled_all_the_same(tmp_path: Path) -> None:
    drive(tmp_path / "run", strict=True)
    rows = rows_of(tmp_path / "run").with_columns(
        out=pl.col("mask").list.sum().cast(int) - pl.col("loss_mask").list.sum().cast(int)
    )
    assert sorted(rows.filter(step=1)["out"]) == [0, 0, 0, 0, 2]


def test_facts_of_the_orchestrator_join_the_trainers_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = drive(tmp_path / "run", lag=1, strict=True)
    rows = records_of(tmp_path / "run")
    assert len(rows) == 3 * 5 and rows["sequence_id"].n_unique() == 3 * 5
    advantage_of = {row["sequence_id"]: row["advantages"][0] for row in rows_of(tmp_path / "run").iter_rows(named=True)}
    for row in rows.iter_rows(named=True):
        number = round(advantage_of[row["sequence_id"]] * 3 + 2.5)
        assert row["reward"] == number / 4
        assert row["group_id"] == f"{row['step']}-group-{number // 2}"
        assert row["finish_reason"] == ("stop" if number % 2 else "max_turns")
        assert row["rollout_version_min"] == max(0, row["step"] - 2)
    assert len(trace["batch"]) == 3


def test_orchestrator_and_trainer_meet_when_they_are_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATIOSCOPE_LAUNCH", "one start")
    drive(tmp_path / "run", orchestrator=False, strict=True)
    with monkeypatch.context() as patch:  # the orchestrator's process: nothing of a trainer in it
        patch.setattr("ratioscope.collectors.adapters.prime_rl.PrimeRecorder.micro_batch_done", lambda self, call: None)
        drive(tmp_path / "run", strict=True)
    rows = records_of(tmp_path / "run")
    assert len(rows) == 3 * 5
    assert rows["reward"].null_count() == rows["total/kl_k3"].null_count() == 0
    assert (ratioscope.open_run(tmp_path / "run").metrics()["total/sequences"] == 5).all()


def test_ranks_write_their_own_sequences_under_ids_that_do_not_clash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATIOSCOPE_LAUNCH", "one start")
    drive(tmp_path / "run", ranks=Ranks(rank=0, data_parallel=2), strict=True)
    drive(tmp_path / "run", ranks=Ranks(rank=1, data_parallel=2), orchestrator=False, strict=True)
    rows = records_of(tmp_path / "run")
    assert rows["sequence_id"].n_unique() == len(rows) == 3 * 5
    assert rows["reward"].null_count() == 0 and set(rows_of(tmp_path / "run")["rank"]) == {0, 1}


def test_a_context_parallel_copy_writes_nothing(tmp_path: Path) -> None:
    drive(tmp_path / "run", ranks=Ranks(rank=1, cp=2), orchestrator=False, strict=True)
    assert not (tmp_path / "run").exists()


def test_training_is_the_same_to_the_bit_with_and_without(tmp_path: Path) -> None:
    assert repr(drive(tmp_path / "run")) == repr(drive(None))
    assert len(rows_of(tmp_path / "run")) == 3 * 5


def test_absent_old_and_sent_weights_are_noted(tmp_path: Path) -> None:
    drive(tmp_path / "run", strict=True)
    events = ratioscope.open_run(tmp_path / "run").events["event"].to_list()
    assert events.count("no_old_logprobs") == 1 and events.count("weight_sync") == 3


@pytest.mark.usefixtures("patient")
def test_our_scalars_reach_the_trainers_own_monitors(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", steps=6, orchestrator=False, scalars=True)
    assert any("ratioscope/total/kl_k3" in row for _, row in trace["logs"])
    assert len(trace["logs"]) == 12 and all("step" in row for _, row in trace["logs"])


def test_a_trainer_that_resumes_says_so(tmp_path: Path) -> None:
    drive(tmp_path / "run", resume="step_7", strict=True)
    assert "resume" in ratioscope.open_run(tmp_path / "run").events["event"].to_list()


def test_detach_restores_every_name_also_where_it_was_imported(tmp_path: Path) -> None:
    def during() -> None:
        export = sys.modules["prime_rl.trainer.rl.token_export"]
        sys.modules["prime_rl.trainer.rl.train"] = module = type(export)("prime_rl.trainer.rl.train")
        module.setup_token_exporter = export.setup_token_exporter  # type: ignore[attr-defined]
        attached = ratioscope.attach("prime_rl", tmp_path / "run")
        names = [(export, "setup_token_exporter"), (module, "setup_token_exporter"), (export.TokenExporter, "export")]
        assert all(hasattr(getattr(owner, name), MARK) for owner, name in names)
        attached.detach()
        assert not any(hasattr(getattr(owner, name), MARK) for owner, name in names)

    drive(None, during=during)


def test_a_version_without_what_is_needed_is_refused_and_trains(tmp_path: Path) -> None:
    def during() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(sys.modules["prime_rl.trainer.rl.loss"], "compute_loss")
            attached = ratioscope.attach("prime_rl", tmp_path / "run")
        assert attached.refused is not None and "compute_loss" in attached.refused

    drive(None, during=during)
    assert not (tmp_path / "run").exists()


def test_both_sides_at_the_sampling_mask_are_those_that_the_loss_centers_with(tmp_path: Path) -> None:
    """The arguments of compute_loss in autumn 2026: a row for each token; at padding -inf for the sampler, 0 for the trainer."""
    lengths, draw = [4, 3], torch.Generator().manual_seed(1)
    ids = torch.arange(21).reshape(1, 7, 3)
    ids[0, 2, 2] = -1
    sampler, train = (torch.randn(7, 3, generator=draw).log_softmax(-1) for _ in range(2))
    sampler[2, 2], train[2, 2] = -torch.inf, 0.0
    flat = torch.full((1, 7), -1.0)
    mask = torch.tensor([[False, True, True, True, False, True, True]])
    names = [[f"env{place}"] for place in range(7)]
    batch = {
        "input_ids": ids[..., 0].clone(), "inference_logprobs": flat, "loss_mask": mask, "advantages": flat,
        "env_names": names, "sampling_mask": ids,
    }  # fmt: skip
    losses = Losses(dims=(None, None))
    losses.begin(1)
    losses.receive([batch])
    given = {"trainer_logprobs": torch.split(flat[0], lengths)}
    sides = {
        "trainer_mask_logprobs": torch.split(train, lengths),
        "inference_mask_logprobs": torch.split(sampler, lengths),
    }
    trained = losses.computed({**given, **sides})
    assert trained is not None
    packed = PackedSequences.of_tensors(batch, lengths)
    rows = packed_rows(packed, batch, trained.output, "1-0-0", trained.heads)
    cuts = [slice(1, 4), slice(5, 7)]
    for name, values in (("topk_ids", ids[0]), ("rollout_topk_logprobs", sampler), ("current_topk_logprobs", train)):
        assert all(torch.equal(own, values[cut]) for own, cut in zip(rows[name], cuts, strict=True)), name
    with ratioscope.Collector(tmp_path / "run", writer="thread", strict=True) as collector:
        collector.log(step=1, **rows)
    found = support_of(ratioscope.open_run(tmp_path / "run"), 1, "total")
    assert len(found) == 5 and (found.ids[1] >= 0).sum() == 2  # the padding is no token
    for part in ({}, {"trainer_mask_logprobs": None}, {"inference_mask_logprobs": torch.split(sampler, lengths)}):
        losses.receive([batch])
        bare = losses.computed({**given, **part})
        assert bare is not None and len(bare.heads) < 2
        assert "current_topk_logprobs" not in packed_rows(packed, batch, bare.output, "1-0-0", bare.heads)
    wide = {**batch, "sampling_mask": ids[..., :2]}
    assert "topk_ids" not in packed_rows(packed, wide, trained.output, "1-0-0", trained.heads)
