"""Each fault of Streamlit for which we touch its private parts is still there. A test that fails here tells that a part of ours
can go: docs/develop/dashboard.md lists them with the issues upstream."""

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit import config, env_util
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime.app_session import AppSession, AppSessionState


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that a session without our patch passes on to the script that runs, on the page `tokens`."""
    heard = inspect.unwrap(AppSession.request_rerun)
    requests: list[Any] = []
    script = SimpleNamespace(request_rerun=lambda asked: not requests.append(asked))  # type: ignore[func-returns-value]
    session: Any = SimpleNamespace(
        _state=AppSessionState.APP_IS_RUNNING,
        _scriptrunner=script,
        _client_state=ClientState(page_script_hash="tokens"),
        has_fragment=lambda name: True,
    )
    heard(session, ClientState(page_script_hash="runs", fragment_id="part", is_auto_rerun=True))
    heard(session, ClientState(page_script_hash="tokens", fragment_id="part", is_auto_rerun=True))
    return requests


def test_a_part_of_a_page_that_was_left_is_still_drawn(taken: list[Any]) -> None:
    assert "runs" in [one.page_script_hash for one in taken], "late_ticks.py: _of_page_left can go"


def test_a_refresh_still_joins_the_script_of_a_click(taken: list[Any]) -> None:
    assert "tokens" in [one.page_script_hash for one in taken], "late_ticks.py: the test for `at_work` can go"


def test_settings_are_still_read_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = [Path(file) for file in config.get_config_files("config.toml")]
    assert any(file.is_relative_to(tmp_path) for file in files), "isolated_settings can go"


def test_the_first_element_still_asks_for_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "inspect.stack()" in inspect.getsource(env_util.is_repl), "server.py: the change of is_repl can go"
