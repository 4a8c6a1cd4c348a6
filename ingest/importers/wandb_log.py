"""The log that W&B writes of a run, `run-ID.wandb`, read without W&B: offline runs, and those of a job that was killed.

The file is a header of 7 bytes and blocks of 32 KiB, the header counting into the first. A block holds chunks: CRC-32 over type
and data, length, type (full, first, middle, last), data. Fewer than 7 bytes at the end of a block are padding. A chunk with
another CRC ends its block. A short chunk at the end of the file is one that is still being written. A record is a protobuf
message of wandb_internal.proto; the numbers below are its field numbers.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from ratioscope.errors import SourceError

MAGIC = b":W&B\xe1\xbe\x00"
BLOCK = 1 << 15
MOST_OF_RECORD = 1 << 26
"""Bytes of one record at most; W&B itself refuses values of more than some megabytes."""
RecordKind = Literal["history", "summary", "config", "alert", "metric", "run"]
_CHUNK = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_KINDS: dict[int, RecordKind] = {2: "history", 3: "summary", 5: "config", 10: "alert", 12: "metric", 17: "run"}
_TEXTS: dict[RecordKind, dict[int, str]] = {
    "alert": {1: "title", 2: "text", 3: "level"},
    "metric": {1: "name", 2: "glob", 4: "step_metric"},
    "run": {1: "id", 2: "entity", 3: "project", 6: "group", 7: "job_type", 8: "name", 13: "host"},
}
_CONFIG_OF_RUN = 4
_ITEM, _KEY, _NESTED_KEY, _VALUE = 1, 1, 2, 16


@dataclass
class LogDamage:
    """The parts of a log that could not be read."""

    damaged: int = 0
    """Blocks whose rest was skipped, and records that are no messages."""
    torn: bool = False
    """True if the file ends within a record: it was cut, or it is being written."""


@dataclass(frozen=True)
class LogRecord:
    """One record: a row of the history, settings, an alert, the definition of a metric, or the facts of the run."""

    kind: RecordKind
    values: dict[str, Any]
    """name -> value. Nested names are joined by dots. Any: JSON of any program."""


def wandb_file(path: Path) -> Path:
    """The log in a folder of W&B's, or the file itself. SourceError for anything else."""
    if path.is_file() or not path.exists():
        return path
    files = sorted(file for file in path.glob("run-*.wandb") if file.is_file())
    if len(files) != 1:
        raise SourceError(
            f"{path} holds {len(files)} files run-*.wandb; wanted one, as in wandb/offline-run-DATE-ID, or the file itself"
        )
    return files[0]


def entries(path: Path, health: LogDamage) -> Iterator[LogRecord]:
    """The records of a log that are known here, in their order. health: filled while they are read."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise SourceError(f"{path} is no log of W&B; wanted a file run-ID.wandb, or its folder")
        for record in records(file, health):
            try:
                yield from _entries(record)
            except (ValueError, struct.error, RecursionError):  # a digest fits, and yet it is no message
                health.damaged += 1


def run_name(path: Path) -> str | None:
    """The name of the run, else its id; None where the log has neither."""
    run = next((entry.values for entry in entries(path, LogDamage()) if entry.kind == "run"), {})
    return run.get("name") or run.get("id")


def records(file: BinaryIO, health: LogDamage) -> Iterator[bytes]:
    """The records after the header, whole ones only."""
    parts: list[bytes] | None = None
    at = len(MAGIC)
    file.seek(0)
    while block := file.read(BLOCK):
        for kind, data in _chunks(block, at, health):
            if kind == _FULL:
                yield data
                parts = None
            elif kind == _FIRST:
                parts = [data]
            elif parts is None or sum(map(len, parts)) + len(data) > MOST_OF_RECORD:  # its beginning was skipped
                parts = None
            else:
                parts.append(data)
            if kind == _LAST and parts is not None:
                yield b"".join(parts)
                parts = None
        at = 0
    health.torn |= parts is not None


def _chunks(block: bytes, at: int, health: LogDamage) -> Iterator[tuple[int, bytes]]:
    """(type, data) of the chunks of a block up to the first damaged one."""
    while at + _CHUNK.size <= len(block):
        crc, length, kind = _CHUNK.unpack_from(block, at)
        begin, at = at + _CHUNK.size, at + _CHUNK.size + length
        if not (crc or length or kind):  # zeros: room that was never written
            return
        if len(block) < at <= BLOCK and len(block) < BLOCK:
            health.torn = True
            return
        if at > BLOCK or not _FULL <= kind <= _LAST or zlib.crc32(block[begin - 1 : at]) != crc:
            health.damaged += 1
            return
        yield kind, block[begin:at]
    health.torn |= len(block) < BLOCK and any(block[at:])


def _entries(record: bytes) -> Iterator[LogRecord]:
    for number, content in message_fields(record):
        kind = _KINDS.get(number)
        if kind is None or not isinstance(content, bytes):
            continue
        if kind in ("history", "summary", "config"):
            yield _items(kind, content)
        else:
            begun = (part for field, part in message_fields(content) if kind == "run" and field == _CONFIG_OF_RUN)
            yield from (_items("config", part) for part in begun if isinstance(part, bytes))
            named = _TEXTS[kind]
            texts = ((named[field], text) for field, text in message_fields(content) if field in named)
            yield LogRecord(
                kind, {name: text.decode("utf-8", "replace") for name, text in texts if isinstance(text, bytes)}
            )


def _items(kind: RecordKind, content: bytes) -> LogRecord:
    items = (item for field, item in message_fields(content) if field == _ITEM and isinstance(item, bytes))
    return LogRecord(kind, dict(map(_item, items)))


def _item(content: bytes) -> tuple[str, Any]:
    """(name, value) of one item of a row."""
    names, value = list[str](), b"null"
    for field, part in message_fields(content):
        if isinstance(part, bytes) and field in (_KEY, _NESTED_KEY):
            names.append(part.decode("utf-8", "replace"))
        elif isinstance(part, bytes) and field == _VALUE:
            value = part
    return ".".join(names), json.loads(value)


def message_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a protobuf message. ValueError for bytes that are none."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire, width = tag & 7, 0
        if wire == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if wire == 2:
            width, at = _varint(message, at)
        elif wire in (1, 5):
            width = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a field of wire type {wire}")
        if at + width > len(message):
            raise ValueError("a field that ends after its message")
        yield tag >> 3, message[at : at + width]
        at += width


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """(number, place after it)."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte, at = message[at], at + 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise ValueError("a number without an end")
