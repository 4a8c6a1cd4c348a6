"""A writer's process is called gone only by who can know: of a writer in another container nobody says that it has ended."""

import os
from pathlib import Path

import pytest
from support.run_folders import FakeWriter
from support.waiting import ended_pid

from ratioscope.collectors.writing.joining import place_in_run
from ratioscope.errors import ConfigError
from ratioscope.ingest.commits.catalog import Catalog
from ratioscope.ingest.commits.liveness import PRESUMED_ENDED_SECONDS, at_work
from ratioscope.ingest.files.parquet_files import ParquetFiles
from ratioscope.process import Process, here

HERE = here()
ELSEWHERE = "pid:[1]"


@pytest.fixture(scope="module")
def ended() -> int:
    return ended_pid()


def _opened(root: Path, **of: object) -> FakeWriter:
    """A run with one writer of rank 0, which has said that it opened."""
    (root / "commits").mkdir(parents=True)
    writer = FakeWriter(root, "r00000-here-1-aaaaaa", 0)
    (root / "run.json").write_text('{"schema_version": 1}')
    own = {"host": HERE.host, "namespace": HERE.namespace, "pid": os.getpid(), **of}
    writer.say(kind="open", writer=writer.writer, rank=0, attempt=0, launch="process:another:1:0", **own)
    return writer


def _at_work(root: Path, now: float) -> list[str]:
    catalog = Catalog(root, ParquetFiles(root))
    catalog.refresh()
    return at_work(catalog.writers, HERE, now)


def test_a_process_is_gone_only_where_its_number_is_one_of_ours(ended: int) -> None:
    own = Process(HERE.host, os.getpid(), HERE.started(os.getpid()), HERE.namespace)
    assert own.life(HERE) == "alive"
    assert Process(HERE.host, ended, None, HERE.namespace).life(HERE) == "gone"
    assert Process(HERE.host, os.getpid(), "1", HERE.namespace).life(HERE) == "gone", "another process has its number"
    for host, namespace in ((HERE.host, ELSEWHERE), (HERE.host, None), ("other", HERE.namespace)):
        assert Process(host, ended, None, namespace).life(HERE) == "unknown"


def test_a_writer_in_another_container_of_this_host_is_waited_for_until_it_is_silent(
    tmp_path: Path, ended: int
) -> None:
    now = _opened(tmp_path / "run", namespace=ELSEWHERE, pid=ended).clock
    assert "another container" in _at_work(tmp_path / "run", now + 60)[0]
    assert _at_work(tmp_path / "run", now + PRESUMED_ENDED_SECONDS) == []


def test_a_writer_of_these_processes_is_waited_for_as_long_as_it_runs(tmp_path: Path, ended: int) -> None:
    now = _opened(tmp_path / "gone", pid=ended).clock
    assert _at_work(tmp_path / "gone", now) == []
    now = _opened(tmp_path / "alive").clock
    assert "is alive" in _at_work(tmp_path / "alive", now + 2 * PRESUMED_ENDED_SECONDS)[0]


def test_the_number_of_a_process_in_another_container_is_not_taken_for_one_here(tmp_path: Path) -> None:
    """A container that is started again has the same few numbers: its first writer must not be refused for ever."""
    _opened(tmp_path / "own", pid=os.getppid())
    with pytest.raises(ConfigError, match="is recording another start"):
        place_in_run(tmp_path / "own", 0)
    _opened(tmp_path / "other", pid=os.getppid(), namespace=ELSEWHERE)
    assert place_in_run(tmp_path / "other", 0).attempt == 1
