"""Checks a run folder against its commit logs: every log, file, digest and footer, and (deep) every page.

A reader notices damage when it needs a file; `verify` looks for it beforehand, with the same checks on all files. It changes
nothing.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ratioscope.errors import UPGRADE, RatioscopeError, SchemaError, Unread
from ratioscope.inside import open_regular
from ratioscope.layout import COMMITS, RUN_FILE, TOKENS, commit_file
from ratioscope.record import NEWER

from ..commits.catalog import Catalog
from ..commits.catalog_notes import foreign_logs, miscounted_logs, missing_logs
from ..commits.entries import Segment, TokenFile
from ..commits.short_forms_of_run import compared_with_logs
from ..commits.visible_files import uncommitted_files
from ..commits.writer_history import WriterHistory
from ..files.folder import run_file_fault, run_folder
from ..files.parquet_files import ParquetFiles
from ..files.progress import OnProgress
from ..files.quarantine import named_reasons
from ..files.run_file import run_file, stated_id
from ..remote.store import Unreachable
from ..rows.claims import every_claim, remedy
from .file_checks import RowsDisagree, Trouble, demand_file, demand_overall, misfits, reading_troubles
from .statistics_check import differing

_THREADS = 4
"""Threads that check files: they wait for a disk or a network, and digests and decoding run without Python's lock."""
_TOGETHER = 64
"""Files that a thread checks before it reports progress."""

_REPAIR = "`ratioscope repair RUN` moves it to RUN/quarantine"
_AGAIN = "copy it again from where the run was recorded; otherwise its rows are lost"
_RECORDED = "nothing can be restored: the rows were recorded so; readers set aside what disagrees, and count it"
_SHOWN_ONCE = "nothing can be restored: one row of each is shown, and statistics count all"
_LOG_AGAIN = "copy the log again from where the run was recorded; otherwise the data that only this log names is lost"
_FOREIGN = "move it out of the run"
_REFUSED = "copy its commit log again from where the run was recorded; `ratioscope repair` leaves the file where it is"
_OTHER_VERSION = "read it with the ratioscope that wrote it; `ratioscope repair` leaves it where it is"
_NEWER = f"{UPGRADE}; `ratioscope repair` leaves it where it is"
_STORE = (
    "verify the run again once the store answers; if it never does, copy the file again from where the run was recorded"
)
_CONDENSE = "`ratioscope compact RUN` condenses it anew"
_NO_COMMIT = "`ratioscope repair RUN` commits it, once its writer has ended"


@dataclass
class Verification:
    """The numbers of things that were checked, and what is wrong."""

    deep: bool
    """True if every page was decoded and statistics were recomputed."""
    logs: int = 0
    """Commit logs."""
    lines: int = 0
    """Lines in these logs."""
    unnumbered: int = 0
    """Logs of an old ratioscope whose lines have no numbers: a lost line goes unnoticed there."""
    token_files: int = 0
    """Number of them."""
    segments: int = 0
    scalars: int = 0
    """Files of scalars."""
    readings: int = 0
    """Files of readings. Those that cannot be read are among the troubles."""
    rows: int = 0
    tokens: int = 0
    bytes: int = 0
    """Bytes that were read."""
    condensed: int = 0
    """Short forms of logs that agree with their logs."""
    compared: int = 0
    """Steps whose statistics were compared with their rows."""
    alone: dict[str, int] = field(default_factory=dict)
    """Reason -> steps whose statistics could not be compared."""
    troubles: list[Trouble] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.troubles


