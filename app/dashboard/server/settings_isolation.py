"""The server reads no settings from the folder it was started in, which may be a stranger's: `cd FOLDER; ratioscope dashboard .`

Streamlit reads its configuration there (a theme may be a URL that the server requests), and secrets, which it turns into
environment variables (BROWSER is a command line). Other libraries read their settings there, and Python modules.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from ratioscope.errors import MissingExtra

PLACE = Path(__file__).resolve().parent
"""A folder of ours, into which nobody else puts files."""


@contextmanager
def isolated_settings() -> Iterator[None]:
    """Until the context ends, this process works in a folder of ours and Streamlit finds no settings file, not in the user's
    home either, so that only the settings of server.py apply."""
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
