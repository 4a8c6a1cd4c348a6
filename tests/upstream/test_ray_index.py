"""`ratioscope index --engine ray` on a real local Ray cluster of three nodes. Needs an importable ray 2.60; skipped otherwise."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.unindexed import CHOSEN, SLICES, alone, alone_corrected, caches, contents, holds, indexed, ten_steps

from ratioscope import open_run
from ratioscope.app.cli import OK, UNREADABLE, main
from ratioscope.errors import SourceError
from ratioscope.ingest.indexing.index import index
from ratioscope.ingest.indexing.ray_cluster import RayCluster, open_cluster
from ratioscope.ingest.statistics import row_statistics

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

ray = pytest.importorskip("ray", reason="the ray package is not importable here")
cluster_utils = pytest.importorskip("ray.cluster_utils", reason="the ray package is not importable here")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes, each with a raylet and a CPU of its own."""
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        made.add_node(num_cpus=1)
        made.add_node(num_cpus=1)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture(autouse=True)
def disconnected() -> Iterator[None]:
    yield
    ray.shutdown()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(row_statistics, "SEGMENT_STEPS", 4)
    return ten_steps(tmp_path / "run")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    return caches(tmp_path, monkeypatch)


def test_a_cluster_gives_the_bytes_of_a_reader_that_works_alone(
    run: Path, cluster: Any, kept: Callable[[str], Path]
) -> None:
    expected = alone(run, kept("alone"))
    cache, engine = kept("index"), open_cluster(cluster.address)
    assert engine.capacity == 6
    done = indexed(run, engine)
    assert (done.steps, done.computed, done.lost, done.failed) == (20, 20, 0, {})
    assert holds(cache, expected)
    assert not ray.is_initialized(), "the engine closed the connection that it had made"


def test_killed_workers_and_a_removed_node_lose_no_step(run: Path, cluster: Any, kept: Callable[[str], Path]) -> None:
    expected = alone(run, kept("alone"))
    cache, killed, removed = kept("index"), set[int](), list[Any]()
    node = cluster.add_node(num_cpus=1)

    def harm(done: int, total: int) -> None:
        if done in (2, 12):
            killed.update(_killed_workers())
        if done == 6 and not removed:
            removed.append(node)
            cluster.remove_node(node, allow_graceful=False)

    done = indexed(run, open_cluster(cluster.address), progress=harm)
    assert killed and removed and done.failed == {} and holds(cache, expected)


def test_an_index_that_was_interrupted_on_a_cluster_goes_on_there(
    run: Path, cluster: Any, kept: Callable[[str], Path]
) -> None:
    expected = alone(run, kept("alone"))
    cache = kept("index")

    def interrupt(done: int, total: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        indexed(run, open_cluster(cluster.address), progress=interrupt)
    assert len(contents(cache)) >= 3
    assert indexed(run, open_cluster(cluster.address)).computed == 14
    assert holds(cache, expected)


def test_the_verb_uses_the_cluster_of_the_address_and_leaves_a_connection_that_was_there(
    run: Path, cluster: Any, kept: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    kept("index")
    ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
    assert main(["index", str(run), "--engine", "ray", "--address", cluster.address]) == OK
    assert "computed 10 steps" in capsys.readouterr().out
    assert ray.is_initialized()


def test_a_cluster_without_a_cpu_is_an_error_and_what_ended_is_kept(
    run: Path, cluster: Any, kept: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept("index")
    engine = open_cluster(cluster.address)
    monkeypatch.setattr("ratioscope.ingest.indexing.ray_cluster._PATIENCE", 0.0)
    monkeypatch.setattr(RayCluster, "_cpus", lambda self: 0)
    with pytest.raises(SourceError, match="has no CPU: add a node"), closing(engine):
        index(open_run(run), engine, SLICES)


def test_an_address_where_no_cluster_is_gives_a_sentence(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(run), "--engine", "ray", "--address", "127.0.0.1:9"]) == UNREADABLE
    assert "127.0.0.1:9: no Ray cluster answers" in capsys.readouterr().err


def _killed_workers() -> list[int]:
    """Kills the processes that carry out tasks, by SIGKILL."""
    names = {int(each.name): _name(each) for each in Path("/proc").iterdir() if each.name.isdigit()}
    workers = [pid for pid, name in names.items() if name.startswith("ray::_one")]
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    return workers


def _name(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:  # it has ended
        return ""


def test_a_cluster_gives_the_effects_of_corrections_that_the_page_keeps(
    run: Path, cluster: Any, kept: Callable[[str], Path]
) -> None:
    expected, cache = alone_corrected(run, kept("alone")), kept("index")
    killed = set[int]()

    def harm(done: int, total: int) -> None:
        if done == 3:
            killed.update(_killed_workers())

    with closing(open_cluster(cluster.address)) as engine:
        done = index(open_run(run), engine, progress=harm, corrections=CHOSEN)
    assert killed and (done.steps, done.computed, done.failed) == (20, 20, {})
    assert len(expected) == len(CHOSEN) and expected.items() <= contents(cache).items()
