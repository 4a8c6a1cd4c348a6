"""Bounds the connections on which no answered request is under way, in time and in number, so that no one keeps a reader out.

A connection waits from its beginning until the guard lets its first request pass, and between two requests. It ends with its
time, or if there are too many: then the oldest one of the address that holds most ends. A reader who presents the token is let
in at once, whoever else holds connections open: by half a head, a slow body, an answer that is not read or an unfinished
handshake. A request that the guard let pass may take as long as it wants.

Streamlit makes the server's settings itself, so this module changes the defaults of uvicorn's. A test holds connections open
against the real server.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import Any

from .asgi import Application, Receive, Scope, Send

SECONDS = 10.0
"""Longest wait of a connection. Convention: a browser on a slow line sends a head in a second."""
MOST = 512
"""Most waiting connections, and half of the files that the process may open if that is less. Convention."""
_CONNECTION: ContextVar[asyncio.Transport] = ContextVar("connection")
"""The connection of a request."""


class Waiting:
    """The connections that wait, the oldest first."""

    def __init__(self, most: int = MOST, seconds: float = SECONDS) -> None:
        self.most, self._seconds = most, seconds
        self._held: dict[asyncio.Transport, tuple[bytes, asyncio.TimerHandle]] = {}

    def add(self, connection: asyncio.Transport) -> None:
        """Ends another one if there are too many."""
        if connection.is_closing():
            return
        timer = asyncio.get_running_loop().call_later(self._seconds, self._end, connection)
        self._held[connection] = (network_of(connection.get_extra_info("peername")), timer)
        if len(self._held) > self.most:
            ((busiest, _),) = Counter(network for network, _ in self._held.values()).most_common(1)
            self._end(next(each for each, (network, _) in self._held.items() if network == busiest))

    def remove(self, connection: asyncio.Transport) -> None:
        _, timer = self._held.pop(connection, (b"", None))
        if timer is not None:
            timer.cancel()

    @contextmanager
    def without(self, connection: asyncio.Transport | None) -> Iterator[None]:
        """The connection does not wait inside the context."""
        if connection is None:
            yield
            return
        self.remove(connection)
        try:
            yield
        finally:
            self.add(connection)

    def _end(self, connection: asyncio.Transport) -> None:
        self.remove(connection)
        connection.abort()  # close would wait until a peer has read its answer


WAITING = Waiting()


class Answered:
    """An ASGI application around another, behind the guard: a connection does not wait while it is answered."""

    def __init__(self, app: Application, waiting: Waiting = WAITING) -> None:
        self._app, self._waiting = app, waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._waiting.without(_CONNECTION.get(None) if scope["type"] in ("http", "websocket") else None):
            await self._app(scope, receive, send)


def network_of(peer: Any) -> bytes:
    """The network that one peer can choose addresses of: an IPv4 address, or the first 64 bits of an IPv6 address.

    >>> network_of(("::ffff:10.0.0.7", 80, 0, 0)) == network_of(("10.0.0.7", 81)), network_of(("2001:db8::7", 80)).hex()
    (True, '20010db800000000')
    """
    try:
        address = ip_address(peer[0])
    except (ValueError, TypeError, IndexError):
        return b""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).packed[:8]


def bound_connections() -> None:
    """Makes the connections of every uvicorn that this process starts from now on wait."""
    import uvicorn
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Bounded(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        """uvicorn's own protocol, whichever it has. Its methods run for one connection, so the context is that one's."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self._connection = transport
            WAITING.add(transport)
            super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            _CONNECTION.set(self._connection)
            super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            WAITING.remove(self._connection)
            super().connection_lost(exc)

    WAITING.most = min(MOST, open_files() // 2)
    at_once = WAITING.most // 2  # asyncio accepts so many connections before it looks at the first
    uvicorn.Config = partial(uvicorn.Config, http=Bounded, backlog=at_once)  # type: ignore[misc, assignment]


def open_files() -> int:
    """The number of files that this process may open."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 2 * MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * MOST if soft == resource.RLIM_INFINITY else soft
