"""Requests of a page that the reader has left: none of them takes the reader back."""

from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime.app_session import AppSession

from ratioscope.app.dashboard.server.late_ticks import leave_out_late_ticks


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
    return SimpleNamespace(page_script_hash="runs", _scriptrunner=None, **facts)


@pytest.mark.parametrize("tick", [True, False])
def test_a_part_of_a_page_is_not_asked_for_once_a_click_has_left_it(heard: list[Any], tick: bool) -> None:
    session = _session()
    click = _asked("tokens")
    AppSession.request_rerun(session, click)
    AppSession.request_rerun(
        session, _asked("runs", "part", tick=tick)
    )  # the browser does not know of the new page yet
    session.page_script_hash = "tokens"  # the new page has begun
    AppSession.request_rerun(session, _asked("runs", "part", tick=tick))
    assert heard == [click]


def test_a_part_of_the_page_on_show_is_heard_also_after_the_way_there_and_back(heard: list[Any]) -> None:
    session = _session()
    for page in ("tokens", "runs"):
        AppSession.request_rerun(session, _asked(page))
        session.page_script_hash = page
        AppSession.request_rerun(session, _asked(page, "part"))
    session.page_script_hash = "sequences"  # a button of the page has led there
    AppSession.request_rerun(session, _asked("sequences", "part", tick=True))
    assert [(one.page_script_hash, one.fragment_id) for one in heard] == [
        ("tokens", ""), ("tokens", "part"), ("runs", ""), ("runs", "part"), ("sequences", "part"),
    ]  # fmt: skip


def test_a_refresh_does_not_interrupt_a_click_and_joins_another_refresh(heard: list[Any]) -> None:
    session = _session()
    AppSession.request_rerun(session, _asked("runs", "part", tick=True))
    session._scriptrunner = object()  # at work for the refresh
    AppSession.request_rerun(session, _asked("runs", "other", tick=True))
    AppSession.request_rerun(session, _asked("runs"))
    AppSession.request_rerun(session, _asked("runs", "part", tick=True))
    assert [one.fragment_id for one in heard] == ["part", "other", ""]