def verify(
    path: str | os.PathLike[str], *, deep: bool = False, attempt: int | None = None, progress: OnProgress | None = None
) -> Verification:
    """Checks the run, or what one start of the job recorded (attempt). SourceError if there is none.

    A file with the right digest is byte for byte what its writer wrote. deep: also decode every page and recompute statistics
    from rows, which shows whether what was written was right.
    """
    root = run_folder(path, is_to_repair=True)
    files = ParquetFiles(root)
    catalog = Catalog(root, files, attempt=attempt, lists_store=True)
    fault = run_file_fault(root)
    note = f"{RUN_FILE} {fault}" if fault else run_file(root).note
    catalog.refresh()
    catalog.demand_attempt()
    verification = Verification(deep)
    if note is not None:
        wanted = "the run's name, trainer and settings as JSON"
        aside = ", or, where it is lost, `ratioscope repair RUN` moves it to RUN/quarantine" if fault else ""
        advice = f"copy it again from where the run was recorded{aside}"
        verification.troubles.append(Trouble(RUN_FILE, note, wanted, advice))
    _check_logs(root, catalog, verification)
    _check_files(catalog, verification, progress)
    verification.troubles += _overall(catalog, deep=deep)
    verification.readings = len(catalog.readings())
    verification.troubles += reading_troubles(catalog)
    verification.troubles += misfits(root) if deep and verification.readings else ()
    verification.troubles += _claimed_twice(catalog)
    verification.troubles += _elsewhere(catalog, {trouble.file for trouble in verification.troubles})
    if deep:
        for trouble in differing(catalog, verification.alone):
            verification.troubles.append(trouble)
        verification.compared = verification.alone.pop("", 0)
    verification.troubles.sort()
    return verification


def _check_logs(root: Path, catalog: Catalog, verification: Verification) -> None:
    asked = {history.log.writer: history for history in catalog.told()}
    for _, history in sorted(asked.items()):
        verification.logs += 1
        verification.lines += _lines(root, history.log.file)
        log = history.log
        verification.unnumbered += log.chain.link.is_numbered is False
        if catalog.noted(log.file) != log.faults:
            verification.troubles += _of_log(history)
    for bond, advice in (
        (missing_logs, _LOG_AGAIN),
        (partial(foreign_logs, run_id=stated_id(root)), _FOREIGN),
        (miscounted_logs, _LOG_AGAIN),
    ):
        for writer, fault in bond(catalog.histories):
            if writer in catalog.histories and writer not in asked:
                continue
            file = commit_file(writer).as_posix()
            verification.troubles.append(
                Trouble(file, fault, "logs that agree with each other and with run.json", advice)
            )
    for verb, short, fault in compared_with_logs(catalog.histories.values()):
        if fault:
            what = f"its short form of {short} differs from that log: {fault}"
            verification.troubles.append(Trouble(verb, what, "a short form that agrees with its log", _CONDENSE))
        verification.condensed += not fault


def _of_log(history: WriterHistory) -> Iterator[Trouble]:
    log = history.log
    if log.altered:
        fault = f"{log.altered} of its lines are not as they were written: their checksums do not hold"
        yield Trouble(
            log.file, fault, "a crc32 that holds on every line", "`ratioscope repair RUN` commits what they named"
        )
    if log.chain.breaks:
        fault = f"its lines do not follow each other: {log.chain.description}"
        wanted = "every line that its writer wrote, in order"
        yield Trouble(
            log.file, fault, wanted, "copy it again; else `ratioscope repair RUN` commits what the lost lines named"
        )
    if log.tail and history.closed is None:
        fault = f"it ends in {len(log.tail)} bytes of an unfinished line"
        advice = (
            "nothing, if its writer is at work; `ratioscope repair RUN` commits what the line named if it was killed"
        )
        yield Trouble(log.file, fault, "a newline at its end", advice)
    elif log.tail:
        fault = f"{len(log.tail)} bytes follow the line that closed it"
        yield Trouble(log.file, fault, "nothing after its close", "nothing: no reader takes them for a line")
    if history.opened is None and history.rank is None and not history.is_offline:
        fault = "no line has its writer, rank and attempt"
        yield Trouble(log.file, fault, "an open line", "its files count as attempt 0")


def _check_files(catalog: Catalog, verification: Verification, progress: OnProgress | None) -> None:
    items = catalog.by_path()
    few = [items[start : start + _TOGETHER] for start in range(0, len(items), _TOGETHER)]
    with ThreadPoolExecutor(_THREADS) as pool:
        looked_at = pool.map(lambda part: [_trouble(catalog.files, item, verification.deep) for item in part], few)
        for done, (part, troubles) in enumerate(zip(few, looked_at, strict=True)):
            if progress is not None:
                progress(done * _TOGETHER, len(items))
            for item, trouble in zip(part, troubles, strict=True):
                _count(catalog.files, item, trouble, verification)


