"""Who has signed in to a dashboard that others can reach: the token, where it may be presented, and how often it may be guessed.

The token is given once, in the link that the command prints; the browser then holds a cookie that is made from it and does not
tell it, for other servers of the same machine are sent that cookie too.
"""

import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from ratioscope.errors import ConfigError

SHORTEST = 16
"""Characters of a token; what `generate` makes has 43. Convention: 64 bits even of hexadecimal digits."""
GUESSES = 10
"""Wrong tokens that are answered at once; then one every REFILL_SECONDS, over all who ask. Convention."""
REFILL_SECONDS = 6.0
PARAMETER = "token"

Fields = Mapping[str, Sequence[str]]
"""Headers of a request by lower-case name."""
Standing = Literal["in", "link", "out", "later"]
"""in: signed in; link: signed in, with a token in the URL that must go; out: not signed in; later: too many have guessed."""


def checked(token: str) -> str:
    """The token, if it is one that may be used: printable ASCII without spaces, and not short."""
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"the token has {len(token)} characters; wanted at least {SHORTEST} printable ones of ASCII, without spaces: "
            "--token generate makes one"
        )
    return token


def generated() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(32)


@dataclass
class SignIn:
    """Compares what requests present with the token, in a time that does not depend on how much of it is right."""

    token: str = field(repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    def __post_init__(self) -> None:
        self._left, self._seen = float(GUESSES), self.clock()
        self._cookie = self._derived("cookie")
        self._name = (
            f"ratioscope-{self._derived('name')[:8]}"  # one per token: servers of one machine share a cookie jar
        )

    def standing(self, fields: Fields, query: str) -> Standing:
        """How a request stands. Only wrong tokens count as guesses; those who are signed in never wait."""
        asked = [value for name, value in parse_qsl(query, keep_blank_values=True) if name == PARAMETER]
        if self._matches(self._cookies(fields), self._cookie):
            return "link" if asked else "in"
        bearers = [value[7:].strip() for value in fields.get("authorization", ()) if value[:7].lower() == "bearer "]
        if not (presented := [*bearers, *asked]):
            return "out"
        if not self._may_guess():
            return "later"
        if self._matches(presented, self.token):
            return "link" if asked else "in"
        self._left -= 1
        return "out"

    @property
    def set_cookie(self) -> str:
        """The header that keeps a browser signed in until it is closed: no script reads it, no other site sends it."""
        return f"{self._name}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), sha256).hexdigest()

    def _cookies(self, fields: Fields) -> list[str]:
        pairs = (pair.strip().partition("=") for line in fields.get("cookie", ()) for pair in line.split(";"))
        return [value for name, _, value in pairs if name == self._name]

    def _matches(self, presented: Sequence[str], wanted: str) -> bool:
        return any([hmac.compare_digest(value.encode(), wanted.encode()) for value in presented])

    def _may_guess(self) -> bool:
        now = self.clock()
        self._left = min(float(GUESSES), self._left + (now - self._seen) / REFILL_SECONDS)
        self._seen = now
        return self._left >= 1


def without_token(query: str) -> str:
    """The query without the token, to be seen and kept by the browser."""
    return urlencode([pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != PARAMETER])
