"""Parquet files of a few hundred bytes that claim what they like: pages, footers and schemas written byte by byte.

pyarrow writes no lies, so that what a stranger may write is put together here: the Thrift compact protocol, and of Parquet as
much as a reader needs to begin.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa

INT32, INT64, FLOAT, DOUBLE, BYTE_ARRAY = 1, 2, 4, 5, 6
ZSTD, PLAIN_PAGES = 6, 0
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def record(*fields: tuple[int, int, bytes]) -> bytes:
    """A Thrift struct: (field, type, value) in the order of their fields."""
    out, before = bytearray(), 0
    for place, kind, value in fields:
        out += bytes([(place - before) << 4 | kind]) + value
        before = place
    return bytes(out) + b"\0"


def number(place: int, value: int, kind: int = _I32) -> tuple[int, int, bytes]:
    return place, kind, varint(value << 1 if value >= 0 else (-value << 1) - 1)


def text(place: int, value: bytes) -> tuple[int, int, bytes]:
    return place, _BINARY, varint(len(value)) + value


def several(place: int, kind: int, values: list[bytes]) -> tuple[int, int, bytes]:
    head = bytes([len(values) << 4 | kind]) if len(values) < 15 else bytes([0xF0 | kind]) + varint(len(values))
    return place, _LIST, head + b"".join(values)


def inner(place: int, value: bytes) -> tuple[int, int, bytes]:
    return place, _STRUCT, value


@dataclass(frozen=True)
class Page:
    """values: as its header claims; data: before compression; uncompressed: as its header claims (None: as it is)."""

    values: int
    data: bytes
    encoding: int = PLAIN
    is_dictionary: bool = False
    uncompressed: int | None = None

    def written(self, codec: int) -> bytes:
        body = pa.compress(self.data, "zstd", asbytes=True) if codec == ZSTD else self.data
        about = record(number(1, self.values), number(2, self.encoding), number(3, RLE), number(4, RLE))
        size = len(self.data) if self.uncompressed is None else self.uncompressed
        kind = 7 if self.is_dictionary else 5
        header = record(
            number(1, 2 if self.is_dictionary else 0), number(2, size), number(3, len(body)),
            inner(kind, record(number(1, self.values), number(2, PLAIN)) if self.is_dictionary else about),
        )  # fmt: skip
        return header + body


@dataclass(frozen=True)
class Leaf:
    """A column: flat, or a list of values; claimed: values, as the footer says."""

    name: str
    physical: int
    pages: tuple[Page, ...]
    claimed: int
    is_list: bool = False
    is_text: bool = False
    codec: int = ZSTD


def levels(value: int, count: int, width: int = 1) -> bytes:
    """Levels of one page, all alike, as a run: a few bytes for any count."""
    run = varint(count << 1) + value.to_bytes(width, "little")
    return struct.pack("<I", len(run)) + run


def alike(values: int, *, rows: int = 1, is_list: bool = False, word: bytes = b"\0\0\0\0") -> tuple[Page, ...]:
    """A dictionary of one value and a page of as many of it, in some bytes. is_list: all of them in one row."""
    indices = b"\1" + varint(values << 1) + b"\0"
    repetition = levels(1, values) if is_list else b""
    if is_list:  # the first value begins the row
        run = varint(1 << 1) + b"\0" + varint((values - 1) << 1) + b"\1"
        repetition = struct.pack("<I", len(run)) + run
    definition = levels(3 if is_list else 1, values)
    return (
        Page(1, word, is_dictionary=True),
        Page(values, repetition + definition + indices, encoding=RLE_DICTIONARY),
    )


def parquet(leaves: list[Leaf], rows: int, *, groups: int = 1, nesting: int = 0) -> bytes:
    """The file. groups: how often its row group is named; nesting: groups around an additional column."""
    body, chunks = bytearray(b"PAR1"), []
    for leaf in leaves:
        start, offsets = len(body), []
        for page in leaf.pages:
            offsets.append(len(body))
            body += page.written(leaf.codec)
        path = [leaf.name.encode(), *((b"list", b"element") if leaf.is_list else ())]
        has_dictionary = leaf.pages[0].is_dictionary
        about = record(
            number(1, leaf.physical), several(2, _I32, [varint(PLAIN << 1), varint(RLE_DICTIONARY << 1)]),
            several(3, _BINARY, [varint(len(name)) + name for name in path]), number(4, leaf.codec),
            number(5, leaf.claimed, _I64), number(6, len(body) - start, _I64), number(7, len(body) - start, _I64),
            number(9, offsets[1 if has_dictionary else 0], _I64),
            *((number(11, start, _I64),) if has_dictionary else ()),
        )  # fmt: skip
        chunks.append(record(number(2, start, _I64), inner(3, about)))
    group = record(several(1, _STRUCT, chunks), number(2, len(body), _I64), number(3, rows, _I64))
    elements = [record(number(3, 0), text(4, b"schema"), number(5, len(leaves) + bool(nesting)))]
    for leaf in leaves:
        elements += _elements(leaf)
    if nesting:
        elements += [record(number(3, 1), text(4, b"n"), number(5, 1))] * nesting
        elements.append(record(number(1, INT32), number(3, 1), text(4, b"x")))
    footer = record(
        number(1, 2), several(2, _STRUCT, elements), number(3, rows * groups, _I64),
        several(4, _STRUCT, [group] * groups), text(6, b"stranger"),
    )  # fmt: skip
    return bytes(body) + footer + struct.pack("<I", len(footer)) + b"PAR1"


def _elements(leaf: Leaf) -> list[bytes]:
    kind = (number(6, 0),) if leaf.is_text else ()
    if not leaf.is_list:
        return [record(number(1, leaf.physical), number(3, 1), text(4, leaf.name.encode()), *kind)]
    return [
        record(number(3, 1), text(4, leaf.name.encode()), number(5, 1), number(6, 3)),
        record(number(3, 2), text(4, b"list"), number(5, 1)),
        record(number(1, leaf.physical), number(3, 1), text(4, b"element"), *kind),
    ]
