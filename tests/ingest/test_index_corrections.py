"""`index --corrections`: on any engine the cache holds byte for byte the effects that the page's own job keeps."""

import os
import pickle
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.run_folders import FakeWriter
from support.unindexed import CHOSEN, Here, alone_corrected, at, caches, contents, ten_steps

from ratioscope import open_run
from ratioscope.app.cli import OK, USAGE, main
from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.indexing.index import CorrectionPlan, Indexed, index
from ratioscope.ingest.indexing.processes import Processes
from ratioscope.ingest.indexing.task import IndexTask, carried_out
from ratioscope.ingest.jobs.correction_results import CorrectionResults
from ratioscope.metrics.corrections.correction import CORRECTIONS


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    return caches(tmp_path, monkeypatch)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return ten_steps(tmp_path / "run")


def effects(run: Path, engine: object, **options: object) -> Indexed:
    with closing(engine):  # type: ignore[type-var]
        return index(open_run(run), engine, corrections=CHOSEN, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", [0, -1])
def test_whatever_step_ends_first_the_effects_are_those_of_the_page(
    run: Path, tmp_path: Path, kept: Callable[[str], Path], place: int
) -> None:
    expected = alone_corrected(run, tmp_path / "page")
    cache = kept("index")
    done = effects(run, Here(place=place))
    assert (done.steps, done.computed, done.lost, done.failed) == (20, 20, 0, {})
    assert len(expected) == len(CHOSEN) and expected.items() <= contents(cache).items()
    again = Here()
    assert effects(run, again).computed == 0 and not again.steps


def test_a_killed_process_loses_no_effect(run: Path, tmp_path: Path, kept: Callable[[str], Path]) -> None:
    expected = alone_corrected(run, tmp_path / "page")
    cache, engine, killed = kept("index"), Processes(2), list[int]()

    def kill(done: int, total: int) -> None:
        if not killed and engine.pids:
            killed.append(engine.pids[0])
            os.kill(killed[0], signal.SIGKILL)

    done = effects(run, engine, progress=kill)
    assert killed and done.failed == {} and expected.items() <= contents(cache).items()


def test_a_run_that_grew_has_only_its_new_step_computed(tmp_path: Path, kept: Callable[[str], Path]) -> None:
    kept("index")
    writer = FakeWriter(tmp_path / "run", "r00000-host-1-abcdef").open()
    for step in range(3):
        writer.step(at(step))
    effects(tmp_path / "run", Here())
    writer.step(at(3))
    engine = Here()
    effects(tmp_path / "run", engine)
    assert engine.steps == [3]


def test_a_damaged_file_is_set_aside_and_its_step_has_the_effect_of_the_other_rows(
    run: Path, kept: Callable[[str], Path]
) -> None:
    kept("index")
    (damaged,) = (run / "tokens" / "step=000000002").iterdir()
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    opened = open_run(run)
    with closing(Here()) as engine:
        done = index(opened, engine, corrections=CHOSEN)
    assert [each.path for each in opened.quarantined] == [f"tokens/step=000000002/{damaged.name}"]
    assert not done.failed and 2 not in opened.row_digests()


def test_a_task_travels_with_its_corrections_and_names_them_in_order(run: Path, kept: Callable[[str], Path]) -> None:
    kept("index")
    task: IndexTask = pickle.loads(pickle.dumps(next(iter(CorrectionPlan.of(open_run(run), CHOSEN).tasks()))))
    assert task.corrections == CHOSEN and task.slice == "corrections"
    assert carried_out(task).table == carried_out(task).table


def test_the_verb_computes_the_usual_corrections_and_a_trainers(
    run: Path, kept: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    cache = kept("index")
    assert main(["index", str(run), "--workers", "1", "--corrections", "usual,trl"]) == OK
    assert "computed 20 steps" in capsys.readouterr().out
    opened = open_run(run)
    results = CorrectionResults(CORRECTIONS[0], Cache(cache / "ratioscope" / "statistics"))
    assert results.ledger.frame(opened.row_digests())["step"].to_list() == opened.steps
    assert main(["index", str(run), "--corrections", "nobody"]) == USAGE
    assert "nobody" in capsys.readouterr().err
