"""What `info` says of a run, and that several threads may read one while it grows."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import real_runs, run_folders
from support.run_folders import FakeWriter

from ratioscope import open_run
from ratioscope.ingest.analysis.feature_requirements import FEATURES
from ratioscope.ingest.analysis.info import info
from ratioscope.ingest.rows.slices import ON_DEMAND
from ratioscope.record import FIELDS

SMALL = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=6, rows=4)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_info_is_json_and_adds_up(tmp_path: Path) -> None:
    root = run_folders.write_run(tmp_path / "run", SMALL, writers=2, close=False)
    FakeWriter(root, "r00009-host-9-ffffff", 9).open().event("weight_sync", 12).drop(14, 3, 50, "queue full").close()
    (root / "tokens" / "notes.txt").write_text("hello")
    found = json.loads(json.dumps(info(open_run(root))))
    assert found["steps"] == 6 and (found["first_step"], found["last_step"]) == (12, 22)
    assert found["rows"] == len(SMALL) == found["written"] and found["tokens"] == sum(run_folders.lengths(SMALL))
    assert found["dropped"] == 3 and found["drops"][0]["reason"] == "queue full" and found["pending"] == 0
    assert found["bytes"] == sum(path.stat().st_size for path in root.rglob("*.parquet"))
    assert [event["event"] for event in found["events"]] == ["weight_sync"]
    assert [item["path"] for item in found["quarantined"]] == ["tokens/notes.txt"]
    assert found["gaps"] == ["mismatch", "total", "drift"] and "token texts" not in found["unavailable"]
    assert found["unavailable"]["by turn"] == "because turn is not on record; log turns"


def test_views_and_slices_name_columns_of_the_record() -> None:
    assert {column for view in FEATURES for column in view.columns} <= set(FIELDS)
    assert {column for made in ON_DEMAND.values() for column in made.columns} <= set(FIELDS)


def test_threads_may_read_a_run_while_another_refreshes_it(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path / "run", segment_steps=2).open()
    steps = run_folders.by_step(SMALL)
    writer.step(steps[0])
    run = open_run(tmp_path / "run")

    def read(turn: int) -> int:
        if turn % 3 == 0:
            run.refresh()
        frames = (run.metrics(), run.sequences(12), run.writers, run.distribution("token", "total"), run.events)
        assert run.quarantined == () and len(run.steps) >= len(frames[0]["step"]) - 6
        return len(frames[0])

    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(read, turn) for turn in range(12)]
        for rows in steps[1:]:
            writer.step(rows)
        sizes = [future.result() for future in reading]
    assert all(1 <= size <= 6 for size in sizes)
    run.refresh()
    assert len(run.metrics()) == 6
