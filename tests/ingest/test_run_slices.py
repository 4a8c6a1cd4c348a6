"""Ranks that hold slices of the sequences: each writes its own, the reader measures what they make together."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope import Collector, open_run

LENGTHS = (7, 4)
IDS = ["a", "b"]


def logprobs(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.normal(-1, 0.3, length).astype(np.float32) for length in LENGTHS]


def write_slices(root: Path, steps: int = 1) -> None:
    """Two ranks; the zig-zag of context parallelism gives rank 0 the ends and rank 1 the middle."""
    for rank in (0, 1):
        with Collector(root, rank=rank, attempt=0) as collector:
            for step in range(steps):
                owned = [
                    np.flatnonzero((np.arange(length) * 4 // length % 3 == 0) == (rank == 0)) for length in LENGTHS
                ]
                sides: dict[str, Any] = {
                    f"{policy}_logprobs": [
                        values[places] for values, places in zip(logprobs(step + k), owned, strict=True)
                    ]
                    for k, policy in ((0, "rollout"), (1, "old"))
                }
                collector.log(step=step, sequence_ids=IDS, positions=owned, **sides)


def write_whole(root: Path, steps: int = 1) -> None:
    with Collector(root, attempt=0) as collector:
        for step in range(steps):
            collector.log(step=step, sequence_ids=IDS, rollout_logprobs=logprobs(step), old_logprobs=logprobs(step + 1))


def test_slices_measure_what_the_whole_sequences_measure(tmp_path: Path) -> None:
    write_slices(tmp_path / "slices", steps=3)
    write_whole(tmp_path / "whole", steps=3)
    slices, whole = open_run(tmp_path / "slices"), open_run(tmp_path / "whole")
    found, expected = slices.metrics(), whole.metrics()
    assert found.columns == expected.columns
    for name in expected.columns:
        assert found[name].to_list() == pytest.approx(expected[name].to_list(), nan_ok=True), name
    assert found["mismatch/sequences"].to_list() == [2, 2, 2]
    assert any("parts or facts of the sequences" in note for note in slices.notes)
    tokens = slices.sequence(1, "a")
    assert tokens["rollout_logprob"].to_list() == pytest.approx(logprobs(1)[0].tolist())


def test_the_slices_of_a_rank_that_wrote_nothing_are_set_aside_and_counted(tmp_path: Path) -> None:
    write_slices(tmp_path / "run")
    for left in (tmp_path / "run").glob("*/**/r00001-*"):
        left.unlink()
    metrics = open_run(tmp_path / "run").metrics()
    assert metrics["mismatch/non_finite"][0] > 0
    assert metrics["mismatch/tokens"][0] == sum(
        int((np.arange(length) * 4 // length % 3 == 0).sum()) for length in LENGTHS
    )


def test_versions_that_another_process_knows_reach_the_lag_slice(tmp_path: Path) -> None:
    """An engine's process logs versions and replicas, the trainer's both sides of the gap and its own version."""
    run = tmp_path / "run"
    with Collector(run, rank=0, attempt=0) as manager, Collector(run, rank=1, attempt=0) as trainer:
        for step in (3, 4):
            manager.log(
                step=step,
                sequence_ids=IDS,
                rollout_logprobs=logprobs(step),
                rollout_versions=[step - 1, step - 3],
                replica=["x", "y"],
            )
            trainer.log(
                step=step,
                sequence_ids=IDS,
                rollout_logprobs=logprobs(step),
                old_logprobs=logprobs(step + 1),
                trainer_version=step - 1,
            )
    found = open_run(run).metrics(by=("lag",))
    assert dict(found.select("lag", "mismatch/sequences").rows()) == {"0": 2.0, "2": 2.0}
    assert open_run(run).metrics(by=("replica",))["replica"].to_list() == ["x", "y"]
    assert open_run(run).metrics()["mismatch/sequences"].to_list() == [2, 2]
