"""Options of the verbs that ask running engines: names and addresses, the key, requests in flight, and the load that is told."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.errors import ConfigError, SourceError

from ..presentation.digits import count
from .terminal import note, working

if TYPE_CHECKING:
    from ..referee.engines import Engine

InFlightOption = Annotated[int, typer.Option(min=1, max=64, help="Requests that a server gets at a time.")]
KeyOption = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="A file with the servers' key; else $RATIOSCOPE_ENGINE_KEY. It is never kept."),
]
DeviceOption = Annotated[
    str | None, typer.Option(metavar="cpu|cuda", help="The device of a checkpoint; else cuda if there is one.")
]
_NAMED = re.compile(r"(?:([\w.:-]{1,60})=(?=https?://)|([\w.-]{1,60})=)(?=.)", re.ASCII)


def named(texts: Sequence[str], unnamed: Callable[[int], str]) -> dict[str, str]:
    """Name -> what is behind NAME=, in their order. unnamed: the name by place. ConfigError if two have one name."""
    found: dict[str, str] = {}
    for place, text in enumerate(texts):
        match = _NAMED.match(text)
        name, own = (match[1] or match[2], text[match.end() :]) if match else (unnamed(place), text)
        if name in found:
            raise ConfigError(f"two have the name {name}; wanted a name each: NAME={own}")
        found[name] = own
    return found


def engines_at(addresses: dict[str, str], key_file: Path | None, in_flight: int = 1) -> "dict[str, Engine]":
    """Name -> the engine at an address, after each was asked what it is. ConfigError or SourceError for one that is none."""
    from ..referee.engines import engines_at as asked
    from ..referee.server import server_at

    key = engine_key(key_file)
    servers = {name: server_at(address, key) for name, address in addresses.items()}
    with working("asking the servers what they are"):
        return asked(servers, in_flight)


def engine_key(path: Path | None) -> str:
    """The key of the servers, from a file or the environment; "" without one."""
    from ..referee.server import KEY

    if path is None:
        return os.environ.get(KEY, "").strip()
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(
            f"--engine-key-file {path} cannot be read: {type(error).__name__}; wanted a file with the key"
        ) from None


def tell_load(in_flight: int) -> None:
    """Says what a server is asked to bear."""
    note(
        f"a server that serves training is slowed while it reads: at most {count(in_flight, 'request')} are in flight"
        " (--in-flight), and training that waits for its samples waits longer"
    )
