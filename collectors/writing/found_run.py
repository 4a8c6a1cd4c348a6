"""A run as a start of a job finds it in its folder."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ratioscope.flat_json import loaded
from ratioscope.inside import content, entries
from ratioscope.layout import RUN_FILE, RUN_MEMBERS, SCALARS, STATISTICS, TOKENS

from .joining import openings
from .run_file import MOST_BYTES, launch
from .same_experiment import differences, without_ids

_MOST_NAMES = 1_000_000


def differences_to(run: Path, info: Mapping[str, Any], rank: int) -> list[str]:
    """The differences of the newest attempt of the run and a start, each in words. rank: of this process."""
    scripts = {str(without_ids(writer["script"], writer)) for writer in openings(run) if writer.get("script")}
    return differences(as_newest(run_file_of(run)), {**info, "launch": launch()}, scripts, rank)


def has_steps(root: Path) -> bool:
    """True if there is any step."""
    marks = ((TOKENS, "step="), (STATISTICS, ".parquet"), (SCALARS, ".parquet"))
    return any(mark in name for part, mark in marks for name in names_in(root, part))


def names_in(root: Path, part: str = "") -> Iterator[str]:
    """Names in a folder of the run; none where it cannot be listed."""
    with suppress(OSError):
        yield from (found.name for found in entries(root, part, _MOST_NAMES))


def run_file_of(root: Path) -> dict[str, Any]:
    """run.json; empty where it cannot be read."""
    try:
        found = loaded(content(root, RUN_FILE, MOST_BYTES))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_of_a_run(run_file: Mapping[str, Any]) -> bool:
    """True unless this is the run.json of another program; one that cannot be read may be ours."""
    return not run_file or not RUN_MEMBERS.isdisjoint(run_file)


def as_newest(run: Mapping[str, Any]) -> dict[str, Any]:
    """run.json as the newest attempt described itself."""
    attempts = run.get("attempts")
    entry = attempts[-1] if isinstance(attempts, list) and attempts and isinstance(attempts[-1], dict) else {}
    return {**run, **{name: value for name, value in entry.items() if value not in (None, {}, [])}}


def described(root: Path) -> str:
    """The run in a few words: its trainer and steps."""
    trainer = as_newest(run_file_of(root)).get("trainer")
    steps = [int(name[5:]) for name in names_in(root, TOKENS) if re.fullmatch(r"step=-?\d{1,18}", name)]
    span = f", steps {min(steps)} to {max(steps)}" if steps else ""
    return f"a run{f' of {str(trainer)[:80]}' if trainer else ''}{span}"
