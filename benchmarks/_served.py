"""The server of another package, on a free port of this machine."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import urlopen

START = 60.0
"""Seconds that a server may take to answer."""


@contextmanager
def served(command: Sequence[object], **environment: str) -> Iterator[str]:
    """The address of the server, once it answers. command: without --port, which is added as the last option."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [*map(str, command), "--port", str(port)],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(url)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def _wait_for(url: str) -> None:
    ends = time.monotonic() + START
    while time.monotonic() < ends:
        try:
            with urlopen(url):
                return
        except HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"nothing answered at {url} within {START:g} s")
