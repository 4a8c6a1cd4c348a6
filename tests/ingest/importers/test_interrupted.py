"""An import that ends anywhere leaves nothing that a reader reads, and the next one makes the run that it would have made."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal
from support.imported import imported, rejected, rows_of
from support.sizes import FULL

from ratioscope import open_run
from ratioscope.ingest.files.run_tree import runs_below

FILES, ROWS = 3, 4
ENDS = """
import os, signal, sys
from ratioscope.app.cli import main
from ratioscope.app.cli import import_folder
from ratioscope.collectors.collector import Collector

place, call, when, name, *arguments = sys.argv[1:]
owner = {"log": Collector, "flush": Collector, "close": Collector, "replace": import_folder.os}[place]
own, calls = getattr(owner, place), [0]

def counted(*positional, **named):
    calls[0] += place != "replace" or os.fspath(positional[1]) == arguments[-1]
    is_now = calls[0] == int(call) and (place != "replace" or os.fspath(positional[1]) == arguments[-1])
    if is_now and when == "before":
        os.kill(os.getpid(), getattr(signal, name))
    found = own(*positional, **named)
    if is_now and when == "after":
        os.kill(os.getpid(), getattr(signal, name))
    return found

setattr(owner, place, counted)
sys.exit(main(arguments))
"""


def dump(folder: Path) -> Path:
    """Three files, one with a row that is rejected."""
    folder.mkdir()
    for step in range(FILES):
        sound = {"step": step, "rollout_logprobs": [-0.5, -0.25], "old_logprobs": [-0.5 - step / 8, -1.0]}
        rows = [sound | {"sequence_id": f"{step}-{number}"} for number in range(ROWS)]
        rows += [{"step": step, "rollout_logprobs": [-1.0], "old_logprobs": [-1.0, -2.0]}] * (step == 1)
        (folder / f"step_{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert imported(dump(folder / "dump"), folder / "run")[0] == 1
    return folder


ENDED = [
    ("log", 2, "after", "SIGKILL"),  # between two files
    ("close", 1, "before", "SIGKILL"),  # all is written, nothing ended
    ("replace", 1, "before", "SIGTERM"),  # the run is whole and has no name
    ("log", 1, "before", "SIGKILL"),  # nothing is written
    ("log", 2, "after", "SIGINT"),
    ("replace", 1, "before", "SIGKILL"),
]


@pytest.mark.parametrize(("place", "call", "when", "signal"), ENDED if FULL else ENDED[:3])
def test_an_import_that_ended_is_made_anew(
    place: str, call: int, when: str, signal: str, undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "run"
    arguments = ["import", str(undisturbed / "dump"), "-o", str(run)]
    ended = subprocess.run(
        [sys.executable, "-c", ENDS, place, str(call), when, signal, *arguments], capture_output=True, timeout=300
    )
    assert ended.returncode not in (0, 1), ended.stderr.decode()[-500:]
    assert not run.exists() and not runs_below(tmp_path / "runs").runs
    if signal != "SIGKILL":
        assert not list((tmp_path / "runs").iterdir())
    assert imported(undisturbed / "dump", run)[0] == 1
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["run"]
    assert_frame_equal(open_run(run).metrics(), open_run(undisturbed / "run").metrics())
    assert rows_of(run) == rows_of(undisturbed / "run") and rejected(run) == rejected(undisturbed / "run")


def test_an_import_that_ends_after_the_run_has_its_name_is_done(undisturbed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = ["import", str(undisturbed / "dump"), "-o", str(run)]
    ended = subprocess.run(
        [sys.executable, "-c", ENDS, "replace", "1", "after", "SIGKILL", *arguments], capture_output=True, timeout=300
    )
    assert ended.returncode == -9 and [path.name for path in tmp_path.iterdir()] == ["run"]
    assert rows_of(run) == rows_of(undisturbed / "run") and rejected(run) == rejected(undisturbed / "run")
    assert imported(undisturbed / "dump", run)[0] == 2
