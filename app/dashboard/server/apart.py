"""A server that reads nothing of the folder it was started in, which may be a stranger's: `cd FOLDER; ratioscope dashboard .`

Streamlit looks there for its configuration (a theme may be a URL that the server asks), and for secrets, which it makes
environment variables (BROWSER is a command line). Other libraries look there for settings of theirs, and Python for modules.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from ratioscope.errors import MissingExtra

PLACE = Path(__file__).resolve().parent
"""A folder of ours, in which nobody else puts files."""


@contextmanager
def apart() -> Iterator[None]:
    """While it is open this process works in a folder of ours, and Streamlit finds no file of its settings: none in the user's
    home either, so that what server.py sets is what counts."""
    try:
        from streamlit import config
    except ImportError:
        raise MissingExtra("the dashboard", "dashboard") from None

    path, files = list(sys.path), config.get_config_files
    with chdir(PLACE):
        sys.path[:] = [entry for entry in path if os.path.isabs(entry)]
        config.get_config_files = _none
        try:
            yield
        finally:
            config.get_config_files, sys.path[:] = files, path


def _none(file_name: str) -> list[str]:
    return []
