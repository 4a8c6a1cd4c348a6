"""The messages of an Arrow file, and what each decodes to, from their headers alone: nothing is decompressed.

A message is a mark, a length, a header in FlatBuffers and a body (arrow.apache.org/docs/format/Columnar.html). A header of some
bytes can claim any number of rows, and a compressed buffer of some KB can decompress to gigabytes.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from ratioscope.errors import UnsafeFile

SCHEMA, DICTIONARY, ROWS = 1, 2, 3
"""Kinds of messages."""
_MAGIC = b"ARROW1\0\0"
_MARK = 0xFFFFFFFF
_MOST_HEADER = 1 << 26


@dataclass(frozen=True)
class ArrowMessage:
    """One message."""

    kind: int
    rows: int
    """Its rows, or the entries of its dictionary."""
    decoded: int
    """Bytes of its buffers after decompression."""


def is_file(data: memoryview) -> bool:
    """True for the form of a file, whose messages are listed at its end; False for a stream."""
    return bytes(data[: len(_MAGIC)]) == _MAGIC


def streamed(data: memoryview) -> Iterator[ArrowMessage]:
    """The messages of a stream up to the mark of its end. UnsafeFile for one that is cut off, and where the mark lacks."""
    at = 0
    while at < len(data):
        found, at = _message_at(data, at)
        if found is None:
            if at < len(data):
                raise UnsafeFile(
                    f"{len(data) - at} bytes follow the mark of its end: two streams in one file, or damage"
                )
            return
        yield found
    raise UnsafeFile("it has no mark of its end: it was cut off, or its writer was ended")


def listed(data: memoryview) -> Iterator[ArrowMessage]:
    """The messages of a file as its end lists them: dictionaries, then rows. UnsafeFile where two lie over each other."""
    tail = struct.Struct("<i6s")
    if len(data) < 2 * len(_MAGIC) + tail.size or (end := tail.unpack(data[-tail.size :]))[1] != _MAGIC[:6]:
        raise UnsafeFile("it has no list of its messages at its end: it was cut off, or its writer was ended")
    stop = len(data) - tail.size
    if not 0 < end[0] <= min(stop, _MOST_HEADER):
        raise UnsafeFile("it states a list of messages that is longer than the file")
    footer = bytes(data[stop - end[0] : stop])
    with _named_faults():
        table = _FlatTable(footer, _offset(footer, 0))
        places = [place for field in (2, 3) for place, _, _ in table.structs(field, struct.Struct("<qi4xq"))]
    messages = {place: _message_at(data, place) for place in places}
    inner = sorted(messages)
    if len(inner) < len(places) or any(messages[one][1] > other for one, other in pairwise(inner)):
        raise UnsafeFile("it lists messages that lie over each other")
    yield from (message for place in places if (message := messages[place][0]) is not None)


@contextmanager
def _named_faults() -> Iterator[None]:
    try:
        yield
    except (struct.error, IndexError) as error:
        raise UnsafeFile(f"it has a message that cannot be read ({str(error)[:80]})") from error


def _message_at(data: memoryview, at: int) -> tuple[ArrowMessage | None, int]:
    """(the message that begins here, the place behind it); None for the mark of the end."""
    with _named_faults():
        if not 0 <= at <= len(data):
            raise IndexError("it lies outside the file")
        at, length = _length(data, at)
        if not length:
            return None, at
        if length < 0 or length > _MOST_HEADER or at + length > len(data):
            raise UnsafeFile("it has a message that is cut off, or no message: it is damaged, or no Arrow file")
        found, body = _message(bytes(data[at : at + length]), data[at + length :])
    return found, at + length + body


def _length(data: memoryview, at: int) -> tuple[int, int]:
    """(the place behind it, the length of a header). Before Arrow 0.15 there was no mark before the length."""
    (first,) = struct.unpack_from("<I", data, at)
    if first != _MARK:
        return at + 4, first
    (length,) = struct.unpack_from("<i", data, at + 4)
    return at + 8, length


def _message(header: bytes, rest: memoryview) -> tuple[ArrowMessage, int]:
    """The message of a header, and the bytes of its body. rest: the file behind the header."""
    table = _FlatTable(header, _offset(header, 0))
    kind, body = table.number(1, "<B"), table.number(3, "<q")
    if not 0 <= body <= len(rest):
        raise UnsafeFile("it has a message whose body is cut off")
    inner = table.inner(2)
    batch = inner.inner(1) if kind == DICTIONARY and inner is not None else inner
    if kind not in (DICTIONARY, ROWS) or batch is None:
        return ArrowMessage(kind, 0, 0), body
    packed = batch.inner(3) is not None
    rows = batch.number(0, "<q")
    if any(length != rows for length, _ in batch.structs(1, struct.Struct("<qq"))[:1]):
        raise UnsafeFile(f"it has a batch of {rows} rows whose first column has another number of them")
    buffers = batch.structs(2, struct.Struct("<qq"))
    decoded = sum(_decoded(rest[:body], at, size) if packed else max(size, 0) for at, size in buffers)
    return ArrowMessage(kind, rows, decoded), body


def _decoded(body: memoryview, at: int, size: int) -> int:
    """Bytes of a buffer after decompression, as its first eight bytes state; -1 stands for a buffer that is as it is."""
    if size < 8:
        return max(size, 0)
    (stated,) = struct.unpack_from("<q", body, at)
    return size if stated == -1 else stated if stated >= 0 else 1 << 62


def _offset(data: bytes, at: int) -> int:
    (step,) = struct.unpack_from("<I", data, at)
    return at + int(step)


@dataclass(frozen=True)
class _FlatTable:
    """A table of FlatBuffers: fields by their number, each of which may be absent."""

    data: bytes
    """The bytes that hold it."""
    at: int
    """Its place in them."""

    def _place(self, field: int) -> int | None:
        (back,) = struct.unpack_from("<i", self.data, self.at)
        form = self.at - back
        if not 0 <= form <= len(self.data):
            raise IndexError("a table lies outside its header")
        (size,) = struct.unpack_from("<H", self.data, form)
        if 4 + 2 * field + 2 > size:
            return None
        (step,) = struct.unpack_from("<H", self.data, form + 4 + 2 * field)
        return self.at + int(step) if step else None

    def number(self, field: int, form: str) -> int:
        place = self._place(field)
        return 0 if place is None else int(struct.unpack_from(form, self.data, place)[0])

    def inner(self, field: int) -> "_FlatTable | None":
        place = self._place(field)
        return None if place is None else _FlatTable(self.data, _offset(self.data, place))

    def structs(self, field: int, form: struct.Struct) -> list[tuple[int, ...]]:
        """A list of structs, such as the places of messages or buffers."""
        place = self._place(field)
        if place is None:
            return []
        start = _offset(self.data, place)
        (count,) = struct.unpack_from("<I", self.data, start)
        if form.size * count > len(self.data):
            raise IndexError("a list is longer than its header")
        return [form.unpack_from(self.data, start + 4 + form.size * number) for number in range(count)]
