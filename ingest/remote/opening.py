"""From an address to the copy of its run, and back from the folder of a copy to the store.

Copies lie in $XDG_CACHE_HOME/ratioscope/remote, by default ~/.cache/ratioscope/remote. A folder elsewhere is never taken for a
copy, whatever it holds: a stranger's folder cannot make anybody ask a store.
"""

import hashlib
import os
import re
import threading
from pathlib import Path

from ratioscope.errors import ConfigError, SourceError

from .address import Address, address_of
from .filesystems import S3, s3_endpoint
from .mirror import Mirror
from .mirror_state import load
from .store import Store, Unreachable

_MIRRORS: dict[Path, Mirror] = {}
"""The copies that this process opened. An address with a password is nowhere else, because no file may hold it."""
_lock = threading.Lock()


def mirrors_folder() -> Path:
    """The folder of all copies. ConfigError where the user has no home."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    base = chosen if os.path.isabs(chosen) else os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        raise ConfigError("a run on a store needs a cache, and this user has no home folder; set XDG_CACHE_HOME")
    return Path(base).resolve() / "ratioscope" / "remote"


def local_run(place: str | os.PathLike[str]) -> Path:
    """The folder to open for a run: a path as it is; for a URL its copy, with the newest commits, or the last known state.

    SourceError where a URL has no run, or where its store does not answer and no earlier state is known.
    """
    address = address_of(place)
    if address is None:
        return Path(place)
    if address.scheme == "file":
        return Path(address.url.partition("://")[2])
    mirror = mirror_of(address)
    try:
        mirror.sync()
    except Unreachable:
        if not mirror.is_known:
            raise
    return mirror.root


def place_of(run: str | os.PathLike[str]) -> str:
    """The place of a run, for people: its path, or its URL without secrets."""
    address = address_of(run)
    if address is not None:
        return address.shown
    mirror = mirror_at(Path(run))
    return os.fspath(run) if mirror is None else mirror.store.address.shown


def follow(run: Path) -> None:
    """Brings the copy of a run on a store up to date; nothing for any other folder. A store that fails is noted in the copy."""
    if (mirror := mirror_at(run)) is not None:
        mirror.follow()


def follow_apart(run: Path) -> None:
    """As `follow`, from a thread of its own: readers of the run do not ask the store for new commits any more."""
    if (mirror := mirror_at(run)) is not None:
        mirror.is_followed = True
        mirror.follow(every=0)


def mirror_of(address: Address) -> Mirror:
    """The copy of the run at an address."""
    server = s3_endpoint() if address.scheme in S3 else ""
    key = hashlib.sha256(f"{address.shown} {server}".encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.=-]", "_", address.name)[:100].lstrip("._") or "run"
    root = mirrors_folder() / key / name
    with _lock:
        known = _MIRRORS.get(root)
        if known is None or known.store.address.url != address.url:
            known = _MIRRORS[root] = Mirror(root, Store(address))
        return known


def mirror_at(root: Path) -> Mirror | None:
    """The copy whose run folder this is; None for any other folder."""
    try:
        folder = root.resolve()
        if folder.parent.parent != mirrors_folder():
            return None
    except (OSError, ConfigError):
        return None
    with _lock:
        if folder in _MIRRORS:
            return _MIRRORS[folder]
    state = load(folder.parent)
    address = address_of(state.url) if state.url else None
    if address is None:
        shown = state.shown or "its address"
        raise SourceError(f"{folder} is a copy of a run, and {shown} is not known here; open the run by its URL")
    return mirror_of(address)
