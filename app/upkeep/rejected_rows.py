"""Rows that are not imported, and the file that lists them."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.ingest.importers.samples import RecordedRow, Rejected

SHOWN = 20
"""The most rejected rows that the terminal shows."""
_QUOTED = re.compile(r"(['\"]|the sequence ).*", re.DOTALL)
"""A value of a row that a reason quotes, and all behind it: the end of a value that was cut has no quotation mark."""


@dataclass
class Written:
    """The rows and files of a source that were written."""

    rows: int = 0
    tokens: int = 0
    steps: set[int] = field(default_factory=set)
    rejected: int = 0
    """Rows that were not written."""
    first_rejected: list[Rejected] = field(default_factory=list)
    """The first of them, to be printed."""


class RejectedRows:
    """The file of rejected rows; made with the first."""

    def __init__(self, path: Path, done: Written, strict: bool, *, quotes: bool = True) -> None:
        """quotes: False leaves out of a reason what it quotes of the row."""
        self._path, self._done, self._strict, self._quotes = path, done, strict, quotes
        self._file: Any = None

    def __enter__(self) -> "RejectedRows":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, rejected: Rejected) -> None:
        """Lists a row. With strict it raises SourceError instead."""
        if not self._quotes:
            rejected = replace(rejected, reason=_QUOTED.sub("a value (left out: --no-text)", rejected.reason))
        if self._strict:
            raise SourceError(
                f"{rejection_words(rejected)}; without --strict, this row is listed and the others are imported"
            )
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w", encoding="utf-8")
        self._file.write(json.dumps(asdict(rejected)) + "\n")
        self._done.rejected += 1
        if len(self._done.first_rejected) < SHOWN:
            self._done.first_rejected.append(rejected)


def rejection_words(rejected: Rejected) -> str:
    """A rejected row in words."""
    row = "" if rejected.row is None else f", row {rejected.row}"
    column = "" if rejected.field is None else f", {rejected.field}"
    return f"{rejected.file}{row}{column}: {rejected.reason}"


def unique(rows: Iterable[RecordedRow | Rejected], listing: RejectedRows) -> Iterator[RecordedRow]:
    """The samples; one whose id the step has already is listed as a duplicate. Ids of the newest steps are known."""
    known: dict[int, dict[tuple[Any, Any], RecordedRow]] = {}
    for row in rows:
        if isinstance(row, Rejected):
            listing.add(row)
            continue
        step = row.step or 0
        if step not in known:
            while len(known) >= 16:
                known.pop(next(iter(known)))
            known[step] = {}
        key = row.values.get("sequence_ids"), row.values.get("minibatch")
        if key[0] is not None and key in known[step]:
            first = known[step][key]
            listing.add(Rejected(row.file, row.row, "sequence_ids", _twice(row, first)))
            continue
        if key[0] is not None:
            known[step][key] = RecordedRow(row.step, {}, {}, row.file, row.row)
        yield row


def _twice(row: RecordedRow, first: RecordedRow) -> str:
    """Why a second sequence of one id is not imported: it is the same, or of another run."""
    id_ = str(row.values["sequence_ids"])[:80]
    reason = f"step {row.step or 0} has the sequence {id_} already, as row {first.row} of {first.file}"
    apart = PurePath(row.file).parent != PurePath(first.file).parent
    return f"{reason}; if the folders are of two runs, import each by itself" if apart else reason
