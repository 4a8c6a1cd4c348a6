"""What holds of a growing run on any store, whoever reads the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from polars.testing import assert_frame_equal

from ratioscope import layout, open_run
from ratioscope.app.cli import main as ratioscope
from ratioscope.ingest.remote import opening

from .two_writers import STEPS, record, writers


def demand_followed(folder: Path, url: str, publish: Callable[[], None], report: Path) -> int:
    """Opens, follows and reports the run of a folder by its URL. publish: puts the folder's state there.

    Returns the bytes that were received after the run had grown. Its log is so long that only the end of it is asked for again.
    """
    both = writers(folder)
    record(both, slice(2))
    for number in range(60):
        both[0].say(kind=layout.EVENT, event="weight_sync", step=1, note=f"number {number} " + "x" * 200)
    publish()
    run = open_run(url)
    mirror = opening.mirror_at(run.path)
    assert mirror is not None and run.place == url
    assert_frame_equal(run.metrics(), open_run(folder).metrics())
    assert not list((run.path / layout.TOKENS).rglob("*.parquet"))
    record(both, slice(2, len(STEPS)))
    both[0].close()
    publish()
    before = mirror.store.received
    mirror.follow(every=0)
    assert run.refresh() and run.steps == open_run(folder).steps and run.notes == open_run(folder).notes
    assert_frame_equal(run.metrics(), open_run(folder).metrics())
    step = run.steps[1]
    assert_frame_equal(run.sequences(step), open_run(folder).sequences(step))
    assert {path.parent.name for path in run.path.rglob("step=*/*.parquet")} == {f"step={step:09d}"}
    assert ratioscope(["report", url, "-o", str(report)]) == 0 and report.stat().st_size
    assert run.quarantined == ()
    return mirror.store.received - before
