"""What stands before Streamlit on every request: who may ask, and what the browser may do with the answer.

A page of some other site, open in the same browser, must not be able to read a run: it can send requests to 127.0.0.1, and
by DNS rebinding even ones that look same-origin to the browser. So the Host and the Origin of every HTTP request and
every WebSocket are compared with the names this server was started for (Streamlit itself checks the WebSocket only).
"""

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",  # plotly.js holds one `new Function`, index.html inline scripts
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",  # the one that matters: nothing that was injected can send anything away
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-src 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

# Starlette's own types; it comes with the dashboard extra and is not needed to state them.
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered, in words that say what to do about it."""

    status: int
    reason: str


class Guard:
    """The ASGI application inside, for requests that name one of the hosts; a refusal for all others."""

    def __init__(self, app: Application, hosts: Iterable[str] = LOOPBACK) -> None:
        self.app = app
        self.hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        if (refused := refusal(scope["headers"], self.hosts)) is not None:
            return await _refuse(refused, scope, receive, send)
        await self.app(scope, receive, _with_headers(send))


def refusal(headers: Iterable[tuple[bytes, bytes]], hosts: frozenset[str]) -> Refusal | None:
    """Why a request with these headers is refused; None if it is not."""
    fields: dict[str, list[str]] = {}
    for name, value in headers:
        fields.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    asked = fields.get("host", [])
    if len(asked) != 1:
        return Refusal(400, f"wanted exactly one Host header, found {len(asked)}")
    if host_name(asked[0]) not in hosts:
        return Refusal(
            421, "this server answers only to " + ", ".join(sorted(hosts)) + "; open it under one of these names"
        )
    origins = fields.get("origin", [])
    if any(_origin(origin) != asked[0].lower() for origin in origins):
        return Refusal(403, "the request comes from a page of another site")
    cross_site = "cross-site" in fields.get("sec-fetch-site", [])
    if cross_site and fields.get("sec-fetch-mode") != ["navigate"]:
        return Refusal(403, "the request comes from a page of another site")
    return None


def host_name(host: str) -> str | None:
    """The name in a Host header, lower case and without port and final dot; None where it is malformed.

    >>> host_name("LocalHost.:8501"), host_name("[::1]:80"), host_name("a@b"), host_name("127.0.0.1:x")
    ('localhost', '[::1]', None, None)
    """
    found = re.fullmatch(r"(\[[0-9a-f:]+\]|[a-z0-9._-]+?)\.?(:\d{1,5})?", host.lower())
    return found.group(1) if found else None


def _origin(origin: str) -> str | None:
    try:
        parts = urlsplit(origin.lower())
    except ValueError:
        return None
    return parts.netloc if parts.scheme in ("http", "https") else None


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            ours = {name for name, _ in HEADERS}
            kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in ours]
            message = {**message, "headers": [*kept, *HEADERS]}
        await send(message)

    return sending


async def _refuse(refused: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        return await send({"type": "websocket.close", "code": 1008, "reason": refused.reason})
    body = f"{refused.status}: {refused.reason}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *HEADERS]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
