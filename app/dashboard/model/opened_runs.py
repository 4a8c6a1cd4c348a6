"""A queue of opened runs: a page puts its run here, and the server prepares the other pages of that run."""

from queue import SimpleQueue

_OPENED: SimpleQueue[str] = SimpleQueue()
_KNOWN: set[str] = set()


def run_opened(path: str) -> None:
    """Notes that a page of this run was drawn, so that its other pages are prepared while the reader looks at this one."""
    if path not in _KNOWN:
        _KNOWN.add(path)
        _OPENED.put(path)


def next_opened() -> str:
    """The path of the next run that was opened; waits for one."""
    return _OPENED.get()
