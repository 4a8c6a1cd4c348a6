"""Whether a run folder is what its commit logs say: every log, file, digest, footer and page, walked once.

A reader meets damage when it needs the file; this looks for it beforehand. Nothing is changed, and nothing that a reader
does not believe is believed here: the checks are those of reading, made on everything.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ratioscope.errors import RatioscopeError
from ratioscope.layout import COMMITS, RUN_FILE, TOKENS

from .catalog import Catalog
from .commits import Segment, TokenFile
from .file_checks import RowsDisagree, Trouble, demand_rows, demand_segment_file
from .folder import run_folder
from .parquet_files import ParquetFiles
from .quarantine import named_reasons
from .regular_file import open_regular
from .run_file import run_file
from .statistics_check import differing
from .writer_history import WriterHistory

Progress = Callable[[int, int], None]
"""Told how many of how many files have been read."""

_REPAIR = "`ratioscope repair RUN` moves it to RUN/quarantine"
_AGAIN = "copy it again from where the run was recorded; else its rows are lost"
_RECORDED = "nothing that can be restored: it was recorded so; readers set aside what disagrees, and count it"
_FOREIGN = "move it out of the run"
_NO_COMMIT = "`ratioscope repair RUN` commits it, once its writer has ended"


@dataclass
class Verification:
    """What was walked, and what is wrong. compared: steps whose statistics were recomputed from token rows; alone: steps
    whose statistics could not be, with the reason of each."""

    deep: bool
    logs: int = 0
    lines: int = 0
    token_files: int = 0
    segments: int = 0
    rows: int = 0
    tokens: int = 0
    bytes: int = 0
    compared: int = 0
    alone: dict[str, int] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.troubles


def verify(path: str | os.PathLike[str], *, deep: bool = False, progress: Progress | None = None) -> Verification:
    """Walks the run; SourceError if there is none. deep: every page is decoded, and statistics are recomputed from rows."""
    root = run_folder(path)
    files = ParquetFiles(root)
    catalog = Catalog(root, files)
    note = run_file(root).note
    catalog.refresh()
    found = Verification(deep)
    if note is not None:
        wanted = "the run's name, trainer and settings as JSON"
        found.troubles.append(Trouble(RUN_FILE, note, wanted, "copy it again from where the run was recorded"))
    _check_logs(root, catalog, found)
    _check_files(catalog, found, progress)
    found.troubles += _elsewhere(catalog, {trouble.file for trouble in found.troubles})
    if deep:
        for trouble in differing(catalog, found.alone):
            found.troubles.append(trouble)
        found.compared = found.alone.pop("", 0)
    found.troubles.sort()
    return found


def _check_logs(root: Path, catalog: Catalog, found: Verification) -> None:
    for _, history in sorted(catalog.histories.items()):
        found.logs += 1
        found.lines += _lines(root, history.log.file)
        log = history.log
        if catalog.noted(log.file) != (log.altered, len(log.tail)):
            found.troubles += _of_log(history)


def _of_log(history: WriterHistory) -> Iterator[Trouble]:
    log = history.log
    if log.altered:
        told = f"{log.altered} of its lines are not as they were written: their checksums do not hold"
        yield Trouble(
            log.file, told, "a crc32 that holds on every line", "`ratioscope repair RUN` commits what they named"
        )
    if log.tail and history.closed is None:
        told = f"it ends in {len(log.tail)} bytes of an unfinished line"
        advice = (
            "nothing, if its writer is at work; `ratioscope repair RUN` commits what the line named if it was killed"
        )
        yield Trouble(log.file, told, "a newline at its end", advice)
    elif log.tail:
        told = f"{len(log.tail)} bytes follow the line that closed it"
        yield Trouble(log.file, told, "nothing after its close", "nothing: no reader takes them for a line")
    if history.opened is None and history.rank is None and not history.is_offline:
        told = "no line says which writer, rank and attempt it is of"
        yield Trouble(log.file, told, "an open line", "its files count as attempt 0")


def _check_files(catalog: Catalog, found: Verification, progress: Progress | None) -> None:
    items: list[TokenFile | Segment] = [*catalog.token_files(), *catalog.segments()]
    for done, item in enumerate(sorted(items, key=lambda item: item.path)):
        if progress is not None:
            progress(done, len(items))
        trouble = _of_file(catalog, item, found)
        if trouble is not None:
            found.troubles.append(trouble)


def _of_file(catalog: Catalog, item: TokenFile | Segment, found: Verification) -> Trouble | None:
    """What is wrong with the file; counts it where nothing is."""
    is_rows = isinstance(item, TokenFile)
    try:
        with named_reasons():
            if isinstance(item, TokenFile):
                demand_rows(catalog.files, item, deep=found.deep)
            else:
                demand_segment_file(catalog.files, item, deep=found.deep)
    except RowsDisagree as error:
        return Trouble(item.path, str(error), "rows that agree with each other and with their commit", _RECORDED)
    except RatioscopeError as error:
        stands = (
            "its statistics stand" if is_rows else "its steps are computed from token rows, where these are on record"
        )
        lost = "is not there" in str(error)
        return Trouble(item.path, str(error), _described(item), f"{stands}; {_AGAIN if lost else _REPAIR}")
    found.bytes += (catalog.files.signature(item.path) or (0, 0, 0))[1]
    if isinstance(item, TokenFile):
        found.token_files, found.rows = found.token_files + 1, found.rows + item.rows
        found.tokens += item.tokens
    else:
        found.segments += 1
    if item.sha256 is None:
        return Trouble(item.path, "no commit names it: its digest is unknown", "a commit line", _NO_COMMIT)
    return None


def _described(item: TokenFile | Segment) -> str:
    if item.sha256 is None:
        return "a file whose every page can be read"
    what = f"{item.rows} rows of step {item.step}" if isinstance(item, TokenFile) else f"{len(item.steps)} steps"
    return f"{what}, {item.bytes} bytes, sha256 {item.sha256[:12]}"


def _elsewhere(catalog: Catalog, known: set[str]) -> Iterator[Trouble]:
    """What is set aside without having been read here, and what lies in the run without a commit."""
    moved = catalog.moved()
    for path, reason in catalog.set_aside.items():
        if path in known or path in moved:
            continue
        if "is not there" in reason:
            yield Trouble(path, reason, "the file", _AGAIN)
        elif path.startswith(f"{COMMITS}/"):
            yield Trouble(
                path, reason, "commit lines that can be", "`ratioscope repair RUN` commits what can be read without it"
            )
        else:
            wanted = "token files and statistics segments, nothing else"
            yield Trouble(path, reason, wanted, _FOREIGN if not path.endswith(".parquet") else _REPAIR)
    for path in catalog.uncommitted():
        what = "token rows" if path.startswith(f"{TOKENS}/") else "statistics"
        yield Trouble(path, f"no commit names it, so that its {what} are not read", "a commit line", _NO_COMMIT)


def _lines(root: Path, file: str) -> int:
    with open_regular(root, file) as log:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: log.read(1 << 20), b""))
