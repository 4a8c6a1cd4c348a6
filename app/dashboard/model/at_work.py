"""Which scripts of the dashboard are at work: a thread draws a page for one reader."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

SCRIPTS: dict[int, object] = {}
"""Thread -> the running script of a page."""


@contextmanager
def at_work() -> Iterator[None]:
    """While it is open, the script of a page is at work in this thread."""
    SCRIPTS[get_ident()] = object()
    try:
        yield
    finally:
        SCRIPTS.pop(get_ident(), None)
