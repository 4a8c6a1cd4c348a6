"""The memory that columns of a Parquet file need, computed from their page headers before a page is decompressed or decoded.

The footer's number of values cannot be trusted: pyarrow decodes as many as the pages claim. A page of 20 bytes can claim a
billion values (run lengths), and one of some KB can decompress to gigabytes. A page header is a Thrift struct in the compact
protocol; only its kind, its two sizes and its number of values are read here (parquet-format, PageHeader).
"""

import re
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import NamedTuple

import pyarrow.parquet as pq

from ratioscope.errors import SourceError

from .footers import leaves

MOST_PAGES = 1 << 18
"""Pages of one file at most; their headers take two seconds to read. By default a page has a megabyte."""
_ROW = 128
"""Bytes counted for each row, for its place in a table of sequences."""
_HEADERS = (1 << 10, 1 << 16, 1 << 22)
"""Numbers of bytes that are read to find a whole header, tried in turn: a header may hold long texts as bounds."""
_DICTIONARY_PAGE, _MOST_NESTED = 2, 8
_STRUCT, _VALUES_OF = 12, (5, 7, 8)  # data page, dictionary page, data page of version 2
_WHOLE = (3, 4, 5, 6)

_NUMBER = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_BOUNDS = rb"(?:[\x18\x28\x38\x48](?:\x01.|\x04.{4}|\x08.{8})|[\x16\x26\x36]" + _NUMBER + rb"|[\x11\x12\x21\x22])*"
_USUAL = re.compile(
    rb"\x15(N)\x15(N)\x15(N)(?:\x15N)?[\x1c\x2c\x3c\x4c\x5c]\x15(N)(?:\x15N){1,6}[\x11\x12]?(?:\x1cB\x00)?\x00\x00".replace(
        b"N", _NUMBER
    ).replace(b"B", _BOUNDS),
    re.DOTALL,
)
"""A whole header as pyarrow writes it, with numeric bounds: each field once, in order."""

Bytes = Callable[[int, int], bytes]
"""Reads bytes of the file: (offset, number) -> bytes."""


class Header(NamedTuple):
    """A page header. A tuple, because a dataclass takes four times as long to make, and a segment has 250 of them."""

    kind: int
    """The type of the page: data, dictionary, ..."""
    uncompressed: int
    """Bytes of the page after decompression."""
    compressed: int
    """Bytes of the page in the file."""
    values: int
    """Number of values in the page."""
    length: int
    """Bytes of the header itself."""


def decoded_bytes(read: Bytes, metadata: pq.FileMetaData, paths: Collection[str], groups: Collection[int]) -> int:
    """Bytes that these leaf columns of these row groups need in memory, with texts as dictionaries. paths: of the columns.

    SourceError where a page header cannot be read.
    """
    widths = [(place, leaf.width) for place, leaf in enumerate(leaves(metadata)) if leaf.path in paths]
    chunks = ((group.column(place), width) for group in map(metadata.row_group, groups) for place, width in widths)
    headers = ((header, width) for chunk, width in chunks for header in _headers(read, chunk))
    total = sum(metadata.row_group(group).num_rows for group in groups) * _ROW
    for page, (header, width) in enumerate(headers):
        if page == MOST_PAGES:
            raise SourceError(f"it has more than {MOST_PAGES} pages, the most that are read of one file")
        total += max(header.uncompressed, header.values * width)
    return total


def _headers(read: Bytes, chunk: pq.ColumnChunkMetaData) -> "list[Header]":
    """Headers of the pages that a reader decodes: as many as hold the values that the footer claims."""
    at, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset or 0
    if chunk.has_dictionary_page and 0 < dictionary < at:
        at = dictionary
    end, values, headers = at + chunk.total_compressed_size, 0, list[Header]()
    claimed = chunk.num_values
    while at < end and values < claimed and len(headers) <= MOST_PAGES:
        header = _header(read, at)
        headers.append(header)
        at += header.length + header.compressed
        values += 0 if header.kind == _DICTIONARY_PAGE else header.values
    return headers


def _header(read: Bytes, at: int) -> Header:
    for most in _HEADERS:
        data = read(at, most)
        try:
            header = _usual(data) or _parsed(data)
        except IndexError:  # the header is longer, or the file ends here
            if len(data) < most:
                break
            continue
        if min(header.uncompressed, header.compressed, header.values) < 0:
            break
        return header
    raise SourceError(f"its page at byte {at} has no header that can be read")


def _usual(data: bytes) -> Header | None:
    """The header, if it has the form that pyarrow writes. A tenth of the time of `_parsed`."""
    match = _USUAL.match(data)
    if match is None:
        return None
    kind, uncompressed, compressed, values = map(_lone_number, match.groups())
    return Header(kind, uncompressed, compressed, values, match.end())


@lru_cache(1 << 12)
def _lone_number(number: bytes) -> int:
    """The value of a number that stands alone."""
    value = 0
    for byte in reversed(number):
        value = value << 7 | byte & 127
    return (value >> 1) ^ -(value & 1)


def _parsed(data: bytes) -> Header:
    fields = {1: -1, 2: -1, 3: -1}
    values, place, at = 0, 0, 0
    while kind := data[at]:
        place, at = _field(data, at, place)
        kind &= 15
        if kind == _STRUCT and place in _VALUES_OF:
            value, at = _first_number(data, at)
            values = max(values, value)
        elif kind in _WHOLE and place in fields:
            fields[place], at = _number(data, at)
        else:
            at = _skipped(data, at, kind, 0)
    return Header(fields[1], fields[2], fields[3], values, at + 1)


def _field(data: bytes, at: int, before: int) -> tuple[int, int]:
    """(number of the field, offset of its value)."""
    if step := data[at] >> 4:
        return before + step, at + 1
    return _number(data, at + 1)


def _first_number(data: bytes, at: int) -> tuple[int, int]:
    """(largest value of field 1 of a struct, offset behind the struct)."""
    largest, place = 0, 0
    while kind := data[at]:
        place, at = _field(data, at, place)
        if place == 1 and kind & 15 in _WHOLE:
            value, at = _number(data, at)
            largest = max(largest, value)
        else:
            at = _skipped(data, at, kind & 15, 1)
    return largest, at + 1


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) > 127:
        value |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if shift > 63:
            raise SourceError("its page has a number of more than 64 bits in its header")
    return value | byte << shift, at + 1


def _skipped(data: bytes, at: int, kind: int, depth: int) -> int:
    """Offset behind a value of this kind."""
    if depth > _MOST_NESTED:
        raise SourceError("its page has a header that is nested too deeply")
    if kind in (1, 2):  # true, false
        return at
    if kind in _WHOLE:
        return _varint(data, at)[1]
    if kind == 7:
        return at + 8
    if kind == 8:
        length, at = _varint(data, at)
        return at + length
    if kind == _STRUCT:
        place = 0
        while inner := data[at]:
            place, at = _field(data, at, place)
            at = _skipped(data, at, inner & 15, depth + 1)
        return at + 1
    raise SourceError("its page has a header with a value of an unknown kind")
