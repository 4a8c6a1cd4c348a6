"""TOML files that configure ratioscope. They may be a stranger's: the size is bounded, and unknown names are errors."""

import codecs
import os
import stat
import tomllib
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from .errors import ConfigError

MOST_BYTES = 1 << 16
"""The largest file that is read: settings take some kilobytes."""
_SHOWN = 80
"""Characters of a name or value that an error shows."""


def tables_of_file(path: Path) -> dict[str, Any]:
    """The tables of a file that the user names. ConfigError if it cannot be read, is too large, or is no TOML."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is refused, not waited for
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{path} is no regular file; wanted a TOML file")
            return tables(file.read(MOST_BYTES + 1), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; wanted a TOML file") from error


def tables(content: bytes, name: str) -> dict[str, Any]:
    """The tables of a file's content. name: the file, for errors."""
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{name} has more than {MOST_BYTES:,} bytes; wanted some kilobytes of TOML")
    try:
        return tomllib.loads(content.removeprefix(codecs.BOM_UTF8).decode())
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(f"{name} is no TOML: {reason}") from error


def demand_known(names: Iterable[str], known: Collection[str], place: str) -> None:
    """ConfigError if one of the names is not known; it shows the nearest known names. place: where the names stand."""
    for name in names:
        if name not in known:
            raise ConfigError(f"{place}: unknown name {shown(name)}; {nearest(name, known)}")


def demand_table(value: Any, place: str) -> dict[str, Any]:
    """The value, if it is a table; ConfigError otherwise."""
    if not isinstance(value, dict):
        raise ConfigError(f"{place}: found {shown(value)}; wanted a table")
    return value


def nearest(name: str, known: Collection[str]) -> str:
    """The known names that are most like this one, in words."""
    close = get_close_matches(name[:_SHOWN], known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"wanted one of {', '.join(sorted(known))}"


def shown(value: Any) -> str:
    """A value in an error, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
