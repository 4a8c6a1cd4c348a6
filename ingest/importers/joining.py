"""Joins the two sides of a sample that lie in two files, and says exactly where they do not match.

JoinStore: the rows of one source, on disk by their key, until the rows of another source come. Memory does not grow.

A row is stored as JSON with its arrays behind it, in a database without a name: its disk is free again however the process ends.
"""

import hashlib
import json
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ratioscope.errors import SourceError

from .samples import EITHER, OF_TOKENS, PER_TOKEN, RecordedRow, Rejected
from .topk import COLUMNS, last_places

_COMMIT_EVERY = 4096


def joined_rows(
    held: Mapping[tuple[str, ...], list[RecordedRow]], sides: Mapping[str, str], only: dict[str, int]
) -> Iterator[RecordedRow | Rejected]:
    """One sample for each key. A sample that only one side has is kept as it is, and counted in `only`."""
    both = len(set(sides.values()) - {"both"}) > 1
    for key, found in held.items():
        by_side: dict[str, RecordedRow] = {}
        for sample in found:
            side = sides.get(sample.file, "both")
            if side in by_side:
                yield duplicate(sample, by_side[side], key)
            else:
                by_side[side] = sample
        rollout, train = by_side.get("rollout"), by_side.get("train")
        if rollout is not None and train is not None:
            yield joined(rollout, train)
        else:
            yield from by_side.values()
            for side in by_side if both else ():
                only[side] = only.get(side, 0) + 1


def duplicate(sample: RecordedRow, other: RecordedRow, key: tuple[str, ...]) -> Rejected:
    """The reason that is given for a second row of the same side and key."""
    reason = f"it is a duplicate of row {other.row} of {other.file} (both are {' '.join(key)})"
    return Rejected(sample.file, sample.row, None, reason)


def joined(rollout: RecordedRow, train: RecordedRow) -> RecordedRow | Rejected:
    """One sample of two. The sampler's columns win, but for the mask of the loss. Disagreeing samples are rejected."""
    train = _of_response(train, rollout) if "whole_text" in train.keys else train
    fault = mismatch(rollout.values, train.values)
    if fault is not None:
        name, reason = fault
        return Rejected(
            train.file, train.row, name, f"{reason} (the other side is row {rollout.row} of {rollout.file})"
        )
    more = {name: train.values[name] for name in ("loss_mask",) if name in train.values}
    extra = {**train.values.get("extra", {}), **rollout.values.get("extra", {})}
    values = {**train.values, **rollout.values, **more, **({"extra": extra} if extra else {})}
    return RecordedRow(
        train.step if train.step is not None else rollout.step, values, rollout.keys, train.file, train.row
    )


def _of_response(train: RecordedRow, rollout: RecordedRow) -> RecordedRow:
    """The end of a text that was scored with its prompt: as many tokens as were sampled. Ids before them are the prompt's."""
    sampled = _tokens(rollout.values) or 0
    if sampled > (_tokens(train.values) or 0):
        return train
    values = {
        name: value[len(value) - sampled :] if name in OF_TOKENS else value for name, value in train.values.items()
    }
    values |= {name: last_places(values[name], sampled) for name in COLUMNS if name in values}
    if "token_ids" in train.values and train.values["token_ids"][0] >= 0:  # below 0: the log does not have the first id
        values["prompt_ids"] = train.values["token_ids"][: len(train.values["token_ids"]) - sampled]
    return replace(train, values=values)


def mismatch(rollout: Mapping[str, Any], train: Mapping[str, Any]) -> tuple[str, str] | None:
    """The field in which two sides of a sample do not match, and where; None if they do.

    Different token ids mean that one side has read the text anew: position by position, nothing can be compared.
    """
    for name in ("token_ids", "prompt_ids"):
        if name in rollout and name in train and (said := _first_difference(rollout[name], train[name])):
            return name, said
    ours, theirs = _tokens(rollout), _tokens(train)
    if ours is not None and theirs is not None and ours != theirs:
        return "token_ids", f"the rollout has {ours} tokens, the trainer {theirs}"
    return None


