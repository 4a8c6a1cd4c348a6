"""Plotly's script is sent for with the first answer, served once, and run before a page needs it."""

import asyncio
import gzip
import hashlib
import re

import plotly.graph_objects as go
import pytest
from support.browser import Chromium, Dashboard, chromium, is_well

from ratioscope.app.browser.library import FILE, PLACE, SHA256, plotly_js
from ratioscope.app.dashboard.server.asgi import Message, Receive, Scope, Send
from ratioscope.app.dashboard.server.chart_library import ChartLibrary

TRACES = frozenset(name for name in dir(go) if name.islower()) - {"layout"}
FETCHED = "name => performance.getEntriesByType('resource').filter(entry => entry.name.endsWith(name)).length"


def test_the_script_is_what_its_authors_published_and_has_every_kind_of_trace_that_is_drawn() -> None:
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == SHA256
    sources = "\n".join(path.read_text() for path in FILE.parents[2].rglob("*.py"))
    named = re.findall(r"\bgo\.([A-Z]\w+)\(|\.add_(\w+)\(", sources)
    drawn = {name.lower() for pair in named for name in pair} & TRACES
    held = set(re.findall(r'moduleType:"trace",name:"(\w+)"', plotly_js()))
    assert {"scatter", "bar", "heatmap"} <= drawn <= held <= TRACES


def test_a_page_names_the_script_and_nothing_else_does() -> None:
    assert _links(_answered("/", b"text/html; charset=utf-8")) == [f"<{PLACE}>; rel=preload; as=script".encode()]
    assert _links(_answered("/", b"text/javascript")) == []


def test_the_script_is_the_installed_one_and_may_be_kept() -> None:
    began, body = _answered(PLACE, b"text/html")
    assert gzip.decompress(body["body"]).decode() == plotly_js()
    assert began["status"] == 200 and b"immutable" in dict(began["headers"])[b"cache-control"]


@pytest.mark.parametrize(("path", "method"), [(f"{PLACE}.map", "GET"), ("/charts/", "GET"), (PLACE, "POST")])
def test_nothing_else_is_answered_there(path: str, method: str) -> None:
    assert _answered(path, b"text/plain", method)[1]["body"] == b"from inside"


@pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
def test_a_page_without_a_chart_has_it_ready_for_the_next(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/record?run=healthy")
    assert opened.page.locator(".main-svg").count() == 0
    opened.page.wait_for_function("() => 'Plotly' in window")
    opened.go_to("Overview")
    assert opened.page.locator(".main-svg").count() > 0 and opened.page.evaluate(FETCHED, PLACE) == 1
    is_well(opened)


def _links(sent: list[Message]) -> list[bytes]:
    return [value for name, value in sent[0]["headers"] if name == b"link"]


def _answered(path: str, kind: bytes, method: str = "GET") -> list[Message]:
    """What is sent where the application inside would answer with this kind."""
    sent: list[Message] = []

    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": b"from inside"})

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(ChartLibrary(inside)({"type": "http", "path": path, "method": method}, receive, send))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    return sent
