"""What the tests call a tab at rest: it has heard the end of every run of the script that it asked for."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from support.browser import AT_REST, Chromium, chromium

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
SOCKET = "() => { window.WebSocket = class extends EventTarget { send() {} } }"
"""One that is connected to nothing."""
HEAR = "bytes => socket.dispatchEvent(new MessageEvent('message', { data: new Uint8Array(bytes) }))"
WHOLE, PART, EARLY = (
    ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY, ForwardMsg.FINISHED_EARLY_FOR_RERUN
)  # fmt: skip


@pytest.fixture
def tab(browser: Chromium) -> Iterator[Page]:
    page = browser.tab()
    page.evaluate(SOCKET)
    page.evaluate(AT_REST)
    page.evaluate("() => { window.socket = new WebSocket() }")
    yield page


def test_a_tab_rests_once_its_run_has_ended(tab: Page) -> None:
    _ask(tab)
    assert not _rests(tab)
    _begin(tab)
    assert not _rests(tab)
    _end(tab, WHOLE)
    assert _rests(tab)


def test_a_run_that_began_before_it_was_asked_for_is_another(tab: Page) -> None:
    _begin(tab)
    _ask(tab)
    _end(tab, WHOLE)
    assert not _rests(tab)
    _begin(tab)
    _end(tab, EARLY)
    assert not _rests(tab)
    _begin(tab)
    _end(tab, WHOLE)
    assert _rests(tab)


def test_a_part_that_waits_while_two_others_end_was_not_heard(tab: Page) -> None:
    _ask(tab, "part")
    for rests in (False, True):
        _begin(tab, "other")
        _end(tab, PART, "other")
        assert _rests(tab) == rests


def test_a_part_that_is_asked_for_while_the_whole_runs_is_waited_for_after_it(tab: Page) -> None:
    _ask(tab)
    _begin(tab)
    _ask(tab, "part")
    _end(tab, WHOLE)
    assert not _rests(tab)
    _begin(tab, "part")
    _end(tab, PART, "part")
    assert _rests(tab)


def test_the_whole_runs_the_parts_that_were_asked_for_before(tab: Page) -> None:
    _ask(tab, "part")
    _ask(tab)
    _begin(tab)
    _end(tab, WHOLE)
    assert _rests(tab)


def test_a_part_that_ends_leaves_another_to_be_waited_for(tab: Page) -> None:
    _ask(tab, "part")
    _begin(tab, "clock")
    _end(tab, PART, "clock")
    assert not _rests(tab)
    _begin(tab, "part")
    _end(tab, PART, "part")
    assert _rests(tab)


def test_a_whole_run_whose_end_is_never_sent_is_over_when_the_next_part_is(tab: Page) -> None:
    """Streamlit forgets the last message of a run if the clock asks for its part between that message and its sending."""
    _ask(tab)
    _begin(tab)
    _ask(tab, "clock", by_itself=True)
    _begin(tab, "clock")
    _end(tab, PART, "clock")
    assert _rests(tab)


def test_the_runs_that_have_ended_are_counted_with_those_that_nobody_asked_for(tab: Page) -> None:
    for number in range(3):
        assert tab.evaluate("runsEnded()") == number
        _begin(tab, "clock")
        _end(tab, PART, "clock")


def _rests(tab: Page) -> bool:
    return bool(tab.evaluate("hasRun(0)"))


def _ask(tab: Page, part: str = "", *, by_itself: bool = False) -> None:
    message = BackMsg()
    message.rerun_script.fragment_id = part
    message.rerun_script.is_auto_rerun = by_itself
    message.rerun_script.query_string = "run=stale"
    tab.evaluate("bytes => socket.send(new Uint8Array(bytes))", list(message.SerializeToString()))


def _begin(tab: Page, *parts: str) -> None:
    message = ForwardMsg()
    message.new_session.name = "dashboard"
    message.metadata.run.fragment_ids.extend(parts)
    tab.evaluate(HEAR, list(message.SerializeToString()))


def _end(tab: Page, how: "ForwardMsg.ScriptFinishedStatus.ValueType", *parts: str) -> None:
    message = ForwardMsg(script_finished=how)
    message.metadata.run.fragment_ids.extend(parts)
    tab.evaluate(HEAR, list(message.SerializeToString()))
