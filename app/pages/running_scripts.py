"""The page scripts that run at this moment, one thread for each reader. Work done in advance waits until they have ended."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident, local

SCRIPTS: dict[int, object] = {}
"""Thread -> the running script of a page."""
_IDLE: set[int] = set()
"""The threads of these scripts that wait for a value."""
PATIENCE = 3.0
"""Seconds at most that work done in advance waits: a page may itself wait for that work, or may be drawn without end."""


@contextmanager
def at_work() -> Iterator[None]:
    """Notes this thread as busy with the script of a page until the outermost context ends."""
    if get_ident() in SCRIPTS:
        yield
        return
    SCRIPTS[get_ident()] = object()
    try:
        yield
    finally:
        SCRIPTS.pop(get_ident(), None)


@contextmanager
def idle() -> Iterator[None]:
    """This thread waits for a value that another one computes: until the context ends no work in advance waits for it."""
    _IDLE.add(get_ident())
    try:
        yield
    finally:
        _IDLE.discard(get_ident())


def wait_for_pages() -> None:
    """Returns when no page is being drawn, or after PATIENCE. Threads that work in advance call it between two pieces of work."""
    until = time.monotonic() + PATIENCE
    while SCRIPTS.keys() - _IDLE and time.monotonic() < until:
        time.sleep(0.05)


@contextmanager
def in_advance() -> Iterator[None]:
    """Until the context ends `rest` has this thread wait for pages. It may hold no lock that a page waits for."""
    _OWN.works_in_advance = True
    try:
        yield
    finally:
        _OWN.works_in_advance = False


def rest(*_: object) -> None:
    """Waits for pages if this thread works in advance. Long computations call it between their parts."""
    if getattr(_OWN, "works_in_advance", False):
        wait_for_pages()


_OWN = local()
