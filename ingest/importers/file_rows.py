"""The rows of one file, in the first format whose marks it has."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from ratioscope.errors import FieldError, UnsafeFile

from .annotations import annotated
from .compression import plain_name
from .containers import Content, content
from .detection import TABLE, Candidate, fitting, framed, names_of, promised
from .groups import is_nested
from .joining import JoinStore
from .row import SetAside, Unreadable, flat
from .samples import LOGPROBS, RecordedRow, Rejected, samples
from .scalars.sources import log_kind
from .source_files import File, Options, log_named
from .table import FileKind
from .token_rows import plain_cell
from .wall import bounded

_NAMED_LOGPROB = re.compile("log_?p", re.IGNORECASE)
_WHOLE_TEXT = (
    "it holds a prompt and a response that were scored anew, and not where the response begins; join it with the log that"
    " sampled: --rollout LOG --train THIS --on id"
)
_LOOKED_AT = 20
"""Rows at the beginning of a table that are looked at for log-probs under names that no column takes."""


class PassedOver(Exception):
    """A file of no format, and without columns that have the names of the Record; or a log of numbers, with what to do."""


def file_rows(
    file: File, options: Options, progress: Callable[[int], None] = lambda _: None, annotations: JoinStore | None = None
) -> Iterator[RecordedRow | Rejected]:
    """The rows of a file, as it is known once its first ones are read. PassedOver; UnsafeFile.

    progress: called with the bytes that were read. annotations: those of other files, by what they annotate.
    """
    found = tuple(each for each in file.found if not each.part.annotates)
    named = found if options.lines or options.format is not None else promised(file.name, found)
    if not named and not file.size:
        raise PassedOver(" (empty)")
    refused: dict[str, None] = {}
    unreadable = ""
    form: tuple[Candidate, ...] = ()
    for container in dict.fromkeys(candidate.part.container for candidate in found):
        candidates = tuple(candidate for candidate in found if candidate.part.container == container)
        with content(file.path, container, names_of(candidates), options.limits) as opened:
            try:
                file.read_as, left = fitting(opened, candidates)
            except UnsafeFile as error:  # another container may fit: a database holds many a table
                refused[str(error)] = None
                continue
            if file.read_as is not None:
                if file.read_as.format.name == TABLE and left.rows is not None:
                    first = tuple(islice(left.rows, _LOOKED_AT))
                    file.untaken = _untaken(file.read_as.part, first)
                    left = replace(left, rows=chain(first, left.rows))
                if annotations is not None and file.read_as.part.annotated and left.rows is not None:
                    place = file.read_as.part.annotated
                    left = replace(left, rows=(annotated(row, place, annotations) for row in left.rows))
                yield from _with_steps(file, left, options, progress)
                return
            form = framed(candidates, left.whole)
            unreadable = unreadable or _first_row(left)
    if refused:
        raise UnsafeFile("; ".join(refused))
    if not options.lines and (log := log_named(log_kind(file.path))):
        raise PassedOver(log)
    if not (named or form):
        raise PassedOver(unreadable)
    wanted = ", ".join(dict.fromkeys(candidate.format.title for candidate in named or form))
    raise UnsafeFile(f"it lacks what its name or form promises ({wanted}); name its columns with --map")


def _first_row(left: Content) -> str:
    """Why the first row cannot be read, or which of its fields may be log-probs, as words behind the name of the file."""
    first = next(left.rows, None) if left.rows is not None else None
    if isinstance(first, Unreadable):
        return f" (row 0: {first.reason})"
    if not isinstance(first, Mapping):
        return ""
    lists = [str(name) for name, value in first.items() if _may_be_logprobs(value)]
    numbers = [
        name for name in map(str, first) if _NAMED_LOGPROB.search(name) and _may_be_logprobs([plain_cell(first[name])])
    ]
    names = lists or numbers
    if not names:
        return ""
    listed = ", ".join(name[:40] for name in names[:4])
    row = "lists" if lists else "rows of one token with numbers"
    more = "" if lists else " and its sequence with --map sequence_ids=FIELD"
    return (
        f" (it has {row} that may be log-probs: {listed}; say whose with --map rollout_logprobs={names[0][:40]}{more})"
    )


def _untaken(part: FileKind, rows: Sequence[Any]) -> dict[str, str]:
    """Fields of these rows that are called log-probs, may be some, and go to no column -> a column of log-probs that is free."""
    held = [row for row in rows if isinstance(row, Mapping)]
    names = dict.fromkeys(str(name) for row in held for name in row)
    places = {line.into: line.places for line in part.columns}
    taken = {place for own in places.values() for place in own}
    free = next((column for column in LOGPROBS if not names.keys() & places.get(column, ())), LOGPROBS[0])
    untaken = (name for name in names if name not in taken and _NAMED_LOGPROB.search(name))
    return {name: free for name in untaken if _has_logprobs([row.get(name) for row in held])}


def _has_logprobs(cells: Sequence[Any]) -> bool:
    """True if a cell is a list of numbers that may be log-probs, or if all cells are such numbers."""
    return any(map(_may_be_logprobs, cells)) or _may_be_logprobs(list(map(plain_cell, cells)))


def _may_be_logprobs(value: Any) -> bool:
    """True for a list of numbers of which none is above 0 and not all are whole, or for a list of such lists."""
    value = next(each for each in value if each is not None) if is_nested(value) else value
    try:
        numbers = flat(value, "it").astype(float)
    except FieldError:
        return False
    return bool(len(numbers) and np.nanmax(numbers, initial=-np.inf) <= 0 and (numbers % 1 != 0).any())


def _with_steps(
    file: File, left: Any, options: Options, progress: Callable[[int], None]
) -> Iterator[RecordedRow | Rejected]:
    assert file.read_as is not None
    name = PurePosixPath(plain_name(file.name))
    facts = {**file.read_as.facts, "file": name.stem, "source": None if file.is_alone else str(name.with_suffix(""))}
    part = file.read_as.part
    if part.refused:
        raise UnsafeFile(part.refused)
    part = replace(part, columns=(*part.columns, *options.keys))
    if left.rows is not None:
        left = replace(left, rows=bounded(left.rows, file.size))
    for number, row in enumerate(bounded(samples(part, left, file.name, facts), file.size)):
        if number % 64 == 0:
            progress(min(left.tell(), file.size))
        if isinstance(row, SetAside):
            file.leave_out(row)
            continue
        if isinstance(row, RecordedRow) and "whole_text" in row.keys and not options.keys:
            row = Rejected(row.file, row.row, None, _WHOLE_TEXT)
        if isinstance(row, RecordedRow) and row.step is None:
            row.step = options.step if options.step is not None else facts.get("step", 0)
            file.without_step += options.step is None and "step" not in facts
        yield row
