"""The address of a run on a store, such as s3://bucket/runs/a. Its shown form never holds a password or a query."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from ratioscope.errors import SourceError

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/(/?)(.*)", re.DOTALL)
_SHORTENED = (
    "s3",
    "s3a",
    "gs",
    "gcs",
    "hf",
    "abfs",
    "abfss",
    "az",
    "adl",
    "file",
    "memory",
    "http",
    "https",
    "sftp",
    "ssh",
    "hdfs",
)
"""Schemes that are known again after pathlib made one slash of two."""
_LEAST_SECRET = 4
"""A shorter part of an address is not looked for in messages: it would stand in half of all words."""


@dataclass(frozen=True)
class Address:
    """The place of a run on a store."""

    scheme: str
    """The scheme in small letters, such as s3."""
    url: str = field(repr=False)
    """All of it, with secrets: for fsspec alone."""
    shown: str = ""
    """The address for people: user, password, query and fragment are stars."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """The parts that no message may contain."""

    def __str__(self) -> str:
        return self.shown

    @property
    def name(self) -> str:
        """The last name in its path."""
        return self.shown.partition("?")[0].rstrip("/").rpartition("/")[2]

    def scrubbed(self, text: str) -> str:
        """The text without the address's secrets, and without any query: a signed request has its signature there."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return re.sub(r"(\w+://[^\s'\"?]*)\?[^\s'\"]*", r"\1?***", text)


def address_of(place: str | os.PathLike[str]) -> Address | None:
    """The address that these words are; None for a path on this machine. SourceError for a URL that names no place.

    >>> address_of("s3://key:word@bucket/run?versionId=7").shown
    's3://***@bucket/run?***'
    >>> address_of("runs/a") is None
    True
    """
    text = os.fspath(place)
    match = _URL.fullmatch(text)
    if match is None or (not match[2] and (match[1] not in _SHORTENED or Path(text).exists())):
        return None
    scheme, rest = match[1], match[3]
    if scheme == "file" and not match[2]:
        rest = f"/{rest}"  # file:/runs/a was file:///runs/a
    body, mark, _ = _split(rest)
    authority, slash, path = body.partition("/")
    user, at, host = authority.rpartition("@")
    shown = f"{scheme}://{'***@' if at else ''}{host}{slash}{path.rstrip('/')}{mark and mark + '***'}"
    if not (host or path.strip("/")):
        raise SourceError(f"{shown} names no place; wanted a URL of a run, such as s3://bucket/runs/a")
    return Address(scheme, f"{scheme}://{rest}".rstrip("/"), shown, _secrets(user, rest[len(body) + 1 :]))


def _split(rest: str) -> tuple[str, str, str]:
    """(the path, ? or # or nothing, the query)."""
    places = [place for mark in "?#" if (place := rest.find(mark)) >= 0]
    first = min(places, default=len(rest))
    return rest[:first], rest[first : first + 1], rest[first + 1 :]


def _secrets(user: str, query: str) -> tuple[str, ...]:
    values = [part.partition("=")[2] for part in re.split(r"[&;#]", query)]
    every = {user, query, *user.split(":"), *values}
    every |= {unquote(secret) for secret in every}
    return tuple(sorted((part for part in every if len(part) >= _LEAST_SECRET), key=len, reverse=True))
