"""The script that draws charts is sent for with the first answer, and run before a page needs it."""

import asyncio

import pytest
from browser import Chromium, Dashboard, chromium, is_well

from ratioscope.app.serving.asgi import Message, Receive, Scope, Send
from ratioscope.app.serving.chart_script import Ahead, chart_script

SERVED = ("healthy",)
FETCHED = "name => performance.getEntriesByType('resource').filter(entry => entry.name.endsWith(name)).length"


def test_a_page_names_the_script_and_nothing_else_does() -> None:
    assert _answered(b"text/html; charset=utf-8") == [f"<{chart_script()}>; rel=modulepreload".encode()]
    assert _answered(b"text/javascript") == []


def test_where_streamlit_keeps_no_such_script_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratioscope.app.serving.chart_script.chart_script", lambda: "")
    assert _answered(b"text/html") == []


@pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
def test_a_page_without_a_chart_has_it_ready_for_the_next(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/health?run=healthy")
    assert opened.page.locator(".main-svg").count() == 0
    opened.page.wait_for_function("'Plotly' in window")
    opened.go_to("Overview")
    assert opened.page.locator(".main-svg").count() > 0 and opened.page.evaluate(FETCHED, chart_script()) == 1
    is_well(opened)


def _answered(kind: bytes) -> list[bytes]:
    """The links that an answer of this kind names."""
    sent: list[Message] = []

    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(Ahead(inside)({"type": "http"}, receive, send))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    return [value for name, value in sent[0]["headers"] if name == b"link"]
