"""One state of a run, told by every face in the same word: live, ended, silent or dead."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import real_runs, run_folders
from support.pages_open import Open, html, plain
from support.run_folders import FakeWriter

from ratioscope.app.cli import main
from ratioscope.app.cli.watching.looks import Watched
from ratioscope.app.dashboard.model.served_folder import Summaries
from ratioscope.app.documents.material import material
from ratioscope.app.documents.report import markdown_report
from ratioscope.app.export.wandb.sync import Sync
from ratioscope.app.export.wandb.sync_record import Destination, SyncRecord
from ratioscope.app.pages.folder import ListedRun
from ratioscope.app.pages.runs import rows_of
from ratioscope.app.presentation.run_state import LIVES, Life
from ratioscope.ingest.commits.liveness import SILENT_SECONDS
from ratioscope.ingest.run import open_run
from ratioscope.layout import OPEN
from ratioscope.process import here, process_start

STEPS = run_folders.by_step(run_folders.few(real_runs.records("trl_vllm_stale4"), steps=3, rows=3))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run_of(root: Path, life: Life, pid: int) -> Path:
    """pid: of the writer's process, whose life is not looked at in a silent run."""
    writer = FakeWriter(root, clock=time.time() - (SILENT_SECONDS + 60 if life == "silent" else 30))
    (root / "commits").mkdir(parents=True)
    run_folders.write_run_file(root)
    known = here()
    host, started = ("another" if life == "silent" else known.host), process_start(pid)
    writer.say(
        kind=OPEN,
        writer=writer.writer,
        rank=0,
        attempt=0,
        pid=pid,
        started=started,
        host=host,
        namespace=known.namespace,
    )
    for rows in STEPS:
        writer.step(rows)
    if life == "ended":
        writer.close()
    return root


class Told:
    """A session of W&B that keeps the summary."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def summary(self, name: str, value: str) -> None:
        self.kept[name] = value

    def log(self, *row: object) -> None: ...
    def alert(self, *words: object) -> None: ...


@pytest.mark.parametrize("life", LIVES)
def test_every_face_says_the_state_of_a_run_in_the_same_word(
    tmp_path: Path, opened: Open, capsys: pytest.CaptureFixture[str], life: Life
) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    root = run_of(tmp_path / "runs" / "run", life, os.getpid() if life == "live" else process.pid)
    assert main(["info", str(root), "--json"]) == 0 and json.loads(capsys.readouterr().out)["state"] == life
    assert main(["info", str(root)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert next(words[1].rstrip(",") for words in lines if words[:1] == ["state"]) == life
    assert Watched(root).look().state.life == life
    known = ListedRun("run", None, Summaries().state(str(root), here(), time.time()))
    assert life in rows_of([known])["state"][0]
    file = tmp_path / "run.prom"
    assert main(["sync", str(root), "--to", f"prometheus:{file}"]) == 0
    assert f'ratioscope_run_state{{run="{open_run(root).name}"}} {float(LIVES.index(life))}' in file.read_text()
    session = Told()
    work = Sync(open_run(root), Destination("p", None, None, True, False), SyncRecord(), tmp_path / "sync" / "record")
    work.file.parent.mkdir()
    work.send(session, ended=True)  # type: ignore[arg-type]
    assert session.kept == {"run_state": life} and not work.state_is_due
    report = markdown_report(material(open_run(root), text=False))
    assert f"- **state**: {life}" in report
    assert (f"state | {life}" in report or report.count(f"{life} at ") > 1) == (life in ("silent", "dead")), "its head"
    writers = open_run(root).writers
    assert (writers["state"] == life).all() == (life in ("silent", "dead"))
    app = opened("record", root)
    assert f"collector <b>{life} (1 writer)" in html(app) and f"{life}" in plain(app)
    assert " ago" not in html(app), "an age that stands still"
    listed = next(table.value for table in app.dataframe if "writer" in table.value)
    assert [*listed["state"]] == [life] and "ended" not in listed, "one state of a writer, and no other word beside it"
    assert any(button.key == "pause" for button in app.button) == (life in ("live", "silent"))


def test_prometheus_is_told_when_a_run_dies_that_writes_no_more(tmp_path: Path) -> None:
    file = tmp_path / "run.prom"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        root = run_of(tmp_path / "run", "live", process.pid)
        assert main(["sync", str(root), "--to", f"prometheus:{file}"]) == 0
        assert 'run_state{run="run"} 1.0' in file.read_text()
    assert main(["sync", str(root), "--to", f"prometheus:{file}"]) == 0
    assert 'run_state{run="run"} 3.0' in file.read_text()
