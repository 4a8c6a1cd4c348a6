"""Tags that readers put on runs: in the run for everybody, or beside this server if the run cannot be written."""

import json
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from ratioscope.collectors.writing.offline import write_remark
from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.analysis.acknowledgements import note_of
from ratioscope.layout import TAG
from ratioscope.whole_file import whole_file

from ...referee.baselines import baselines_folder

SCHEMA = "ratioscope-tags/1"
_LOCK = Lock()


def tags_file() -> Path:
    """$XDG_CONFIG_HOME/ratioscope/tags.json, by default ~/.config/ratioscope/tags.json."""
    return baselines_folder().with_name("tags.json")


def tags_beside() -> dict[str, dict[str, bool]]:
    """Path of a run -> tag -> True if it was put on it, False if it was taken off. ConfigError if the file is damaged."""
    path = tags_file()
    try:
        read = json.loads(path.read_bytes())
        if read["schema"] != SCHEMA:
            raise ValueError(f"wanted schema {SCHEMA}")
        runs = read["runs"].items()
        return {str(run): {str(tag): holds is True for tag, holds in own.items()} for run, own in runs}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read ({str(error)[:120]}); mend it, or move it away") from error


def with_beside(tags: tuple[str, ...], beside: Mapping[str, bool]) -> tuple[str, ...]:
    """The tags of a run as readers of this server see them."""
    kept = {*tags} - {tag for tag, holds in beside.items() if not holds}
    return tuple(sorted(kept | {tag for tag, holds in beside.items() if holds}))


def put_tag(path: str, tag: str, *, holds: bool) -> str:
    """Puts the tag on the run, or takes it off. Returns the reason why it is kept beside the server; empty if the run keeps it.

    ConfigError if it can be kept nowhere.
    """
    try:
        write_remark(path, TAG, 0, note_of(tag, holds=holds))
        why = ""
    except SourceError as error:
        why = str(error)
    with _LOCK:
        known = tags_beside()
        if why or tag in known.get(path, {}):  # what the run keeps itself counts from now on
            own = {name: on for name, on in known.get(path, {}).items() if name != tag} | ({tag: holds} if why else {})
            _write(known | {path: own})
    return why


def _write(runs: Mapping[str, Mapping[str, bool]]) -> None:
    path = tags_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(json.dumps({"schema": SCHEMA, "runs": {run: own for run, own in runs.items() if own}}).encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}; wanted a folder that you may write") from error
