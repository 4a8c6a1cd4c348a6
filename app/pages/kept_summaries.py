"""Summaries of runs in the user's cache folder, so that a long list of runs that nobody writes is there at once.

A summary is kept under everything that it was made of: the files of the run's record by size and time, the state of its
writers, and the definitions of the metrics. A run that may grow is always read.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from ratioscope.errors import RatioscopeError
from ratioscope.ingest.files.cache import Cache, cache_key
from ratioscope.ingest.files.cache_folder import cache_folder
from ratioscope.ingest.statistics.kept_tables import definitions
from ratioscope.inside import folder, status
from ratioscope.layout import COMMITS, RUN_FILE
from ratioscope.metrics.grading.run_rules import RULES_FILE

from ..presentation.run_state import Life
from .folder import Summary

FolderSignature = tuple[tuple[str, int, int], ...]
LASTING: tuple[Life, ...] = ("ended", "dead")
"""The lives of a run that nobody writes."""
_COLUMN = "summary"


def signature_of(path: str) -> FolderSignature:
    """Names, sizes and times of the commit logs, of run.json and of the run's own rules: they change with every commit."""
    files: list[tuple[str, int, int]] = []
    for name in (RUN_FILE, RULES_FILE):
        with suppress(OSError):
            about = status(Path(path), name)
            files.append((name, about.st_size, about.st_mtime_ns))
    with suppress(OSError), folder(Path(path), COMMITS) as at, os.scandir(at) as entries:
        for entry in entries:
            about = entry.stat(follow_symlinks=False)
            files.append((entry.name, about.st_size, about.st_mtime_ns))
    return tuple(sorted(files))


def read_summary(read: Callable[[], Summary]) -> Summary:
    """The summary that is read; where that cannot be, one with the reason."""
    try:
        return read()
    except RatioscopeError as error:
        return Summary(error=str(error))
    except OSError as error:
        return Summary(error=f"it cannot be opened: {error.strerror}")


def keep_summary(path: str, made_of: FolderSignature, life: Life | None, known: Summary, *, is_diagnosed: bool) -> None:
    """Keeps what was made of the run with this signature, unless it may grow or cannot be read."""
    if life in LASTING and not known.error:
        text = json.dumps(asdict(known), default=lambda value: value.isoformat())
        Cache(cache_folder()).store(_key(path, made_of, life, is_diagnosed), pa.table({_COLUMN: [text]}))


def kept_summary(path: str, made_of: FolderSignature, life: Life | None, *, is_diagnosed: bool) -> Summary | None:
    """The kept summary of the run with this signature and state of its writers; None if there is none, or it is damaged."""
    table = None if life not in LASTING else Cache(cache_folder()).load(_key(path, made_of, life, is_diagnosed))
    try:
        return None if table is None else _of(json.loads(table[_COLUMN][0].as_py()))
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def _of(plain: dict[str, object]) -> Summary:
    lists = {name: tuple(own) for name, own in plain.items() if isinstance(own, list)}
    started = plain["started"]
    began = datetime.fromisoformat(started) if isinstance(started, str) else None
    return Summary(**{**plain, **lists, "started": began})  # type: ignore[arg-type]


def _key(path: str, made_of: FolderSignature, life: Life | None, is_diagnosed: bool) -> str:
    return cache_key(("runs list", os.path.realpath(path), str(made_of), str(life), str(is_diagnosed), definitions()))
