"""Reads run.json, and the rules of a run in its ratioscope.toml or in a file that the user names.

A damaged, changed or missing run.json gives a note; one with a newer schema is an error.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.flat_json import loaded
from ratioscope.inside import content
from ratioscope.layout import RUN_FILE, checksum
from ratioscope.metrics.grading.run_rules import NO_FILE, RULES_FILE, RunRules, run_rules
from ratioscope.record import SCHEMA_VERSION, newer_schema
from ratioscope.toml_file import MOST_BYTES, tables, tables_of_file

from .quarantine import printable

_MOST_BYTES = 1 << 22
_OF_RUN = {"id", "name", "schema_version", "attempts"}
_OF_ENTRY = {"attempt", "time", "launch", "name"}
_CHANGED = f"{RUN_FILE} was changed after it was written: the run's name, trainer and settings may not be as recorded"


@dataclass(frozen=True)
class RunFile:
    """run.json as it was read."""

    info: dict[str, Any] = field(default_factory=dict)
    """Its content; empty where it cannot be read."""
    note: str | None = None
    """Why it cannot be read, or that it was changed after it was written."""
    is_unread: bool = False
    """True if the disk or store did not give it: that tells nothing of what it holds, and may pass."""

    @property
    def has_attempts(self) -> bool:
        """True if a later start than the first one is described."""
        return len(_entries(self.info)) > 1

    def of_attempt(self, number: int) -> dict[str, Any]:
        """The content as this start described itself: the members that it changed replace those of the first start."""
        if not self.has_attempts:
            return self.info
        first = {name: value for name, value in self.info.items() if name not in _OF_RUN}
        entries = [first | _told(entry) for entry in _entries(self.info)]
        own = next((entry for entry in entries if entry.get("attempt") == number), {})
        return {**self.info, **{name: own[name] for name in own.keys() - _OF_ENTRY}, "attempts": entries}

    def name(self, folder: Path) -> str:
        """The run's name; where it has none, the name of its folder."""
        return printable(str(self.info.get("name") or folder.resolve().name))


def _entries(info: dict[str, Any]) -> list[dict[str, Any]]:
    entries = info.get("attempts")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _told(entry: dict[str, Any]) -> dict[str, Any]:
    """The members of the entry that say something: a start that knew no settings did not change them."""
    return {name: value for name, value in entry.items() if value not in (None, {}, [])}


def stated_id(root: Path) -> str | None:
    """The `id` in run.json; None where it has none, or cannot be read."""
    try:
        run_id = run_file(root).info.get("id")
    except SourceError:
        return None
    return run_id if isinstance(run_id, str) else None


def run_file(root: Path) -> RunFile:
    """run.json of the run; SourceError if a newer ratioscope wrote it."""
    try:
        info = loaded(content(root, RUN_FILE, _MOST_BYTES))
    except FileNotFoundError:
        return RunFile(
            note=f"{RUN_FILE} is missing: the run is named after its folder, its trainer and settings are unknown"
        )
    except (OSError, ValueError) as error:
        words = f"{RUN_FILE} cannot be read: {printable(str(error))[:200]}"
        return RunFile(note=words, is_unread=isinstance(error, OSError))
    if not isinstance(info, dict):
        return RunFile(note=f"{RUN_FILE} holds no object but {printable(str(info))[:60]!r}")
    stated = info.pop("crc32", None)  # absent in runs that an older ratioscope wrote
    note = None if stated in (None, checksum(info)) else _CHANGED
    version = info.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise SourceError(f"{root}: {newer_schema(version)}")
    return RunFile(info, note)


def rules_of_folder(root: Path) -> RunRules:
    """The rules in the run folder. A file that is wrong is not used, and the rules say why: the run may be a stranger's."""
    try:
        return run_rules(tables(content(root, RULES_FILE, MOST_BYTES), RULES_FILE), _codes(), RULES_FILE)
    except FileNotFoundError:
        return NO_FILE
    except (OSError, ValueError) as error:
        return RunRules(source=RULES_FILE, fault=printable(str(error))[:300])


def rules_of_file(path: Path) -> RunRules:
    """The rules in a file that the user names; ConfigError if it is wrong."""
    return run_rules(tables_of_file(path), _codes(), path.name)


def _codes() -> tuple[str, ...]:
    from ratioscope.metrics.diagnosis.catalogue import CAUSE  # takes 20 ms, and few runs have rules

    return tuple(CAUSE)
