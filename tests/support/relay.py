"""A relay before a server on loopback, which fails as networks and stores do: it stalls, answers with an error, or cuts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Relay:
    """Passes bytes on, as `mode` says. The mode counts for each request, on open connections too."""

    target: int
    """The port of the server."""
    mode: str = "pass"
    """pass; stall (take the request and never answer); 403, 503 (answer so); cut (end after `left` bytes to the server)."""
    left: int = 0
    received: int = 0
    """Bytes that the server sent back."""
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            with socket.create_connection(("127.0.0.1", self.target)) as server:
                back = threading.Thread(target=self._back, args=(server, client), daemon=True)
                back.start()
                self._forth(client, server)
                back.join()

    def _forth(self, client: socket.socket, server: socket.socket) -> None:
        while data := client.recv(1 << 16):
            if self.mode == "stall":
                continue
            if self.mode.isdigit():
                body = f"<Error><Code>{'AccessDenied' if self.mode == '403' else 'SlowDown'}</Code></Error>"
                head = f"HTTP/1.1 {self.mode} No\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                client.sendall((head + body).encode())
                client.shutdown(socket.SHUT_RDWR)
                server.shutdown(socket.SHUT_RDWR)
                return
            if self.mode == "cut":
                data = data[: max(0, self.left)]
                self.left -= len(data)
                if self.left <= 0:
                    server.sendall(data)
                    client.shutdown(socket.SHUT_RDWR)
                    server.shutdown(socket.SHUT_RDWR)
                    return
            server.sendall(data)
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                self.received += len(data)
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)


@contextmanager
def relaying(target: int) -> Iterator[Relay]:
    """A relay that passes all on until its mode is changed."""
    relay = Relay(target)
    threading.Thread(target=relay._accept, daemon=True).start()
    with relay._listener:
        yield relay
