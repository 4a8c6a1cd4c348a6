"""The options of the verbs that serve the dashboard: address, visitors, and first page."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlencode

import typer

from ratioscope.errors import ConfigError, MissingExtra

from ...dashboard.server.options import ServerOptions, checked_options
from ...dashboard.server.sign_in import generated

TOKEN = "RATIOSCOPE_TOKEN"
"""The environment variable that may hold the token itself: every list of processes would show an argument."""
_LARGEST = 4096

Port = Annotated[int, typer.Option(envvar="PORT", min=0, max=65535, help="Port to serve on; 0 picks a free one.")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the URL without opening a browser.")]
Host = Annotated[
    str, typer.Option(help="Address to listen on. Every address except loopback needs --token and --allow-host.")
]
Token = Annotated[
    str | None,
    typer.Option(
        metavar="generate|FILE", help=f"Ask visitors for a token: a new one, or the one in FILE; or set {TOKEN}."
    ),
]
AllowHost = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A host name that browsers use for this machine; repeatable.")
]


def server_options(host: str, port: int, token: str | None, allow_host: Sequence[str] | None) -> ServerOptions:
    """The options of the server; ConfigError if they are not safe."""
    return checked_options(ServerOptions(host, port, _token(token), tuple(allow_host or ())))


def _token(source: str | None) -> str | None:
    held = os.environ.pop(TOKEN, "")  # no library in this process needs it
    if source is None:
        return held or None
    if source == "generate":
        return generated()
    try:
        with Path(source).open("rb") as file:
            return file.read(_LARGEST).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(
            f"--token takes `generate` or a file that holds the token, and it cannot be read: {reason}; "
            f"a token itself goes into the environment: {TOKEN}=... ratioscope dashboard RUN"
        ) from None


def place_of(page: str | None, choices: dict[str, str | int | None], more: Sequence[str] | None) -> str:
    """The part of the URL that opens this page. choices, more (`key=value`): values of the page's controls."""
    try:
        import streamlit  # noqa: F401  # tested first: a later ImportError of the pages is a defect and must show as one
    except ImportError:
        raise MissingExtra("the dashboard", "dashboard") from None
    from ...pages.pages import MOVED, PAGES, address_of

    paths, page = [card.path for card in PAGES], MOVED.get(page or "", page)
    if page is not None and page not in paths:
        raise ConfigError(f"--page {page} is no page; wanted one of {', '.join(paths)}")
    query = {key: str(value) for key, value in choices.items() if value is not None}
    for pair in more or ():
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise ConfigError(f"--choose {pair}: wanted KEY=VALUE as in the URL of a page, such as order=kl_k3")
        query[key] = value
    path = address_of(page or paths[0])
    return path + (f"?{urlencode(query, quote_via=quote)}" if query else "")
