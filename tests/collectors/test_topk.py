"""Top-k in the trainer: whatever is given, no sequence is lost for it, nothing is raised, and its budget and text="none" hold."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope import Budget, Collector, open_run
from ratioscope.ingest.analysis.support import support_of

SIDES = np.full((2, 3), -1.0, np.float32)
IDS = np.arange(12).reshape(2, 3, 2)
AT = np.full((2, 3, 2), -2.0)


class Odd:
    """A value of the trainer's that cannot be read."""

    def __len__(self) -> int:
        raise RuntimeError("no length")


@pytest.mark.parametrize(
    "given, said",
    [
        ({"rollout_topk_logprobs": AT}, "given without topk_ids; wanted the ids"),
        (
            {"topk_ids": IDS, "old_topk_logprobs": AT[:, :, :1]},
            "(3, 1) where topk_ids has (3, 2); wanted log-probs at each",
        ),
        ({"topk_ids": IDS[:, :2]}, "topk_ids has shape (2, 2, 2); wanted (2, 3 or more, k)"),
        ({"topk_ids": IDS[0]}, "or (6, k), or a list"),
        ({"topk_ids": IDS.ravel()}, "topk_ids has shape (12,); wanted"),
        ({"topk_ids": np.zeros((2, 3, 257), int)}, "257 alternatives a token; wanted 256 at most"),
        ({"topk_ids": [[list(range(257))] * 3] * 2}, "257 alternatives at a token; wanted 256 at most"),
        ({"topk_ids": [[[1]] * 3]}, "topk_ids has 1 items; wanted one for each of 2 sequences"),
        ({"topk_ids": [[[1]] * 2, [[1]] * 3]}, "sequence 0: topk_ids has 2 tokens; wanted the 3 of the sequence"),
        ({"topk_ids": [[["a"]] * 3] * 2}, "sequence 0: could not convert"),
        ({"topk_ids": [["a"] * 3] * 2}, "list of other things; wanted (tokens, k)"),
        ({"topk_ids": IDS + 0.5}, "a fraction; wanted ids of tokens"),
        ({"topk_ids": IDS + 2**31}, "wanted ids of tokens, int32"),
        ({"topk_ids": Odd()}, "topk_ids"),
        ({"topk_ids": {"a": 1}}, "topk_ids has shape ()"),
    ],
)
def test_top_k_that_does_not_fit_is_told_and_loses_no_sequence(
    given: dict[str, Any], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Collector(tmp_path / "run", writer="thread") as collector:
        collector.log(step=1, rollout_logprobs=SIDES, old_logprobs=SIDES, **given)
    assert collector.counts.sequences.written == 2 and collector.counts.failures == {"topk": 1}
    assert said in caplog.text and "No sequence was lost" in caplog.text
    assert open_run(tmp_path / "run").topk_size.rows < 2


def test_top_k_never_takes_the_room_of_log_probs_in_the_queue(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", writer="thread", queue_bytes=1000) as collector:
        wide = np.zeros((2, 3, 200), np.int64)
        collector.log(step=1, rollout_logprobs=SIDES, old_logprobs=SIDES, topk_ids=wide)
    assert collector.counts.sequences.written == 2 and collector.counts.failures == {"topk": 1}
    assert open_run(tmp_path / "run").topk_steps == []


def test_the_trainer_may_change_its_arrays_after_the_call(tmp_path: Path) -> None:
    ids, at = IDS.copy(), AT.copy()
    with Collector(tmp_path / "run") as collector:  # a process of its own
        collector.log(step=1, rollout_logprobs=SIDES, old_logprobs=SIDES, topk_ids=ids, old_topk_logprobs=at)
        ids[:], at[:] = 0, 0
    found = support_of(open_run(tmp_path / "run"), 1)
    assert (found.ids == IDS.reshape(-1, 2)).all() and (found.train == -2).all() and np.isnan(found.rollout).all()


def test_tensors_of_bfloat16_are_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    at = torch.tensor(AT, dtype=torch.bfloat16, requires_grad=True)
    with Collector(tmp_path / "run", writer="thread", strict=True) as collector:
        given: dict[str, Any] = {
            "topk_ids": torch.tensor(IDS),
            "rollout_topk_logprobs": at,
            "old_topk_logprobs": list(at),
        }
        collector.log(step=1, rollout_logprobs=SIDES, old_logprobs=SIDES, **given)
    found = support_of(open_run(tmp_path / "run"), 1)
    assert (found.ids == IDS.reshape(-1, 2)).all() and (found.rollout == -2).all() and (found.train == -2).all()


def logged(folder: Path, steps: int, **options: Any) -> Path:
    """Steps of 64 sequences of 50 tokens with 8 alternatives: some 100 KiB of top-k a step."""
    chance = np.random.default_rng(1)
    with Collector(folder, writer="thread", strict=True, **options) as collector:
        for step in range(steps):
            sides, size = -chance.random((64, 50)), (64, 50, 8)
            ids = chance.permuted(np.broadcast_to(np.arange(900_000_000, 900_000_008), size), axis=2)
            texts = [["hush"] * 50] * 64
            collector.log(
                step=step, rollout_logprobs=sides, old_logprobs=sides, token_ids=ids[:, :, 0], token_texts=texts,
                sequence_ids=[f"{step}-{row}" for row in range(64)], topk_ids=ids,
                rollout_topk_logprobs=-chance.random(size), old_topk_logprobs=-chance.random(size),
            )  # fmt: skip
    return folder


def test_top_k_has_a_budget_of_its_own_and_is_weighed_by_it(tmp_path: Path) -> None:
    run = open_run(logged(tmp_path / "run", 3, budget=Budget(topk_step_bytes=120_000)))
    assert run.size.rows == 3 * 64 and 0 < run.topk_size.bytes < 3 * 150_000
    for step in run.topk_steps:
        found = support_of(run, step)
        kept = len(np.unique(found.sequence))
        assert 16 < kept < 48 and found.stands_for[0] * kept == pytest.approx(64, rel=0.5)
    (event,) = run.events.filter(event="topk_left_out")["note"]
    assert "of 64 rows is left out for its budget" in event


def test_a_budget_of_nothing_and_text_none_record_no_top_k(tmp_path: Path) -> None:
    for name, options in (("budget", {"budget": Budget(topk_run_bytes=0)}), ("text", {"text": "none"})):
        run = logged(tmp_path / name, 1, **options)
        assert open_run(run).size.rows == 64 and not (run / "topk").exists()
    everything = b"".join(path.read_bytes() for path in (tmp_path / "text").rglob("*") if path.is_file())
    assert b"topk" not in everything


def test_a_run_without_top_k_has_the_bytes_that_it_had(tmp_path: Path) -> None:
    """The file of token rows of a call with top-k is that of the call without it."""
    files = []
    calls: dict[str, dict[str, Any]] = {"with": {"topk_ids": IDS, "old_topk_logprobs": AT}, "without": {}}
    for name, given in calls.items():
        with Collector(tmp_path / name, writer="thread", strict=True) as collector:
            collector.log(step=1, rollout_logprobs=SIDES, old_logprobs=SIDES, sequence_ids=["a", "b"], **given)
        (log,) = (tmp_path / name / "commits").glob("*.jsonl")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert sum(line["kind"] == "topk" for line in lines) == (name == "with")
        files.append(next((tmp_path / name / "tokens").rglob("*.parquet")).stat().st_size)
    assert files[0] == files[1]