def _tokens(values: Mapping[str, Any]) -> int | None:
    return next((len(values[n]) for n in (*PER_TOKEN, *EITHER) if isinstance(values.get(n), np.ndarray)), None)


def _first_difference(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> str | None:
    length = min(len(ours), len(theirs))
    different = np.flatnonzero(ours[:length] != theirs[:length])
    if len(different):
        at = int(different[0])
        more = f", and at {len(different) - 1} more positions" if len(different) > 1 else ""
        pair = f"{ours[at]:.0f} in the rollout, {theirs[at]:.0f} in the trainer"
        return f"the ids differ at position {at}: {pair}{more}; lengths {len(ours)} and {len(theirs)}"
    if len(ours) != len(theirs):
        return f"the rollout has {len(ours)} ids, the trainer {len(theirs)}; the first {length} are equal"
    return None


@dataclass
class Matches:
    """The numbers of rows of two sources that match, and that do not."""

    on: tuple[str, ...]
    """The keys by which rows are joined."""
    matched: int = 0
    """Rows of both sides."""
    only_rollout: int = 0
    """Rows of the rollout side alone."""
    only_train: int = 0
    """Rows of the training side alone."""
    without_key: int = 0
    """Rows that lack a key."""
    duplicates: int = 0
    """Rows whose key an earlier row has."""
    other_tokens: int = 0
    """Rows of one key whose tokens differ: one side has encoded the text anew, or cut it."""


def join(
    rollout: Iterable[RecordedRow | Rejected], train: Iterable[RecordedRow | Rejected], matches: Matches
) -> Iterator[RecordedRow | Rejected]:
    """One sample for each pair of rows of equal keys, in the order of `train`. Every other row is rejected, with the reason."""
    store = JoinStore()
    try:
        for row in rollout:
            key = row if isinstance(row, Rejected) else _key(row, matches)
            if isinstance(row, Rejected) or isinstance(key, Rejected):
                yield key if isinstance(key, Rejected) else row
            elif (other := store.put(key, row)) is not None:
                matches.duplicates += 1
                yield duplicate(row, other, matches.on)
        for row in train:
            key = row if isinstance(row, Rejected) else _key(row, matches)
            if isinstance(row, Rejected) or isinstance(key, Rejected):
                yield key if isinstance(key, Rejected) else row
            else:
                yield _pair(row, store.take(key), matches)
        for _, row in store.left():
            matches.only_rollout += 1
            yield Rejected(
                row.file, row.row, None, f"only the rollout has it: no row of the trainer has its {_named(matches)}"
            )
    finally:
        store.close()


def _pair(row: RecordedRow, found: tuple[RecordedRow | None, bool], matches: Matches) -> RecordedRow | Rejected:
    other, is_taken = found
    if other is None:
        matches.only_train += 1
        return Rejected(
            row.file, row.row, None, f"only the trainer has it: no row of the rollout has its {_named(matches)}"
        )
    if is_taken:
        matches.duplicates += 1
        reason = f"a row of the trainer before it has the same {_named(matches)}"
        return Rejected(row.file, row.row, None, reason)
    pair = joined(other, row)
    if isinstance(pair, Rejected):
        matches.other_tokens += 1
    else:
        matches.matched += 1
    return pair


def _named(matches: Matches) -> str:
    return " and ".join(matches.on)


def _key(row: RecordedRow, matches: Matches) -> str | Rejected:
    """The values of the row that it is joined by, as one text; of token ids their digest."""
    parts: list[str] = []
    for name in matches.on:
        recorded: Any = row.step if name == "step" else row.values.get(name, row.values.get(f"{name}s"))
        value = recorded if isinstance(recorded, np.ndarray) else row.keys.get(name, recorded)
        if value is None:
            matches.without_key += 1
            known = ", ".join(sorted({*row.values, *row.keys} - {"extra", "whole_text"}))
            reason = f"it has no {name}, by which it would be joined; it has {known}, and --on may name any field of the file"
            return Rejected(row.file, row.row, name, reason)
        parts.append(_digest(value) if isinstance(value, np.ndarray) else str(value))
    return json.dumps(parts)


def _digest(ids: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest()


class JoinStore:
    """Rows by key. Each is taken once. SourceError where the disk for temporary files has no room."""

    def __init__(self) -> None:
        self._base = sqlite3.connect("", isolation_level=None)  # a file that SQLite unlinks once it has opened it
        self._run("PRAGMA journal_mode=OFF")
        self._run("PRAGMA synchronous=OFF")
        self._run("CREATE TABLE rows (key TEXT PRIMARY KEY, row BLOB, taken INTEGER DEFAULT 0) WITHOUT ROWID")
        self._run("BEGIN")
        self._count = 0

    def put(self, key: str, sample: RecordedRow) -> RecordedRow | None:
        """Keeps a row. Returns the row that has this key already, if one has; the new one is not kept then."""
        try:
            self._run("INSERT INTO rows (key, row) VALUES (?, ?)", key, encoded(sample))
        except sqlite3.IntegrityError:
            return self.find(key)
        self._count += 1
        if self._count % _COMMIT_EVERY == 0:
            self._run("COMMIT")
            self._run("BEGIN")
        return None

    def replace(self, key: str, sample: RecordedRow) -> None:
        """Keeps this row in the place of the one that has the key."""
        self._run("UPDATE rows SET row = ? WHERE key = ?", encoded(sample), key)

    def find(self, key: str) -> RecordedRow | None:
        """The row of a key."""
        row = self._run("SELECT row FROM rows WHERE key = ?", key).fetchone()
        return None if row is None else decoded(row[0])

    def take(self, key: str) -> tuple[RecordedRow | None, bool]:
        """The row of a key, and whether it was taken before."""
        row = self._run("SELECT row, taken FROM rows WHERE key = ?", key).fetchone()
        if row is None:
            return None, False
        self._run("UPDATE rows SET taken = 1 WHERE key = ?", key)
        return decoded(row[0]), bool(row[1])

    def left(self) -> Iterator[tuple[str, RecordedRow]]:
        """The rows that nobody took."""
        for key, row in self._run("SELECT key, row FROM rows WHERE taken = 0"):
            yield key, decoded(row)

    def close(self) -> None:
        """Ends the database."""
        self._base.close()

    def _run(self, statement: str, *given: str | bytes) -> sqlite3.Cursor:
        try:
            return self._base.execute(statement, given)
        except sqlite3.OperationalError as error:
            raise SourceError(
                f"the rows of one side cannot be kept on disk until those of the other come: {error}; wanted room for them in"
                " the folder for temporary files, try: SQLITE_TMPDIR=FOLDER ratioscope import …"
            ) from error


def encoded(sample: RecordedRow, before: bytes = b"") -> bytes:
    """A row as bytes, without pickle. before: bytes before those of the row."""
    arrays = {name: value for name, value in sample.values.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in sample.values.items() if name not in arrays}
    head = {
        "step": sample.step, "keys": sample.keys, "file": sample.file, "row": sample.row, "values": plain,
        "arrays": [(name, array.dtype.str, len(array)) for name, array in arrays.items()],
    }  # fmt: skip
    text = json.dumps(head).encode()
    return b"".join(
        (before, struct.pack("<I", len(text)), text, *(np.ascontiguousarray(a).data for a in arrays.values()))
    )


def decoded(data: bytes | memoryview) -> RecordedRow:
    """The row that `encoded` made these bytes of."""
    (size,) = struct.unpack_from("<I", data)
    head: Mapping[str, Any] = json.loads(bytes(data[4 : 4 + size]))
    values, at = dict(head["values"]), 4 + size
    for name, kind, count in head["arrays"]:
        values[name] = np.frombuffer(data, kind, count, at)
        at += values[name].nbytes
    return RecordedRow(head["step"], values, dict(head["keys"]), head["file"], head["row"])
