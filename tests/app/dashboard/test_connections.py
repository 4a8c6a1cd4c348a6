"""Connections that never end their request keep nobody out: they are few and short, unless a request is under way."""

import asyncio
import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from support.serving import DEADLINE, serving

from ratioscope.app.dashboard.server.connections import Answered, Waiting, network_of

TOKEN = "correct-horse-battery-staple"
FEW = 256
"""Open files of the server, as some systems allow a process."""
WITH_FEW_FILES = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW}, {FEW}))
from ratioscope.app.cli import main
sys.exit(main())
"""
UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
    + b"A" * 22
    + b"==\r\n\r\n"
)
KINDS = (
    b"",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Never-Ends: ",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\nthe beginning of",
    b"GET /_stcore/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n" + UPGRADE[:-2],
    b"GET /_stcore/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n" + UPGRADE,
)
"""The beginning of a connection: nothing, half a head, half a body, half a handshake, a handshake without a token."""


def test_a_reader_with_the_token_is_let_in_at_once_however_many_connections_others_hold(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    with ExitStack() as held:
        began = held.enter_context(serving(str(tmp_path), "--token", str(file), program=("-c", WITH_FEW_FILES)))
        host, _, port = began.root.rpartition("/")[2].partition(":")
        for number in range(2 * FEW):
            connection = held.enter_context(socket.create_connection((host, int(port)), timeout=DEADLINE))
            connection.sendall(KINDS[number % len(KINDS)])
        asked = urllib.request.Request(f"{began.root}/_stcore/health", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(asked, timeout=20) as answer:
            assert answer.status == 200


class Connection(asyncio.Transport):
    """A connection of this peer."""

    def __init__(self, peer: str = "10.0.0.1") -> None:
        super().__init__({"peername": (peer, 80)})
        self.ended = False

    def is_closing(self) -> bool:
        return self.ended

    def abort(self) -> None:
        self.ended = True


def test_the_oldest_connection_of_the_address_that_holds_most_ends_first() -> None:
    async def held() -> list[str]:
        waiting = Waiting(most=4)
        peers = ["10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2", "2001:db8::3", "10.0.0.3"]
        made = [Connection(peer) for peer in peers]
        for connection in made:
            waiting.add(connection)
        return [f"{at} {peers[at]}" for at, connection in enumerate(made) if connection.ended]

    assert asyncio.run(held()) == ["2 2001:db8::1", "3 2001:db8::2"]


def test_a_connection_ends_with_its_time_unless_its_request_is_answered() -> None:
    async def seen() -> list[bool]:
        waiting = Waiting(seconds=0)
        connection, left, known = Connection(), Connection(), []
        waiting.add(connection)
        waiting.add(left)
        waiting.remove(left)
        with waiting.without(connection):
            for _ in range(3):
                await asyncio.sleep(0)
            known.append(connection.ended)
        for _ in range(3):
            await asyncio.sleep(0)
        return [*known, connection.ended, left.ended]

    assert asyncio.run(seen()) == [False, True, False]


def test_what_is_no_request_passes() -> None:
    passed: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope)

    scopes: list[dict[str, Any]] = [{"type": "lifespan"}, {"type": "http"}]
    for scope in scopes:
        asyncio.run(Answered(application)(scope, lambda: None, lambda _: None))  # type: ignore[arg-type, return-value]
    assert passed == scopes


def test_whatever_a_peer_is_called_it_has_a_network() -> None:
    assert network_of(None) == network_of(()) == network_of(("unix",)) == b""
    assert network_of(("fe80::1%eth0", 1)) == network_of(("fe80::2", 1)) != network_of(("fec0::1", 1))
