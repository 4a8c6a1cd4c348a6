"""Reads the files of a source, one after the other in the order of their steps, as samples of the Record.

All decoding happens behind the wall (wall.py), in one child for all files. It tells rows as bytes: JSON, and arrays behind it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import accumulate, groupby
from typing import Any

from ratioscope.errors import SourceError, UnsafeFile
from ratioscope.kept_settings import kept as kept_settings

from .annotations import ALONE, annotates, kept, may_be_annotated
from .confinement import allow, too_large
from .file_rows import PassedOver, file_rows
from .joining import JoinStore, decoded, encoded, joined_rows
from .samples import RecordedRow, Rejected
from .source_files import File, Options, SourceNumbers
from .wall import REPEATS, Ended, apart, most_told

_ROW, _REJECTED, _BEGUN, _KNOWN, _AT, _ENDED = b"r", b"x", b"b", b"k", b"p", b"e"
"""Kinds of frames: a row, one that is not imported, the file that is read now, the kinds of files that the next rows are of,
the bytes read of a parcel, the end of one."""
_FACTS = ("rows", "rejected", "without_step", "refused", "untaken", "set_aside")
_SMALL_ROW = 1 << 24
"""Bytes that a row may always have. A larger one may have a sixteenth of the limit: it is copied as it is written."""


def read(
    reading: SourceNumbers, options: Options, progress: Callable[[int], None] | None = None
) -> Iterator[RecordedRow | Rejected]:
    """The samples of all files. Files of a format that is joined are read together where their step is the same.

    A file whose decoder is ended is named as one rejected row, and another child goes on without it.
    """
    parcels = list(_parcels(reading.files))
    before = [0, *accumulate(sum(file.size for file in parcel) for parcel in parcels)]
    largest, done = max((file.size for file in reading.files), default=0), 0
    while done < len(parcels):
        file = parcels[done][0]
        try:
            for frame in apart(partial(_told, reading, parcels[done:], options), options.limits, largest):
                kind, said = frame[:1], frame[1:]
                if kind == _ROW:
                    yield decoded(said)
                elif kind == _REJECTED:
                    yield Rejected(**json.loads(bytes(said)))
                elif kind == _BEGUN:
                    file = parcels[done][int(bytes(said))]
                elif kind == _KNOWN:
                    _take_kinds(json.loads(bytes(said)), parcels[done])
                elif kind == _ENDED:
                    _take(json.loads(bytes(said)), reading, parcels[done])
                    done += 1
                elif progress is not None:
                    progress(before[done] + int(bytes(said)))
            return
        except Ended as error:
            file.refused = str(error)
            yield Rejected(file.name, None, None, file.refused)
            parcels[done] = _without(file, parcels[done])
            done += not parcels[done]


def _parcels(files: Sequence[File]) -> Iterator[list[File]]:
    """Files in lists of those that must be read together: annotations with what they annotate, and joined files of one step."""
    notes = [file for file in files if annotates(file)]
    noted = [file for file in files if may_be_annotated(file) and not annotates(file)] if notes else []
    if notes:
        yield [*sorted(notes, key=lambda file: file.name), *sorted(noted, key=lambda file: file.name)]
    alone = [file for file in files if not annotates(file) and not (notes and may_be_annotated(file))]
    for _, group in groupby(alone, lambda file: file.step):
        together = list(group)
        yield from [together] if any(map(_join_on, together)) else [[file] for file in together]


def _without(ended: File, parcel: list[File]) -> list[File]:
    """The files of a parcel that are still to be read once the decoder of one was ended. Joined rows are told last."""
    notes = [file for file in parcel if annotates(file) and file is not ended]
    if not notes or annotates(ended):
        return [file for file in parcel if file is not ended]
    left = parcel[parcel.index(ended) + 1 :]
    return [*notes, *left] if left else []


def _join_on(file: File) -> tuple[str, ...]:
    return next((candidate.format.join_on for candidate in file.found if candidate.format.join_on), ())


def _take(told: Mapping[str, Any], reading: SourceNumbers, parcel: Sequence[File]) -> None:
    """Puts down what became of the files of a parcel."""
    reading.passed_over.extend(told["passed_over"])
    reading.only.update(told["only"])
    _take_kinds(told["kinds"], parcel)
    for file, facts in zip(parcel, told["files"], strict=True):
        for name, value in zip(_FACTS, facts, strict=True):
            setattr(file, name, value)


def _take_kinds(kinds: Sequence[int | None], parcel: Sequence[File]) -> None:
    for file, kind in zip(parcel, kinds, strict=True):
        file.read_as = None if kind is None else file.found[kind]


def _kinds(parcel: Sequence[File]) -> list[int | None]:
    """The place of the kind that each file was read as, among those that it may have."""
    return [next((place for place, kind in enumerate(f.found) if kind is f.read_as), None) for f in parcel]


def _told(reading: SourceNumbers, parcels: Sequence[list[File]], options: Options) -> Iterator[bytes]:
    """The frames of all parcels."""
    for parcel in parcels:
        reading.passed_over = []
        yield from _of_parcel(reading, parcel, options)
        facts = [[getattr(file, name) for name in _FACTS] for file in parcel]
        ended = {"passed_over": reading.passed_over, "only": reading.only, "kinds": _kinds(parcel), "files": facts}
        yield _ENDED + json.dumps(ended).encode()


def _of_parcel(reading: SourceNumbers, parcel: list[File], options: Options) -> Iterator[bytes]:
    """The frames of files that are read together. Their rows are few for their bytes, and none is very large."""
    file, at, sent, shown, is_known = parcel[0], [0], 0, 0, False
    most, most_row = most_told(sum(each.size for each in parcel)), max(_SMALL_ROW, options.limits.nbytes // 16)
    rows = _annotated if annotates(file) else _joined if _join_on(file) else _one
    for number, row in enumerate(rows(reading, parcel, options, at)):
        if isinstance(row, File):
            file, is_known = row, False
            allow(file.size)
            yield _BEGUN + str(parcel.index(file)).encode()
            yield b""  # whatever ends this process from now on, it is known where
            continue
        if number % 16 == 0:
            allow(file.size)
        if at[0] > shown:
            shown = at[0]
            yield _AT + str(shown).encode()
        if not is_known:
            is_known = True
            yield _KNOWN + json.dumps(_kinds(parcel)).encode()
        frame = _frame(row)
        if len(frame) > most_row:
            file.rejected += 1
            reason = f"it takes {len(frame)} bytes; wanted at most {most_row}: allow more with --most-memory"
            frame = _frame(Rejected(row.file, row.row, None, reason))
        sent += len(frame)
        if sent > most:
            file.refused = f"its rows take more than {most} bytes, and it has {file.size}: {REPEATS}"
            yield _frame(Rejected(file.name, None, None, file.refused))
            return
        yield frame


def _frame(row: RecordedRow | Rejected) -> bytes:
    if isinstance(row, Rejected):
        return _REJECTED + json.dumps(asdict(row)).encode()
    try:
        return encoded(row, _ROW)
    except (TypeError, ValueError, RecursionError):
        row.values["extra"] = json.loads(_as_recorded(row.values["extra"]))
        return encoded(row, _ROW)


def _as_recorded(extra: Any) -> str:
    """The JSON that a collector makes of such an extra, cut where it holds itself or is nested beyond what JSON can hold."""

    def short(value: Any) -> Any:
        return kept_settings({"": value}).settings[""]

    try:
        return json.dumps(extra, default=short)
    except (ValueError, TypeError, RecursionError):
        return json.dumps(short(extra))


_Items = Iterator[File | RecordedRow | Rejected]


def _one(
    reading: SourceNumbers, parcel: Sequence[File], options: Options, at: list[int], store: JoinStore | None = None
) -> _Items:
    """Each file before its rows. at: set to the bytes of the parcel that were read. store: annotations of other files."""
    for file in parcel:
        yield file
        before = at[0]
        rows = partial(file_rows, file, options, lambda read: at.__setitem__(0, before + read), store)  # noqa: B023
        yield from _of_file(reading, file, options, rows)


def _annotated(reading: SourceNumbers, parcel: Sequence[File], options: Options, at: list[int]) -> _Items:
    """As `_one`; files of annotations come first, and wait on disk for the rows that they annotate."""
    store, others, read = JoinStore(), list[File](), parcel[0]
    try:
        for file in parcel:
            if annotates(file):
                yield file
                yield from _of_file(reading, file, options, partial(kept, file, store, options))
            if file.read_as is None and file.refused is None:
                others.append(file)
            else:
                at[0] += file.size
        for row in _one(reading, others, options, at, store):
            read = row if isinstance(row, File) else read
            if isinstance(row, RecordedRow) and "current_logprobs" not in row.values and _is_annotated(read):
                reading.only["rollout"] = reading.only.get("rollout", 0) + 1
            yield row
        if not others:
            reading.passed_over.extend(f"{file.name}{ALONE}" for file in parcel)
        elif (left := sum(1 for _ in store.left())) and not any(file.refused for file in reading.files):
            reading.only["train"] = left
    finally:
        store.close()


def _joined(reading: SourceNumbers, parcel: Sequence[File], options: Options, at: list[int]) -> _Items:
    """As `_one`; all rows follow the last file, so that none is told twice if one of the files ends the child."""
    held: dict[tuple[str, ...], list[RecordedRow]] = {}
    others: list[RecordedRow | Rejected] = []
    file: File | None = None
    for row in _one(reading, parcel, options, at):
        if isinstance(row, File):
            yield (file := row)
            continue
        on = file.read_as.format.join_on if file is not None and file.read_as is not None else ()
        if isinstance(row, RecordedRow) and on:
            held.setdefault(tuple(str(row.keys.get(name)) for name in on), []).append(row)
        else:
            others.append(row)
    sides = {file.name: file.read_as.part.side for file in parcel if file.read_as is not None}
    yield from others
    yield from joined_rows(held, sides, reading.only)


def _is_annotated(file: File) -> bool:
    return file.read_as is not None and bool(file.read_as.part.annotated)


def _of_file(
    reading: SourceNumbers, file: File, options: Options, rows: Callable[[], Iterator[RecordedRow | Rejected]]
) -> Iterator[RecordedRow | Rejected]:
    """The rows of a file. A file that cannot be read, or only in part, is named as one rejected row."""
    file.rows = file.rejected = file.without_step = 0
    try:
        for row in rows():
            file.rows += 1
            file.rejected += isinstance(row, Rejected)
            yield row
        return
    except PassedOver as reason:
        reading.passed_over.append(f"{file.name}{reason}")
        return
    except MemoryError:
        file.refused = str(too_large(options.limits))
    except (SourceError, OSError) as error:
        file.refused = f"{error}" if isinstance(error, UnsafeFile) else f"it cannot be read: {error}"
    yield Rejected(file.name, None, None, file.refused)


def formats_read(files: Iterable[File]) -> dict[str, int]:
    """Title of a format -> files that were read as it."""
    found: dict[str, int] = {}
    for file in files:
        if file.read_as is not None and file.refused is None:
            found[file.read_as.format.title] = found.get(file.read_as.format.title, 0) + 1
    return found