def _trouble(files: ParquetFiles, item: TokenFile | Segment, deep: bool) -> Trouble | None:
    """The faults of the file."""
    is_rows = isinstance(item, TokenFile)
    try:
        with named_reasons():
            demand_file(files, item, deep=deep)
    except RowsDisagree as error:
        return Trouble(item.path, str(error), "rows that agree with each other and with their commit", _RECORDED)
    except Unreachable:
        raise
    except RatioscopeError as error:
        stands = (
            "its statistics stand" if is_rows else "its steps are computed from token rows, where these are on record"
        )
        return Trouble(item.path, str(error), _described(item), f"{stands}; {_act(error)}")
    return None


def _count(files: ParquetFiles, item: TokenFile | Segment, trouble: Trouble | None, verification: Verification) -> None:
    """Counts the file, and adds its trouble."""
    if trouble is not None:
        verification.troubles.append(trouble)
        return
    verification.bytes += item.bytes if item.sha256 is not None else (files.signature(item.path) or (0, 0, 0))[1]
    if isinstance(item, TokenFile):
        verification.token_files, verification.rows = verification.token_files + 1, verification.rows + item.rows
        verification.tokens += item.tokens
    elif item.is_scalars:
        verification.scalars += 1
    else:
        verification.segments += 1
    if item.sha256 is None:
        verification.troubles.append(
            Trouble(item.path, "no commit names it: its digest is unknown", "a commit line", _NO_COMMIT)
        )


def _act(error: RatioscopeError) -> str:
    """Advice for a file that differs from its commit."""
    if isinstance(error, SchemaError):
        return _OTHER_VERSION
    if "is not there" in str(error):
        return _AGAIN
    return _STORE if isinstance(error, Unread) else _REPAIR


def _described(item: TokenFile | Segment) -> str:
    if item.sha256 is None:
        return "a file whose every page can be read"
    what = f"{item.rows} rows of step {item.step}" if isinstance(item, TokenFile) else f"{len(item.steps)} steps"
    return f"{what}, {item.bytes} bytes, sha256 {item.sha256[:12]}"


def _overall(catalog: Catalog, *, deep: bool) -> Iterator[Trouble]:
    """Faults of files of overall statistics that are there. The run is whole without them."""
    for file, segments in sorted(catalog.overall().items(), key=lambda item: item[0].path):
        if catalog.files.signature(file.path) is None:
            continue
        try:
            demand_overall(catalog.files, file, segments, deep=deep)
        except Unreachable:
            raise
        except RatioscopeError as error:
            wanted = f"the rows of slice `all` of {len(segments)} statistics segments"
            yield Trouble(
                file.path, str(error), wanted, "delete it: its rows are in the segments, which readers use then"
            )


def _claimed_twice(catalog: Catalog) -> Iterator[Trouble]:
    for step, rows, writers in every_claim(catalog):
        fault = (
            f"{rows} rows of step {step} bear the minibatch and sequence_id of another row, of {' and '.join(writers)}"
        )
        yield Trouble(
            f"{TOKENS}/step={step:09d}", fault, "one writer for each row", f"{_SHOWN_ONCE}; {remedy(writers)}"
        )


def _elsewhere(catalog: Catalog, known: set[str]) -> Iterator[Trouble]:
    """Files that were set aside before these checks, and files without a commit."""
    moved = catalog.moved()
    refused = {path for history in catalog.histories.values() for path in history.refused}
    for path, reason in catalog.set_aside.items():
        if path in known or path in moved or not catalog.is_asked_of(path):
            continue
        if "is not there" in reason:
            yield Trouble(path, reason, "the file", _AGAIN)
        elif path in catalog.failures:
            yield Trouble(path, reason, "a store that reads it", _STORE)
        elif path.startswith(f"{COMMITS}/"):
            yield Trouble(
                path, reason, "commit lines that can be", "`ratioscope repair RUN` commits what can be read without it"
            )
        else:
            wanted = "token files and statistics segments, nothing else"
            advice = _REPAIR if "/" in path else _FOREIGN
            yield Trouble(path, reason, wanted, _NEWER if NEWER in reason else _REFUSED if path in refused else advice)
    for path in uncommitted_files(catalog):
        what = "token rows" if path.startswith(f"{TOKENS}/") else "statistics"
        yield Trouble(path, f"no commit names it, so that its {what} are not read", "a commit line", _NO_COMMIT)


def _lines(root: Path, file: str) -> int:
    with open_regular(root, file) as log:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: log.read(1 << 20), b""))
