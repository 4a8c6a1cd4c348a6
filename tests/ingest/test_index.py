"""`index`: on any engine, whatever dies meanwhile, the cache holds byte for byte what a reader computes alone."""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support import run_folders
from support.run_folders import FakeWriter
from support.unindexed import (
    SLICES,
    STEP,
    Here,
    alone,
    at,
    caches,
    contents,
    holds,
    indexed,
    ten_steps,
    without_statistics,
)

from ratioscope import open_run
from ratioscope.app.cli import OK, UNREADABLE, USAGE, main
from ratioscope.app.cli.commands import index as verb
from ratioscope.errors import SourceError
from ratioscope.ingest.indexing import slice_plan as plan_module
from ratioscope.ingest.indexing.index import ATTEMPTS, index
from ratioscope.ingest.indexing.processes import Processes
from ratioscope.ingest.indexing.slice_plan import SlicePlan
from ratioscope.ingest.indexing.task import IndexTask, TaskResult, carried_out
from ratioscope.ingest.statistics import row_statistics


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten steps: two blocks of four and one that may grow; from step 7 on, a later start recorded them again."""
    monkeypatch.setattr(row_statistics, "SEGMENT_STEPS", 4)
    return ten_steps(tmp_path / "run")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    return caches(tmp_path, monkeypatch)


def test_processes_give_the_bytes_of_a_reader_that_works_alone(run: Path, kept: Callable[[str], Path]) -> None:
    expected = alone(run, kept("alone"))
    cache, engine = kept("index"), Processes(2)
    loaded: set[str] = set()

    def look(done: int, total: int) -> None:
        for pid in engine.pids if done == total else ():
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
            loaded.update(name for name in ("pyarrow", "pandas") if any(f"/{name}/" in line for line in lines))

    done = indexed(run, engine, progress=look)
    assert "pyarrow" in loaded and "pandas" not in loaded  # pandas: 0.3 s and 50 MB for each process
    assert (done.steps, done.computed, done.lost, done.failed) == (20, 20, 0, {})
    assert done.tokens == 20 * sum(run_folders.lengths(STEP))
    assert holds(cache, expected)
    again = Here()
    assert indexed(run, again).computed == 0 and again.steps == []


def test_the_order_in_which_steps_end_changes_nothing(run: Path, kept: Callable[[str], Path]) -> None:
    expected = alone(run, kept("alone"))
    cache, engine = kept("index"), Here(place=-1)
    engine.capacity = 8
    assert indexed(run, engine).computed == 20 and engine.steps[0] == 7
    assert holds(cache, expected)


def test_a_process_that_is_killed_is_replaced_and_its_step_computed_again(
    run: Path, kept: Callable[[str], Path]
) -> None:
    expected = alone(run, kept("alone"))
    cache, engine = kept("index"), Processes(2)
    killed: list[int] = []

    def kill(done: int, total: int) -> None:
        if done in (2, 5) and len(killed) < 4:
            killed.extend(engine.pids)
            for pid in engine.pids:
                os.kill(pid, signal.SIGKILL)

    done = indexed(run, engine, progress=kill)
    assert len(killed) >= 2 and done.failed == {} and holds(cache, expected)


def test_what_an_interrupted_index_computed_is_not_computed_again(
    run: Path, kept: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = alone(run, kept("alone"))
    cache, first, second = kept("index"), Here(), Here()

    def interrupt(done: int, total: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        indexed(run, first, progress=interrupt)
    assert len(contents(cache)) == 3, "a block, and two steps"
    indexed(run, second)
    assert len(first.steps) == 6 and len(second.steps) == 14 and holds(cache, expected)


def test_a_kill_loses_nothing_that_was_saved(
    run: Path, kept: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "SAVE_EVERY", 0.0)
    cache, found = kept("index"), list[int]()
    indexed(run, Here(), progress=lambda done, total: found.append(len(contents(cache))))
    assert found[:5] == [1, 2, 3, 1, 2], "a full block takes the place of its steps"


def test_a_run_that_grows_has_only_its_new_steps_computed(run: Path, kept: Callable[[str], Path]) -> None:
    kept("index")
    indexed(run, Here())
    without_statistics(run, range(10, 12), attempt=1)
    engine = Here()
    indexed(run, engine)
    assert sorted(engine.steps) == [10, 10, 11, 11]


def test_a_step_that_fails_for_ever_is_named_and_the_others_are_kept(
    run: Path, kept: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept("index")
    failing = Here(lambda task, result: "MemoryError: no room" if task.step == 6 else result)
    monkeypatch.setattr(verb, "_opened", lambda *_: closing(failing))
    assert main(["index", str(run), "--json"]) == UNREADABLE
    printed = json.loads(capsys.readouterr().out)
    assert printed["failed"] == [{"slice": "all", "step": 6, "reason": "MemoryError: no room"}]
    assert (printed["steps"], printed["computed"]) == (10, 9) and failing.steps.count(6) == ATTEMPTS
    assert main(["index", str(run)]) == UNREADABLE
    out, err = capsys.readouterr()
    assert "step 6: MemoryError: no room" in out and "1 step could not be computed" in err
    failing.meanwhile = lambda task, result: result
    assert main(["index", str(run)]) == OK
    assert "computed 1 step" in capsys.readouterr().out


def test_a_damaged_file_is_set_aside_and_its_step_computed_without_it(run: Path, kept: Callable[[str], Path]) -> None:
    FakeWriter(run, "r00001-host-1-abcdef", rank=1).open().step(at(5, 9), with_statistics=False)
    sound = alone(run, kept("sound"))
    damaged = next(run.glob("tokens/step=000000005/r00001*"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-200])
    expected = alone(run, kept("alone"))
    cache = kept("index")
    found = open_run(run)
    engine = Here()
    done = index(found, engine, SLICES)
    assert done.failed == {} and [each.path for each in found.quarantined] == [damaged.relative_to(run).as_posix()]
    assert contents(kept("alone")) == expected
    found.metrics()
    damaged.write_bytes(content)
    kept("index")
    indexed(run, Here())
    assert sound.items() <= contents(cache).items(), "nothing is kept under the name of files that were not all read"


def test_a_reader_keeps_nothing_of_files_that_it_could_not_read(run: Path, kept: Callable[[str], Path]) -> None:
    kept("cache")
    damaged = next(run.glob("tokens/step=000000005/*"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-200])
    assert 5 not in open_run(run).metrics()["step"].to_list()
    damaged.write_bytes(content)
    assert 5 in open_run(run).metrics()["step"].to_list()


def test_a_machine_that_lacks_a_file_sets_nothing_aside(run: Path, kept: Callable[[str], Path]) -> None:
    """A machine may lack a mount: only what the caller cannot read either is damaged."""
    expected = alone(run, kept("alone"))
    cache = kept("index")
    seen: set[int] = set()

    def lacking(task: IndexTask, result: TaskResult) -> TaskResult:
        first = task.step not in seen
        seen.add(task.step)
        return TaskResult(result.table, ((task.files[0].path, "it is not there"),)) if first else result

    found = open_run(run)
    done = index(found, Here(lacking), SLICES)
    assert done.failed == {} and not found.quarantined and holds(cache, expected)


def test_a_task_is_refused_where_the_run_or_the_definitions_are_others(run: Path, tmp_path: Path) -> None:
    task = IndexTask(str(tmp_path / "elsewhere"), "name", 1, (), "all")
    with pytest.raises(SourceError, match=r"sees no run at .*elsewhere: put it where every machine sees it"):
        carried_out(task)
    with pytest.raises(SourceError, match=r"the caller 0.0 abc: install the same one"):
        carried_out(IndexTask(str(run), "name", 1, (), "all", "0.0 abc"))


def test_a_cache_that_keeps_nothing_is_an_error(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SourceError, match="nothing can be kept in .*make room there, or set XDG_CACHE_HOME"):
        indexed(run, Here())


def test_statistics_on_record_are_not_computed(
    tmp_path: Path, kept: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    kept("index")
    run_folders.write_run(tmp_path / "run", at(1))
    assert main(["index", str(tmp_path / "run"), "--workers", "1"]) == OK
    assert "nothing to compute" in capsys.readouterr().out
    assert main(["index", str(tmp_path / "run"), "--by", "colour"]) == USAGE
    assert "there is no slice 'colour'" in capsys.readouterr().err


def test_the_place_of_the_work_is_named_without_contradiction(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for options, wanted in (
        (["--engine", "ray"], "--engine ray needs the extra 'ray', which is not installed: pip install"),
        (["--engine", "ray", "--workers", "2"], "a Ray cluster uses all its CPUs"),
        (["--engine", "dask"], "--engine dask: wanted processes or ray"),
        (["--address", "node:6379"], "--address is that of a Ray cluster; add --engine ray"),
    ):
        assert main(["index", str(run), *options]) != OK
        assert wanted in capsys.readouterr().err


def test_the_index_says_which_loops_made_it(
    run: Path, kept: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    kept("index")
    assert indexed(run, Here()).loops == "numpy"
    assert main(["index", str(run), "--by", "group_id", "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["loops"] == "numpy"


def test_a_process_that_lacks_the_callers_loops_gives_the_same_bytes(run: Path, kept: Callable[[str], Path]) -> None:
    kept("index")
    task = next(SlicePlan.of(open_run(run), "token_id").tasks())
    assert task.loops == "numpy"
    assert carried_out(replace(task, loops="LLVM 0.0")) == carried_out(task)
