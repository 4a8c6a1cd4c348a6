"""The folder of the user's cache. Imports nothing heavy, because the command line needs it first."""

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """$XDG_CACHE_HOME/ratioscope/statistics, by default ~/.cache/ratioscope/statistics; None where the user has no home."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    base = chosen if os.path.isabs(chosen) else os.path.expanduser("~/.cache")
    return Path(base) / "ratioscope" / "statistics" if os.path.isabs(base) else None
