"""An import that was interrupted goes on behind its last whole unit, and makes the run that it would have made at once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal
from support.imported import imported, rejected, rows_of

from ratioscope import open_run
from ratioscope.app.upkeep import import_units
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.maintenance.verify import verify

STEPS, ROWS = 3, 2
UNIT = 2 * ROWS
"""Tokens of a step: each step is a unit."""
KILLED = """
import os, signal, sys
import pandas  # pyarrow loads it on first use
from ratioscope.app.cli import import_report, main, terminal
from ratioscope.app.upkeep import import_units, importing
from ratioscope.collectors.writing import parquet_sink
from ratioscope.collectors.writing.log_appender import LogAppender
from ratioscope.ingest.importers import joining, reading
import_units.TOKENS = int(sys.argv[1])
first, *arguments = sys.argv[2:]
point = int(first)

def told(*words):
    print(*words, flush=True)

def ends_at(point):
    calls = [0]
    def counted(own):
        def call(*given):
            calls[0] += 1
            if calls[0] == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return own(*given)
        return call
    LogAppender.say, import_units.Units._say = counted(LogAppender.say), counted(import_units.Units._say)
    os._exit(main(arguments))

while True:  # each import is a child of this process, which has loaded what an import loads and runs one thread
    output = f"{arguments[-1]}-{point}"
    child = os.fork()
    if not child:
        arguments[-1] = output
        ends_at(point)
    if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        break
    child = os.fork()
    if not child:
        arguments[-1] = output
        ends_at(0)
    told('killed at', point, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    point += 1
"""


def dump(folder: Path, steps: int = STEPS, *, ids: bool = False, value: float = -0.5) -> Path:
    """A file of rows of these steps, one of which is rejected. value: the first log-prob of step 1."""
    folder.mkdir(exist_ok=True)
    rows: list[dict[str, Any]] = []
    for step in range(steps):
        first = value if step == 1 else -0.5
        sound = {"step": step, "rollout_logprobs": [first, -0.25], "old_logprobs": [-0.5 - step / 8, -1.0]}
        rows += [sound | ({"sequence_id": f"{step}-{number}"} if ids else {}) for number in range(ROWS)]
        rows += [{"step": step, "rollout_logprobs": [-1.0], "old_logprobs": [-1.0, -2.0]}] * (step == 1)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_units, "TOKENS", UNIT)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_units, "TOKENS", UNIT)
        assert imported(dump(folder / "dump"), folder / "run")[0] == 1
    return folder


def statistics(run: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in sorted((run / "statistics").rglob("*.parquet"))).sort_by(
        [(key, "ascending") for key in ("step", "gap", "slice", "key")]
    )


def assert_equal(run: Path, expected: Path) -> None:
    """Equal rows in equal files, statistics equal to the bit, equal rejected rows, as many writers, and nothing left behind."""
    assert rows_of(run) == rows_of(expected) and rejected(run) == rejected(expected)
    assert statistics(run).equals(statistics(expected))
    for folder in ("tokens", "statistics", "commits"):
        assert len(list((run / folder).rglob("*.*"))) == len(list((expected / folder).rglob("*.*")))
    assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in expected.iterdir())


def test_an_import_killed_at_any_commit_goes_on(undisturbed: Path, tmp_path: Path) -> None:
    arguments = ["import", str(undisturbed / "dump"), "-o", str(tmp_path / "run")]
    told = subprocess.run(
        [sys.executable, "-c", KILLED, str(UNIT), "1", *arguments], capture_output=True, text=True, timeout=600
    )
    lines = [line.split()[2:] for line in told.stdout.splitlines() if line.startswith("killed at")]
    points = {int(point): int(code) for point, code in lines}
    assert len(points) > 3 * STEPS and set(points.values()) == {1}, told.stderr[-500:]
    for point in points:
        assert_equal(tmp_path / f"run-{point}", undisturbed / "run")
    assert "goes on behind" in told.stderr and "begins anew" in told.stderr
    last = tmp_path / f"run-{max(points)}"
    assert_frame_equal(open_run(last).metrics(), open_run(undisturbed / "run").metrics(), check_exact=True)
    assert not open_run(last).notes and verify(last).sound and len(open_run(last).attempts) == 1


def interrupted(source: Path, run: Path, patch: pytest.MonkeyPatch, error: BaseException, *options: str) -> None:
    """An import that ends with this error in its last step."""
    own = Collector.log

    def log(self: Collector, *, step: int, **columns: Any) -> None:
        if step == STEPS - 1:
            raise error
        own(self, step=step, **columns)

    with patch.context() as during:
        during.setattr(Collector, "log", log)
        assert imported(source, run, *options)[0] not in (0, 1)
    assert not run.exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, os.strerror(28))], ids=["Ctrl-C", "a full disk"])
@pytest.mark.parametrize("ids", [True, False])
def test_an_import_that_was_ended_goes_on_and_writes_only_the_rest(
    error: BaseException, ids: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = dump(tmp_path / "dump", ids=ids)
    assert imported(source, tmp_path / "expected")[0] == 1
    interrupted(source, tmp_path / "run", monkeypatch, error)
    assert f"{2 * ROWS} rows are kept" in capsys.readouterr().err
    own, logged = Collector.log, list[int]()

    def noted(self: Collector, *, step: int, **columns: Any) -> None:
        logged.append(step)
        own(self, step=step, **columns)

    monkeypatch.setattr(Collector, "log", noted)
    assert imported(source, tmp_path / "run")[0] == 1
    assert logged == [2] and f"{2 * ROWS} rows of it are kept" in capsys.readouterr().err
    assert_equal(tmp_path / "run", tmp_path / "expected")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"value": -0.75}, "the source has changed"),
        ({"steps": 2}, "no rows"),
        ({"steps": 1}, "the source has fewer rows"),
        ({"options": ("--name", "other")}, "other options"),
    ],
    ids=["another value", "the end is gone", "a unit is gone", "another name"],
)
def test_a_source_that_changed_meanwhile_is_imported_anew(
    change: dict[str, Any],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    interrupted(dump(tmp_path / "dump"), tmp_path / "run", monkeypatch, KeyboardInterrupt())
    options = change.pop("options", ())
    source = dump(tmp_path / "dump", **change)
    code = imported(source, tmp_path / "run", *options)[0]
    said = capsys.readouterr().err
    assert code == int(change.get("steps") != 1) and (("begins anew" in said and words in said) or words == "no rows")
    expected = tmp_path / "expected" / "run"
    imported(source, expected, *options)
    assert_equal(tmp_path / "run", expected)
