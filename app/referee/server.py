"""JSON from a server whose address the user gave: bounded in bytes, time and tries, without redirects, the key never shown.

TLS and proxies are those of urllib: the system's certificates, and https_proxy, http_proxy and no_proxy of the environment.
"""

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException, HTTPResponse
from threading import Thread
from typing import Any, NoReturn, TypeVar
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ratioscope.errors import ConfigError, SourceError
from ratioscope.version import __version__

T = TypeVar("T")
KEY = "RATIOSCOPE_ENGINE_KEY"
"""The environment variable of the key."""
TRIES, FIRST_WAIT, LONGEST_WAIT = 6, 0.5, 30.0
"""Tries of a request, and seconds before the second one, doubled before each further one. Conventions."""
AGAIN = (429, 500, 502, 503, 504)
"""Status codes after which a request is tried again."""
SECONDS = 300.0
"""Time limit of a try. A convention: a prefill of the tokens of a request takes seconds."""
SAID = 300
"""Characters of a server's own words that are shown."""
LATE = "the answer took too long"


class Absent(SourceError):
    """The server has no such path."""


@dataclass(frozen=True)
class Server:
    """A server that answers in JSON."""

    address: str
    """http(s)://host:port and a path before that of each request, without a slash at its end."""
    model: str = ""
    """The name of the served model after # in the address that was given; "" for the only one."""
    key: str = field(default="", repr=False)
    """Sent as a bearer token."""

    def ask(
        self, path: str, body: Any = None, *, most_bytes: int = 1 << 20, seconds: float = SECONDS, tries: int = TRIES
    ) -> Any:
        """The answer to GET, or to POST of a body. SourceError for all that is no JSON within the bounds.

        tries: 1 for a request that costs the server much. Absent for a path that the server does not have.
        """
        said = failed = ""
        for number in range(tries):
            try:
                # a thread of its own, because headers that drip have no end of theirs
                return _begun(partial(self._answer, path, body, most_bytes, seconds)).result(seconds)
            except HTTPError as error:
                said, failed, after = self._words(error), f"status {error.code}", error.headers.get("Retry-After") or ""
                if error.code not in AGAIN:
                    self._refuse(path, error, said)
            except (OSError, HTTPException, UnicodeError) as error:
                said, failed, after = self.plain(str(error)) or LATE, type(error).__name__, ""
            if number + 1 < tries:
                wait = min(float(after) if after.isdecimal() else FIRST_WAIT * 2**number, LONGEST_WAIT)
                again = f"asked again in {wait:.3g} s, try {number + 2} of {tries}"
                logging.getLogger("ratioscope").warning("%s%s: %s: %s; %s", self.address, path, failed, said, again)
                time.sleep(wait)
        often = f" at each of {tries} tries" if tries > 1 else ""
        raise SourceError(f"{self.address}{path}: {failed}{often}: {said}; wanted an answer. Try later")

    def _answer(self, path: str, body: Any, most_bytes: int, seconds: float) -> Any:
        headers = {"Content-Type": "application/json", "User-Agent": f"ratioscope/{__version__}"}
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        data = None if body is None else json.dumps(body).encode()
        until = time.monotonic() + seconds
        with build_opener(_Stays).open(Request(f"{self.address}{path}", data, headers), timeout=seconds) as answer:
            content = _content(answer, most_bytes, until)
        if content is None:
            raise SourceError(
                f"{self.address}{path}: the answer has more than {most_bytes:,} bytes; nothing of it is kept"
            )
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            said = self.plain(content[:SAID].decode(errors="replace"))
            raise SourceError(f"{self.address}{path}: wanted JSON, found {said!r}") from None

    def _refuse(self, path: str, error: HTTPError, said: str) -> NoReturn:
        what = f"{self.address}{path}: status {error.code}: {said}"
        if 300 <= error.code < 400:
            what += "; redirects are never followed: give the address that it leads to"
        if error.code in (401, 403):
            what += f"; wanted a key: in the environment as {KEY}, or in a file: --engine-key-file PATH"
        raise (Absent if error.code == 404 else SourceError)(what) from None

    def _words(self, error: HTTPError) -> str:
        with error, suppress(OSError, HTTPException):
            return self.plain(error.read1(SAID * 4).decode(errors="replace") or error.reason)
        return self.plain(str(error.reason))

    def plain(self, text: str) -> str:
        """Words of the server in one line, without the key, which it may repeat."""
        hidden = text.replace(self.key, "[key]") if self.key else text
        return " ".join(hidden.split())[:SAID]


class _Stays(HTTPRedirectHandler):
    """A redirect is an error."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        return None


def _content(answer: HTTPResponse, most_bytes: int, until: float) -> bytes | None:
    """The body; None if it is larger. TimeoutError where it takes longer, ConnectionError where it is cut."""
    content = bytearray()
    while piece := answer.read1(1 << 16):
        content += piece
        if len(content) > most_bytes:
            return None
        if time.monotonic() > until:
            raise TimeoutError(LATE)
    if answer.length:
        raise ConnectionError("the answer was cut")
    return bytes(content)


def server_at(text: str, key: str = "") -> Server:
    """The server at an address that a user gave, such as http://host:8000#MODEL. ConfigError says what is wrong with it."""
    try:
        parts = urlsplit(text)
        port_fits = parts.port != 0
    except ValueError:
        parts, port_fits = urlsplit(""), False
    if "@" in parts.netloc:
        raise ConfigError(f"an address of an engine has a login in it; wanted none, and the key as {KEY}")
    where = parts.netloc + parts.path.rstrip("/").removesuffix("/v1")
    fits = port_fits and where.isascii() and " " not in where
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or not fits:
        raise ConfigError(
            f"--engine {text.partition('?')[0]}: wanted an address such as http://host:8000, or NAME=http://host:8000"
        )
    if key and (not key.isascii() or not key.isprintable()):
        raise ConfigError("the engine's key has characters that no header can hold; wanted one line of ASCII")
    return Server(f"{parts.scheme}://{where}", unquote(parts.fragment), key)


def answered(asked: Iterable[Callable[[], T]], at_once: int) -> Iterator[T]:
    """The answers in order, with so many questions in flight. Its threads end with the program, whatever the server does."""
    waiting, left = deque[Future[T]](), iter(asked)
    while True:
        while len(waiting) < at_once and (question := next(left, None)) is not None:
            waiting.append(_begun(question))
        if not waiting:
            return
        try:
            yield waiting.popleft().result(TRIES * (SECONDS + LONGEST_WAIT))
        except TimeoutError:
            raise SourceError("the server sent no whole answer in time; wanted one. Try later") from None


def _begun(question: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(question())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future
