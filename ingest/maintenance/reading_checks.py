"""Checks files of readings, finds what `repair` can do for them, and those that go with pruned rows."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ratioscope.errors import RatioscopeError, SourceError
from ratioscope.inside import open_regular
from ratioscope.layout import READINGS
from ratioscope.topk import TOPK

from ..commits.catalog import Catalog
from ..commits.reading_files import ReadingFile, committed_reading
from ..commits.recovery import commit_in_footer
from ..commits.visible_files import unnamed_readings
from ..files.quarantine import faults_set_aside
from ..remote.store import Unreachable
from ..rows.reading_rows import Fit, demanded_rows
from ..run import open_run
from .file_checks import Trouble

_WANTED_FIT = "readings of the sequences that are on record, as long as these"
_MISFIT = "no reader uses them; record the reading again, with the attempt, step and sequence_id that `Run.rows` gives"
_DAMAGED = "the tokens stand; record the reading again. `ratioscope repair RUN` moves the file to RUN/quarantine"
_DAMAGED_TOPK = "the tokens stand, without top-k. `ratioscope repair RUN` moves the file to RUN/quarantine"
_NO_COMMIT = "`ratioscope repair RUN` commits it, once its writer has ended"


def reading_troubles(catalog: Catalog) -> Iterator[Trouble]:
    """Files of readings and of top-k that are not as committed, or that no line names."""
    for file in sorted(catalog.readings(), key=lambda file: file.path):
        if (damage := damage_of(catalog, file)) is not None:
            wanted = f"{file.rows} rows of step {file.step}, {file.bytes} bytes, sha256 {file.sha256[:12]}"
            yield Trouble(file.path, damage, wanted, _DAMAGED_TOPK if file.reading == TOPK else _DAMAGED)
    for path in unnamed_readings(catalog):
        yield Trouble(path, "no commit names it, so that it is not read", "a commit line", _NO_COMMIT)


def misfits(root: Path) -> Iterator[Trouble]:
    """Readings of sequences that are not on record, or of another length. This reads the rows."""
    for name, fit in open_run(root).reading_fits().items():
        if words := misfit_words(fit):
            yield Trouble(f"{READINGS}/{name}", words, _WANTED_FIT, _MISFIT)


def misfit_words(fit: Fit) -> str:
    """The number of rows of a reading that do not fit, and why; "" where all do."""
    parts = [
        f"{fit.unknown} of its rows are of sequences that are not on record" if fit.unknown else "",
        f"{fit.mismatched} are of another length than their sequence" if fit.mismatched else "",
    ]
    return ", and ".join(part for part in parts if part)


def damage_of(catalog: Catalog, file: ReadingFile) -> str | None:
    """Why the file cannot be read; None where it is as committed."""
    try:
        demanded_rows(catalog.files, file)
    except Unreachable:
        raise
    except RatioscopeError as error:
        return str(error)
    return None


def unnamed_commits(catalog: Catalog) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, its commit line) of complete files of readings and top-k that no line names. Others are set aside."""
    for path in unnamed_readings(catalog):
        with faults_set_aside(path, catalog.quarantine):
            entry = commit_in_footer(catalog.files, path)
            if entry is None:
                raise SourceError("no commit names it, and its footer does not say what it is a reading of")
            with open_regular(catalog.root, path) as content:
                data = content.read()
            entry = {**entry, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            demanded_rows(catalog.files, committed_reading(entry, "", 0))
            yield path, entry


def readings_of(catalog: Catalog, attempt: int, steps: Iterable[int]) -> tuple[str, ...]:
    """Files of readings and of top-k of these steps: without the rows that they are of they mean nothing."""
    chosen = set(steps)
    return tuple(file.path for file in catalog.readings() if file.attempt == attempt and file.step in chosen)
