"""The way into a dashboard with a token for a browser that is started here: a file that nobody else can read.

What a program is given as an argument stands in every list of processes, and a browser is given the address to open.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer

SECONDS = 60.0
"""How long the file lies there, at most: a browser may have to be started first."""
PAGE = """<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>ratioscope</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'"><meta http-equiv="refresh" content="0; url={url}">
If no dashboard comes: the terminal shows its link.
"""


@contextmanager
def way_in(url: str) -> Iterator[str]:
    """The address of a file that leads to this URL; gone after a minute, or when the context ends."""
    with TemporaryDirectory(prefix="ratioscope-") as folder:  # 0700
        file = Path(folder) / "dashboard.html"
        file.touch(mode=0o600)
        file.write_text(PAGE.format(url=escape(url)), encoding="utf-8")
        leaving = Timer(SECONDS, file.unlink, kwargs={"missing_ok": True})
        leaving.daemon = True
        leaving.start()
        try:
            yield file.as_uri()
        finally:
            leaving.cancel()
