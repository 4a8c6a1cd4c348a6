"""Sign-in to a dashboard that other machines can reach: the token, and the places where a visitor may present it.

Wrong tokens are not counted: a visitor with the right one is let in at once, whatever others send. The length of the token makes
guessing hopeless: at 10,000 guesses a second 64 bits last for 29 million years on average. The visitor gives the token once, in
the link that the command prints. The browser then holds a cookie that is derived from the token and does not reveal it, because
the browser sends cookies to other servers of the same machine too.
Opens a dashboard with a token in a browser on this machine, through a file that nobody else can read.

A browser gets the address to open as an argument, and every list of processes shows arguments.
"""

import hmac
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from ratioscope.errors import ConfigError

SHORTEST = 16
"""Fewest characters of a token; `generate` makes 43. Convention: 64 bits even if they are hexadecimal digits."""
DIFFERENT = 6
"""Fewest different characters of a token, against one repeated character. Convention."""
PARAMETER = "token"

Fields = Mapping[str, Sequence[str]]
"""Headers of a request by lower-case name."""
SignInState = Literal["in", "link", "out"]
"""in: signed in; link: signed in, with a token in the URL that must go; out: not signed in."""

SECONDS = 60.0
"""Most seconds that the file exists: a browser may have to start first."""
PAGE = """<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>ratioscope</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'"><meta http-equiv="refresh" content="0; url={url}">
If no dashboard comes: the terminal shows its link.
"""


def checked(token: str) -> str:
    """The token, if it is acceptable: printable ASCII without spaces, and hard to guess. Else ConfigError."""
    plain = token.isascii() and token.isprintable() and " " not in token
    if len(token) < SHORTEST or len(set(token)) < DIFFERENT or not plain:
        raise ConfigError(
            f"the token has {len(token)} characters, {len(set(token))} of them different; wanted at least {SHORTEST}, "
            f"{DIFFERENT} of them different, printable ASCII without spaces: --token generate makes one"
        )
    return token


def generated() -> str:
    """A random token that nobody can guess."""
    return secrets.token_urlsafe(32)


@dataclass
class SignIn:
    """Compares presented tokens and cookies with the true ones, in a time that does not depend on the right characters."""

    token: str = field(repr=False)

    def __post_init__(self) -> None:
        self._cookie = self._derived("cookie")
        self._name = (
            f"ratioscope-{self._derived('name')[:8]}"  # one per token: servers of one machine share a cookie jar
        )

    def state_of(self, fields: Fields, query: str) -> SignInState:
        """The sign-in state of a request."""
        asked = [value for name, value in parse_qsl(query, keep_blank_values=True) if name == PARAMETER]
        pairs = (pair.strip().partition("=") for line in fields.get("cookie", ()) for pair in line.split(";"))
        if self._matches([value for name, _, value in pairs if name == self._name], self._cookie):
            return "link" if asked else "in"
        bearers = [value[7:].strip() for value in fields.get("authorization", ()) if value[:7].lower() == "bearer "]
        if self._matches([*bearers, *asked], self.token):
            return "link" if asked else "in"
        return "out"

    @property
    def set_cookie(self) -> str:
        """The header of a cookie that keeps a browser signed in until it is closed. No script can read it, no other site can
        send it."""
        return f"{self._name}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), sha256).hexdigest()

    def _matches(self, presented: Sequence[str], wanted: str) -> bool:
        return any([hmac.compare_digest(value.encode(), wanted.encode()) for value in presented])


def without_token(query: str) -> str:
    """The query without the token, for the browser's address bar and history."""
    return urlencode([pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != PARAMETER])


@contextmanager
def way_in(url: str) -> Iterator[str]:
    """The address of a file that redirects to this URL. The file is deleted after a minute, or when the context ends."""
    with TemporaryDirectory(prefix="ratioscope-") as folder:  # 0700
        file = Path(folder) / "dashboard.html"
        file.touch(mode=0o600)
        file.write_text(PAGE.format(url=escape(url)), encoding="utf-8")
        leaving = Timer(SECONDS, file.unlink, kwargs={"missing_ok": True})
        leaving.daemon = True
        leaving.start()
        try:
            yield file.as_uri()
        finally:
            leaving.cancel()
