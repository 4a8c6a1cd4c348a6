"""The scorer that a user names: a server's URL, a Hugging Face checkpoint, or a command."""

import re
from dataclasses import dataclass
from pathlib import Path

from ratioscope.errors import ConfigError

from ..engines import engine_at
from ..model import demand_extra, referee
from ..server import server_at
from .command import command_of
from .parity import Scorer

DTYPES = ("float32", "bfloat16", "float16")
COMMAND = "cmd:"
_NAMED = re.compile(r"([A-Za-z0-9_]{1,40})=(.+)", re.DOTALL)


@dataclass(frozen=True)
class Access:
    """The settings of scorers."""

    key: str
    """The servers' key; "" without one."""
    in_flight: int
    """Requests that a server gets at a time."""
    device: str | None
    """The device of a model; None: cuda if there is one."""
    seconds: float
    """The time that a command may take."""


def named(texts: tuple[str, ...]) -> dict[str, str]:
    """Name -> the scorer as it was given: its own name, else A or B. ConfigError if both have one name."""
    found: dict[str, str] = {}
    for letter, text in zip("AB", texts, strict=False):
        match = _NAMED.fullmatch(text)
        name, own = (match[1], match[2]) if match else (letter, text)
        if name in found:
            raise ConfigError(f"both scorers are named {name}; wanted a name each, such as vllm=URL hf=PATH")
        found[name] = own
    return found


def scorer_at(text: str, access: Access) -> Scorer:
    """The scorer, ready to read. PATH#bfloat16 loads the weights in bfloat16. ConfigError or SourceError if there is none."""
    if text.startswith(("http://", "https://")):
        return engine_at(server_at(text, access.key), access.in_flight)
    if text.startswith(COMMAND):
        return command_of(text.removeprefix(COMMAND), access.seconds)
    if "://" in text:
        raise ConfigError(f"{text[:60]}: wanted http://HOST:PORT, a checkpoint's folder, or {COMMAND}COMMAND")
    path, _, dtype = text.rpartition("#") if text.rpartition("#")[2] in DTYPES else (text, "", DTYPES[0])
    demand_extra()
    return referee(Path(path), device=access.device, dtype=dtype)
