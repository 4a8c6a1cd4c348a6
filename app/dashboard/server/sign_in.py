"""Who has signed in to a dashboard that others can reach: the token, and where it may be presented.

Wrong tokens are not counted: whoever has the right one is let in at once, whatever others send. Guessing is kept hopeless by the
length of the token: at 10,000 guesses a second 64 bits last for 29 million years on average.
The token is given once, in the link that the command prints; the browser then holds a cookie that is made from it and does not
tell it, for other servers of the same machine are sent that cookie too.
"""

import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from ratioscope.errors import ConfigError

SHORTEST = 16
"""Characters of a token; what `generate` makes has 43. Convention: 64 bits even of hexadecimal digits."""
DIFFERENT = 6
"""Different characters in it, so that nobody repeats one. Convention."""
PARAMETER = "token"

Fields = Mapping[str, Sequence[str]]
"""Headers of a request by lower-case name."""
SignInState = Literal["in", "link", "out"]
"""in: signed in; link: signed in, with a token in the URL that must go; out: not signed in."""


def checked(token: str) -> str:
    """The token, if it is one that may be used: printable ASCII without spaces, and not easy to guess."""
    plain = token.isascii() and token.isprintable() and " " not in token
    if len(token) < SHORTEST or len(set(token)) < DIFFERENT or not plain:
        raise ConfigError(
            f"the token has {len(token)} characters, {len(set(token))} of them different; wanted at least {SHORTEST}, "
            f"{DIFFERENT} of them different, printable ASCII without spaces: --token generate makes one"
        )
    return token


def generated() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(32)


@dataclass
class SignIn:
    """Compares what requests present with the token, in a time that does not depend on how much of it is right."""

    token: str = field(repr=False)

    def __post_init__(self) -> None:
        self._cookie = self._derived("cookie")
        self._name = (
            f"ratioscope-{self._derived('name')[:8]}"  # one per token: servers of one machine share a cookie jar
        )

    def state_of(self, fields: Fields, query: str) -> SignInState:
        """How a request stands."""
        asked = [value for name, value in parse_qsl(query, keep_blank_values=True) if name == PARAMETER]
        if self._matches(self._cookies(fields), self._cookie):
            return "link" if asked else "in"
        bearers = [value[7:].strip() for value in fields.get("authorization", ()) if value[:7].lower() == "bearer "]
        if self._matches([*bearers, *asked], self.token):
            return "link" if asked else "in"
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


def without_token(query: str) -> str:
    """The query without the token, to be seen and kept by the browser."""
    return urlencode([pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != PARAMETER])
