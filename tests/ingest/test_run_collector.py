"""What a Collector was given is what open_run finds."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal
from support import real_runs, run_folders

from ratioscope import Collector, open_run
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.frame import metric_frame

STALE = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=5, rows=8)
STEPS = run_folders.by_step(STALE)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def log(collector: Collector, rows: pa.Table, **changes: Any) -> None:
    """Logs the rows of a step as ragged lists."""
    table = rows.to_pydict()
    lists: dict[str, Any] = {name: [np.asarray(row, np.float32) for row in table[name]] for name in POLICIES}
    collector.log(
        step=table["step"][0],
        minibatch=0,
        sequence_ids=table["sequence_id"],
        group_ids=table["group_id"],
        rewards=table["reward"],
        token_ids=[np.asarray(row, np.int32) for row in table["token_ids"]],
        advantages=[row[0] for row in table["advantages"]],
        rollout_versions=table["rollout_version_min"],
        trainer_version=table["trainer_version"][0],
        **lists,
        **changes,
    )


POLICIES = ("rollout_logprobs", "old_logprobs", "current_logprobs")


def test_a_collected_run_opens_with_the_metrics_of_its_rows(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", trainer="fake 1.0", config={"beta": 0.1}, name="tonight") as collector:
        for number, rows in enumerate(STEPS):
            log(collector, rows)
            collector.event("weight_sync", 14 + 2 * number, "v2")
    run = open_run(tmp_path / "run")
    assert run.name == "tonight" and run.info["config"] == {"beta": 0.1}
    assert run.steps == [14, 16, 18, 20, 22] and not run.quarantined and not run.notes and run.uncommitted == []
    assert run.conservation.offered == run.conservation.written == len(STALE) and run.conservation.pending == 0
    assert (
        run.events.filter(event="weight_sync")["step"].to_list() == run.steps
        and run.writers["closed"].null_count() == 0
    )
    frame = pl.DataFrame(statistics(STALE))
    # Entropy was not logged, and what needs it is null.
    expected, found = metric_frame(frame), run.metrics()
    shared = [name for name in found.columns if found[name].null_count() == 0]
    assert len(shared) > 100
    assert_frame_equal(found.select(shared), expected.select(shared), rel_tol=1e-9)
    ids = run.sequences(22)["sequence_id"].to_list()
    assert ids == STEPS[-1]["sequence_id"].to_pylist()
    assert run.sequence(22, ids[0])["token_id"].to_list() == STEPS[-1]["token_ids"][0].as_py()


def test_a_run_is_followed_while_it_is_collected(tmp_path: Path) -> None:
    collector = Collector(tmp_path / "run")
    log(collector, STEPS[0])
    assert collector.flush()
    run = open_run(tmp_path / "run")
    assert run.steps == [14] and run.writers["closed"].null_count() == 1
    for rows in STEPS[1:]:
        log(collector, rows)
        assert collector.flush() and run.refresh()
        assert run.steps[-1] == rows["step"][0].as_py()
        assert_frame_equal(run.metrics(), open_run(tmp_path / "run").metrics())
    assert collector.close() is not False
    assert run.refresh() and run.writers["closed"].null_count() == 0


def test_what_the_collector_dropped_is_told(tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        log(collector, STEPS[0])
        log(collector, STEPS[1], mask=np.ones((3, 2)))  # of no shape that fits
        log(collector, STEPS[2])
    run = open_run(tmp_path / "run")
    assert run.steps == [14, 18]
    assert run.dropped["sequences"] == collector.counts.sequences.dropped > 0
    assert run.conservation.offered == collector.counts.sequences.offered and run.conservation.pending == 0
    assert run.drops["step"].to_list() == [16]


def test_a_resumed_collector_is_a_new_attempt(tmp_path: Path) -> None:
    for steps in (STEPS[:3], STEPS[2:]):
        with Collector(tmp_path / "run") as collector:
            for rows in steps:
                log(collector, rows)
    run = open_run(tmp_path / "run")
    assert run.steps == [14, 16, 18, 20, 22] and run.writers["attempt"].to_list() == [0, 1]
    assert [(shadow.first_step, shadow.by) for shadow in run.shadowed] == [(18, 1)]
    assert run.metrics()["mismatch/sequences"].to_list() == [8] * 5
