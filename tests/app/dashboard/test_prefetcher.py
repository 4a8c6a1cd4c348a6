"""What is made before anybody asks: of each run once, under the names that pages ask for, of a run that keeps nobody waiting."""

import time
from pathlib import Path
from queue import SimpleQueue

import pytest
import streamlit as st
from support.edge_runs import made
from support.pages_open import Open

from ratioscope.app.dashboard.model import opened_runs, view
from ratioscope.app.dashboard.server import prefetcher
from ratioscope.app.pages import running_scripts
from ratioscope.app.pages.pages import PAGES
from ratioscope.app.pages.slice_absences import absences
from ratioscope.app.pages.view import CacheRequest
from ratioscope.ingest import run as run_module
from ratioscope.ingest.analysis.slice_over_steps import lag_over_steps, lag_table


def test_pages_by_slice_find_made_what_was_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(made(tmp_path, "stale"))
    shown = view.view(root)
    assert not shown.is_growing
    view.prepare([root], prefetcher._by_slice())

    def no_reading(*_: object, **__: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(run_module.Run, "metrics", no_reading)
    monkeypatch.setattr(run_module.Run, "statistics", no_reading)
    assert "position" not in absences(shown)
    for by in (("position",), ("replica",), ("lag",), ()):
        shown.metrics(by)
    assert len(shown.of(lag_table, None)) and len(shown.of(lag_over_steps, None))


def test_a_run_that_cannot_be_read_keeps_no_other_from_being_prepared(tmp_path: Path) -> None:
    root = str(made(tmp_path, "stale"))
    calls: list[Path] = []
    view.prepare([str(tmp_path / "absent"), root], [(lambda run: calls.append(run.path), ())])
    assert calls == [Path(root)]


def test_what_the_first_chart_needs_is_loaded() -> None:
    prefetcher._first_figure()  # whatever it raised would pass unseen in its thread


def test_a_run_that_was_opened_is_read_ahead_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_runs, "_KNOWN", set())
    monkeypatch.setattr(opened_runs, "_OPENED", SimpleQueue())
    root = str(made(tmp_path, "stale"))
    opened_runs.run_opened(root)
    opened_runs.run_opened(root)
    assert opened_runs._OPENED.get_nowait() == root and opened_runs._OPENED.empty()
    view.prefetch(root, prefetcher._next)
    held, shown = view._revision_cache().bytes, view.view(root)
    shown.events()
    for level in ("token", "sequence"):
        shown.distribution(level, shown.run.gaps[0])
    for page in PAGES:
        for make, arguments in page.ahead(shown, "light"):
            shown.of(make, *arguments)
    assert view._revision_cache().bytes == held, "all of it was there"


def test_a_run_that_cannot_be_read_ahead_is_left_to_its_page(tmp_path: Path) -> None:
    view.prefetch(str(tmp_path / "absent"), prefetcher._next)


@pytest.mark.parametrize("name", ["charts", "distributions", "fix"])
def test_a_page_finds_made_what_it_wanted_ahead(opened: Open, runs: Path, name: str) -> None:
    """Under the very names that it asks for: else it would be made twice."""
    st.cache_resource.clear()
    page = next(page for page in PAGES if page.path == name)
    opened("overview", "stale")
    shown = view.view(str(made(runs, "stale")))
    wanted = list(page.ahead(shown, "light"))
    view._revision_cache.clear()  # to list the wanted charts their lines were made
    assert wanted and not any(view.key_of(shown, *one) in view._revision_cache()._slots for one in wanted)
    for level in ("token", "sequence"):
        opened(name, "stale", level=level)
    missing = [one for one in wanted if view.key_of(shown, *one) not in view._revision_cache()._slots]
    assert not missing


def test_pages_come_first_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_scripts, "PATIENCE", 0.2)
    monkeypatch.setitem(running_scripts.SCRIPTS, -1, object())
    began = time.monotonic()
    running_scripts.wait_for_pages()
    assert time.monotonic() - began >= 0.2


def test_each_piece_of_work_in_advance_lets_pages_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, done = str(made(tmp_path, "stale")), list[str]()
    monkeypatch.setattr(view, "wait_for_pages", lambda: done.append("wait"))
    requests: list[CacheRequest] = [
        (lambda _: done.append("one"), ()),
        (lambda _, two: done.append(two), ("two",)),
    ]
    view.prepare([root], requests)
    view.prefetch(root, lambda _: [(lambda run: done.append(run.path.name), ())])
    assert done == ["wait", "one", "wait", "two", "wait", Path(root).name]
    done.clear()
    view.warm([root])
    assert done == ["wait"] * 2


def test_a_long_computation_in_advance_rests_between_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []
    monkeypatch.setattr(running_scripts, "wait_for_pages", lambda: waits.append("wait"))
    running_scripts.rest(1, 2)
    assert not waits, "a page waits for nobody"
    with running_scripts.in_advance():
        running_scripts.rest(1, 2)
    running_scripts.rest(1, 2)
    assert waits == ["wait"]
