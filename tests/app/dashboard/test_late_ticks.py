"""Requests of a page that the reader has left take nobody back. Requests of the page on show are heard."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.pages_manager import PagesManager
from support.browser import Chromium, Dashboard, chromium
from support.statistics_runs import write_statistics_run

from ratioscope.app.dashboard.server import late_ticks
from ratioscope.app.dashboard.server.late_ticks import leave_out_late_ticks

SLOW_END = """
import gc, threading
from streamlit.runtime.app_session import AppSession
asked, handle, collect = threading.Event(), AppSession.handle_backmsg, gc.collect

def handled(session, message):
    state = message.rerun_script
    if state.fragment_id and not state.is_auto_rerun:
        asked.set()
    handle(session, message)

def collected(*given):
    if threading.current_thread().name == "ScriptRunner.scriptThread":
        asked.wait(20)
    return collect(*given)

AppSession.handle_backmsg, gc.collect = handled, collected
"""
"""The first script of a session, whose last act is to collect garbage, does not end before its page has asked for a part."""


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that a session goes on to hear."""
    requests: list[Any] = []
    monkeypatch.setattr(AppSession, "request_rerun", lambda session, asked: requests.append(asked))
    leave_out_late_ticks()
    return requests


def _asked(page: str, part: str = "", *, tick: bool = False) -> ClientState:
    return ClientState(page_script_hash=page, fragment_id=part, is_auto_rerun=tick)


def _session(**facts: Any) -> Any:
    """What the module reads of a session of Streamlit."""
    session = SimpleNamespace(_pages_manager=PagesManager("app.py"), _scriptrunner=None, **facts)
    _begins(session, "runs")
    return session


def _begins(session: Any, page: str) -> None:
    session._pages_manager.set_current_page_script_hash(page)


@pytest.mark.parametrize("tick", [True, False])
def test_a_part_of_a_page_is_not_asked_for_once_a_click_has_left_it(heard: list[Any], tick: bool) -> None:
    session = _session()
    click = _asked("tokens")
    AppSession.request_rerun(session, click)
    AppSession.request_rerun(
        session, _asked("runs", "part", tick=tick)
    )  # the browser does not know of the new page yet
    _begins(session, "tokens")  # the new page has begun
    AppSession.request_rerun(session, _asked("runs", "part", tick=tick))
    assert heard == [click]


def test_a_part_of_the_page_on_show_is_heard_also_after_the_way_there_and_back(
    heard: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_ticks, "WITH_THE_CLICK", 0.0)
    session = _session()
    for page in ("tokens", "runs"):
        AppSession.request_rerun(session, _asked(page))
        _begins(session, page)
        AppSession.request_rerun(session, _asked(page, "part"))
    _begins(session, "sequences")  # a button of the page has led there
    AppSession.request_rerun(session, _asked("sequences", "part", tick=True))
    assert [(one.page_script_hash, one.fragment_id) for one in heard] == [
        ("tokens", ""), ("tokens", "part"), ("runs", ""), ("runs", "part"), ("sequences", "part"),
    ]  # fmt: skip


def test_a_drawer_that_a_link_closes_does_not_lead_back_to_the_page_that_was_left(
    heard: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = _session()
    AppSession.request_rerun(session, link := _asked("tokens"))
    AppSession.request_rerun(session, _asked("runs"))
    _begins(session, "tokens")
    AppSession.request_rerun(session, _asked("runs"))
    assert heard == [link]
    monkeypatch.setattr(late_ticks, "WITH_THE_CLICK", 0.0)
    AppSession.request_rerun(session, back := _asked("runs"))
    assert heard == [link, back]


def test_a_refresh_does_not_interrupt_a_click_and_joins_another_refresh(heard: list[Any]) -> None:
    session = _session()
    AppSession.request_rerun(session, _asked("runs", "part", tick=True))
    session._scriptrunner = object()  # at work for the refresh
    AppSession.request_rerun(session, _asked("runs", "other", tick=True))
    AppSession.request_rerun(session, _asked("runs"))
    AppSession.request_rerun(session, _asked("runs", "part", tick=True))
    assert [one.fragment_id for one in heard] == ["part", "other", ""]


def test_a_refresh_that_carries_a_click_is_left_to_the_request_of_the_click(heard: list[Any]) -> None:
    """The browser asks for the refresh in the moment between: the click was handled twice, and so a pause taken back."""
    session = _session()
    refresh, click = _asked("runs", "part", tick=True), _asked("runs")
    for asked in (refresh, click):
        asked.widget_states.widgets.add(id="steps", string_value="3:")
        asked.widget_states.widgets.add(id="pause", trigger_value=True)
        AppSession.request_rerun(session, asked)
    assert heard == [click]
    del refresh.widget_states.widgets[1]
    AppSession.request_rerun(session, refresh)
    assert heard == [click, refresh]


def test_a_part_is_heard_while_the_first_script_has_not_ended(heard: list[Any]) -> None:
    session = _session()
    _begins(session, session._pages_manager.main_script_hash)  # no page yet
    for page in ("", "runs"):
        AppSession.request_rerun(session, _asked(page))
        AppSession.request_rerun(session, _asked("runs", "part"))
    assert [one.fragment_id for one in heard] == ["", "part"] * 2


@pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
def test_a_page_that_is_opened_narrow_is_drawn_narrow_however_slowly_its_script_ends(
    browser: Chromium, tmp_path: Path
) -> None:
    write_statistics_run(tmp_path / "run", 20)
    with Dashboard([tmp_path / "run"], before=SLOW_END) as dashboard:
        opened = browser.visit(dashboard.url, width=400)
        opened.page.wait_for_function("runsAsked() > 1")
        opened.page.close()
