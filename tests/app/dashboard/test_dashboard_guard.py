"""Who may ask the dashboard, and what a browser may do with the answer: the guard before Streamlit, and where it is bound."""

import asyncio
import inspect
import logging
import socket
from importlib import import_module
from typing import Any

import pytest
from streamlit import env_util

from ratioscope.app.browser.policy import inline_scripts
from ratioscope.app.dashboard.server.guard import LOOPBACK, Guard, content_security_policy, refusal
from ratioscope.app.dashboard.server.options import ServerOptions, is_loopback
from ratioscope.app.dashboard.server.server import SENDER, application, free_port, is_worth_a_line, serve
from ratioscope.errors import ConfigError

OURS = [(b"host", b"127.0.0.1:8501")]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:8501", "LOCALHOST:8501", "localhost.:1", "[::1]:8501", "127.0.0.1:65535"]
)
def test_a_request_to_this_machine_is_answered(host: str) -> None:
    assert refusal([(b"Host", host.encode())], LOOPBACK) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8501", "evil.example:127", "127.0.0.1@evil.example",
     "evil.example#127.0.0.1", "127.0.0.2", "0.0.0.0", "[::2]", "", "127.0.0.1:x", "127.0.0.1:8501:1", "localhost..",
     " 127.0.0.1"],
)  # fmt: skip
def test_a_request_to_any_other_name_is_refused(host: str) -> None:
    refused = refusal([(b"host", host.encode())], LOOPBACK)
    assert refused is not None and refused.status == 421 and "127.0.0.1" in refused.reason


@pytest.mark.parametrize("headers", [[], [*OURS, (b"Host", b"127.0.0.1")], [*OURS, *OURS]])
def test_a_request_with_no_or_several_hosts_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    refused = refusal(headers, LOOPBACK)
    assert refused is not None and refused.status == 400


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1:9999",
        "http://127.0.0.1",
        "http://[",
        "file://",
        "https://evil.example:8501",
    ],
)
def test_a_request_from_a_page_of_another_site_is_refused(origin: str) -> None:
    refused = refusal([*OURS, (b"origin", origin.encode())], LOOPBACK)
    assert refused is not None and refused.status == 403


def test_a_request_from_our_own_page_is_answered() -> None:
    assert (
        refusal([*OURS, (b"Origin", b"http://127.0.0.1:8501"), (b"sec-fetch-site", b"same-origin")], LOOPBACK) is None
    )


def test_another_site_may_link_to_the_dashboard_but_not_load_from_it() -> None:
    link = [*OURS, (b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"navigate")]
    load = [*OURS, (b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"no-cors")]
    assert refusal(link, LOOPBACK) is None
    refused = refusal(load, LOOPBACK)
    assert refused is not None and refused.status == 403


def test_every_answer_carries_the_headers_once_and_refusals_too() -> None:
    for headers, status in ((OURS, 200), ([(b"host", b"evil.example")], 421)):
        start, body = _answer({"type": "http", "headers": headers})
        sent = [name.lower() for name, _ in start["headers"]]
        assert start["status"] == status and body["type"] == "http.response.body"
        for name in (b"content-security-policy", b"x-content-type-options", b"referrer-policy", b"x-frame-options"):
            assert sent.count(name) == 1
        policy = dict(start["headers"])[b"content-security-policy"].decode()
        assert (
            "connect-src 'self';" in policy
            and "frame-ancestors 'none'" in policy
            and "img-src 'self' data: blob:;" in policy
        )
        assert "script-src 'self' blob:;" in policy and "form-action 'self'" in policy and "frame-src 'none'" in policy


def test_of_the_scripts_in_a_page_only_those_are_run_that_were_there_when_the_server_started() -> None:
    page = "<script src='a.js'></script><script>\n  window.prerenderReady = false\n</script><script type='module'>b()</script>"
    assert inline_scripts(page) == ["\n  window.prerenderReady = false\n", "b()"]
    policy = content_security_policy(*inline_scripts(page))
    (sources,) = [part for part in policy.split("; ") if part.startswith("script-src ")]
    assert sources.count("'sha256-") == 2 and "unsafe" not in sources


def test_a_refused_websocket_is_closed_before_it_is_accepted() -> None:
    (closed,) = _answer({"type": "websocket", "headers": [(b"host", b"evil.example")]})
    assert closed["type"] == "websocket.close" and closed["code"] == 1008


def test_the_servers_own_messages_pass() -> None:
    assert _answer({"type": "lifespan"}) == [{"type": "lifespan.reached"}]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_serving_beyond_this_machine_is_refused_with_the_way_to_do_it(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match="ssh -L"):
        serve([], ServerOptions(host))


def test_a_reader_who_leaves_is_not_logged_as_an_error_and_all_else_is() -> None:
    websockets = pytest.importorskip("starlette.websockets")
    left, broken = websockets.WebSocketDisconnected("closed"), OSError("broken")
    told = [logging.makeLogRecord({"exc_info": (type(error), error, None)}) for error in (left, broken)]
    assert [is_worth_a_line(record) for record in (*told, logging.makeLogRecord({}))] == [False, True, True]
    assert import_module(SENDER)._LOGGER.name == SENDER


def test_a_port_that_is_taken_is_an_error_in_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="another program listens"):
        serve([], ServerOptions(port=taken.getsockname()[1]))


def test_a_free_port_is_free() -> None:
    with socket.create_server(("127.0.0.1", free_port())):
        pass
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")


def _answer(scope: dict[str, Any]) -> list[Any]:
    """What the guard sends for a request, with an application behind it that answers everything."""
    sent: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await send({"type": f"{scope['type']}.reached"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"X-Frame-Options", b"ALLOWALL")]})
        await send({"type": "http.response.body", "body": b"answer"})

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Guard(application)(scope, receive, send))
    return sent


def test_the_first_element_looks_up_the_file_of_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamlit asks once whether it runs in a REPL, and goes through the files of all modules for it."""
    monkeypatch.setattr(env_util, "is_repl", env_util.is_repl)
    monkeypatch.setattr(inspect, "stack", None)
    application(lambda app: app)
    assert not env_util.is_repl()
