"""What every test shares: in CI a skipped test is a failed one, so that a missing part cannot go unseen."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from support.sizes import FEW, FULL, MANY
from support.slow import ALONE, FIXTURES, QUICK, is_for_release, is_slow, may_be_for_release

from ratioscope.collectors.process import notice
from ratioscope.collectors.process.variables import VARIABLES
from ratioscope.collectors.writing.run_file import launch

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from support.browser import Chromium, Dashboard
    from support.pages_open import Open
    from support.pages_read import Read

os.environ.setdefault(
    "RATIOSCOPE_WRITER", "thread"
)  # a process each costs seconds; test_writer_process.py has it the usual way
os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch's second thread spins between operations as small as these
# how long an example takes, or takes to be made, says what else the machine does; in CI one commit has one answer
settings.register_profile(
    "ratioscope",
    max_examples=MANY if FULL else FEW,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="RATIOSCOPE_NO_SKIP" in os.environ,
)
settings.load_profile("ratioscope")
notice.PATIENCE = 10.0  # tests read the log right after the call, however busy the machine is
RUNNING = pytest.StashKey["Chromium"]()
BROWSED = pytest.StashKey[Path]()
"""The file of the last test that asked for the browser."""
MAY_SKIP = ("upstream", "device")
"""Markers of tests that may skip even in CI: they need a package or a device that CI does not have."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    expression, path = config.getoption("markexpr"), collection_path
    left_out = expression == QUICK and is_slow(path) or expression == ALONE and not may_be_for_release(path)
    return True if left_out else None


def pytest_itemcollected(item: pytest.Item) -> None:
    fixtures = set(getattr(item, "fixturenames", ()))
    if is_slow(item.path) or FIXTURES & fixtures:
        item.add_marker("slow")
    if is_for_release(item.path, fixtures, getattr(item, "obj", None)):
        item.add_marker("release")
    if "browser" in fixtures:
        item.add_marker(pytest.mark.flaky(reruns=1))  # on a starved machine, and said in the summary: RERUN


def pytest_collection_finish() -> None:
    """Collections of garbage visit the 850,000 objects of imported modules no more: a fifteenth of the tests' CPU time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    wanted = "RATIOSCOPE_NO_SKIP" in os.environ and not any(item.get_closest_marker(name) for name in MAY_SKIP)
    if wanted and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where nothing may skip: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _of_no_recorded_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test before this one, or the shell, left in the environment makes no test a process of a recorded job."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    launch.cache_clear()  # a process keeps the name of its start; a test is one of its own


@pytest.fixture(autouse=True)
def _own_main() -> Iterator[None]:
    """A page that a test draws without a browser takes the place of __main__, which processes that a later test spawns import."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the trainer's thread wait for the writer's, so that the machine's load does not decide which scalars are ready."""
    from ratioscope.collectors.collector import Collector

    ready = Collector.scalars

    def scalars(self: Collector, *arguments: Any, **named: Any) -> dict[str, float]:
        assert self.flush(60)
        return ready(self, *arguments, **named)

    monkeypatch.setattr(Collector, "scalars", scalars)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the edge runs lie in, each made by the first test that asks for it; nobody writes into one."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def opened(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens a page on runs, without a browser."""
    from support.pages_open import opener

    return opener(runs, monkeypatch)


@pytest.fixture
def read(runs: Path) -> Read:
    """Reads a page on runs as its function makes it, in a hundredth of the time that Streamlit takes."""
    from support.pages_read import reader

    return reader(runs)


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """A Chromium for the files that documents are: no dashboard is in it."""
    from playwright.sync_api import sync_playwright
    from support.browser import ARGUMENTS, chromium

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        yield running
        running.close()


@pytest.fixture
def browser(request: pytest.FixtureRequest) -> Iterator[Chromium]:
    """The browser of this process. The tabs of a test are closed after it: a page of the dashboard goes on drawing itself."""
    from support.browser import Chromium

    stash = request.config.stash
    if RUNNING not in stash:
        stash[RUNNING] = Chromium().__enter__()
    yield stash[RUNNING]
    stash[RUNNING].close_tabs()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Ends the browser before a file of tests without one: beside it no test could run a loop of asyncio."""
    if "browser" in getattr(item, "fixturenames", ()):
        item.config.stash[BROWSED] = item.path
    elif item.path != item.config.stash.get(BROWSED, None):
        _end_browser(item.config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    _end_browser(session.config)


def _end_browser(config: pytest.Config) -> None:
    if RUNNING in config.stash:
        config.stash[RUNNING].__exit__(None, None, None)
        del config.stash[RUNNING]


@pytest.fixture(scope="session")
def dashboards_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of the dashboards: statistics of a run that several files of tests serve are computed by the first."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def server(dashboards_cache: Path) -> Iterator[Dashboard]:
    """The server of every file of tests, because its start and its first page take 8 s of a processor; see `with_runs`."""
    from support.browser import Dashboard

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(dashboards_cache))
        started = Dashboard([]).__enter__()
    yield started
    started.__exit__(None, None, None)


@pytest.fixture(scope="module")
def dashboard(
    request: pytest.FixtureRequest, runs: Path, server: Dashboard, dashboards_cache: Path
) -> Iterator[Dashboard]:
    """The dashboard of the runs that a file of tests makes in SERVED; without SERVED that of the edge runs."""
    from support.edge_runs import RUNS, made

    makes = getattr(request.module, "SERVED", [partial(made, name=name) for name in RUNS])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(dashboards_cache))
        with server.with_runs([make(runs) for make in makes]) as served:
            yield served
