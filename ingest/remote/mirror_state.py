"""The known state of the copy of a run on a store: its address, when it was read last, and which state of each log was read.

The file lies beside the copy, in the user's cache. It holds no password: an address with one is not written.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

from ratioscope.flat_json import loaded
from ratioscope.whole_file import whole_file

STATE_FILE = "state.json"
_MOST_BYTES = 1 << 24


@dataclass
class MirrorState:
    """The known state of a copy."""

    shown: str = ""
    """The address for people."""
    url: str = ""
    """The address, if it holds no secret; else empty."""
    run: str | None = None
    """The `id` of the run that was copied."""
    read: float | None = None
    """When the store was last read to the end, in seconds since 1970."""
    failed: float | None = None
    """When it last failed; None if the last try succeeded."""
    why: str = ""
    """Why it failed."""
    marks: dict[str, list[Any]] = field(default_factory=dict)
    """Log, run.json or ratioscope.toml -> [bytes of the copy, the store's mark of that state]."""
    refused: dict[str, str] = field(default_factory=dict)
    """Path on the store -> why it was not copied."""


_KINDS: dict[str, Any] = {
    **dict.fromkeys(("shown", "url", "why"), str),
    **dict.fromkeys(("read", "failed"), (float, int, NoneType)),
    **dict.fromkeys(("marks", "refused"), dict),
    "run": (str, NoneType),
}


def load(folder: Path) -> MirrorState:
    """The state in the folder; an empty one where it cannot be read: everything is then read again."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        with open(folder / STATE_FILE, "rb") as file:
            known = loaded(file.read(_MOST_BYTES).decode())
        state = MirrorState(**{name: known[name] for name in MirrorState.__dataclass_fields__ if name in known})
        if all(isinstance(getattr(state, name), kinds) for name, kinds in _KINDS.items()):
            return state
    return MirrorState()


def save(folder: Path, state: MirrorState) -> None:
    """Writes the state whole. A cache that cannot be written keeps the older state."""
    with suppress(OSError), whole_file(folder / STATE_FILE) as file:
        file.write(json.dumps(asdict(state)).encode())
