"""The members of a zip archive whose members are stored, not compressed, as views of the file. Nothing is unpacked.

torch.save writes such archives. A compressed member is refused, so that no archive is larger inside than it is outside.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from ratioscope.errors import UnsafeFile

from .budget import Allowance

_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_LONGEST_END = 22 + (1 << 16)
_MOST_DIRECTORY = 1 << 28


@dataclass(frozen=True)
class Member:
    """A member of an archive."""

    name: str
    start: int
    """The place of its first byte in the archive."""
    size: int
    crc32: int
    """The checksum that the archive states."""


def members(data: memoryview, budget: Allowance) -> dict[str, memoryview]:
    """Name -> bytes of every member. Raises UnsafeFile for an archive that torch.save would not have written."""
    entries: dict[str, Member] = {}
    for member in _directory(data, budget):
        _demand_inside(member.name)
        if member.name in entries:
            raise UnsafeFile(f"its archive has two members of the name {member.name[:80]!r}")
        entries[member.name] = member
    end = 0
    for member in sorted(entries.values(), key=lambda each: each.start):
        if member.start < end:
            raise UnsafeFile(f"its archive lays the member {member.name[:80]!r} over another one")
        end = member.start + member.size
    return {name: data[member.start : member.start + member.size] for name, member in entries.items()}


def checked(name: str, data: memoryview, crc32: int) -> memoryview:
    """The bytes, if their digest is the one that the archive states."""
    if zlib.crc32(data) != crc32:
        raise UnsafeFile(f"the member {name[:80]!r} of its archive has not the bytes of its crc32: it is damaged")
    return data


def _directory(data: memoryview, budget: Allowance) -> Iterator[Member]:
    count, size, start = _end(data)
    if count > budget.limits.members or size > _MOST_DIRECTORY:
        raise UnsafeFile(f"its archive has {count} members; wanted at most {budget.limits.members}")
    if start + size > len(data):
        raise UnsafeFile("its archive states a directory outside of the file")
    budget.spend(512 * count + size)
    at, end = start, start + size
    for _ in range(count):
        if at + 46 > end or bytes(data[at : at + 4]) != b"PK\x01\x02":
            raise UnsafeFile("the directory of its archive is malformed")
        flags, method = struct.unpack_from("<HH", data, at + 8)
        crc32, packed, size, name_size, extra_size, note_size = struct.unpack_from("<IIIHHH", data, at + 16)
        (local,) = struct.unpack_from("<I", data, at + 42)
        name = bytes(data[at + 46 : at + 46 + name_size])
        extra = data[at + 46 + name_size : at + 46 + name_size + extra_size]
        size, packed, local = _wide(extra, size, packed, local)
        if flags & 1 or method != 0 or size != packed:
            raise UnsafeFile(
                f"the member {name[:80]!r} of its archive is compressed or encrypted; torch.save stores members"
            )
        yield _member(data, name, local, size, crc32)
        at += 46 + name_size + extra_size + note_size
    if at != end:
        raise UnsafeFile("the directory of its archive is longer than its members")


def _member(data: memoryview, name: bytes, local: int, size: int, crc32: int) -> Member:
    """The place of a member, from its own header, which has to bear the same name."""
    if local + 30 > len(data) or bytes(data[local : local + 4]) != b"PK\x03\x04":
        raise UnsafeFile(f"its archive points to a member {name[:80]!r} that is not there")
    name_size, extra_size = struct.unpack_from("<HH", data, local + 26)
    start = local + 30 + name_size + extra_size
    if bytes(data[local + 30 : local + 30 + name_size]) != name:
        raise UnsafeFile(f"its archive gives the member {name[:80]!r} two names")
    if start + size > len(data):
        raise UnsafeFile(f"the member {name[:80]!r} of its archive reaches beyond the file")
    try:
        shown = name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnsafeFile("its archive has a member whose name is no text") from error
    checked(shown, data[start : start + size], crc32)
    return Member(shown, start, size, crc32)


def _demand_inside(name: str) -> None:
    """A name that leads elsewhere is a trap for whoever unpacks the archive, and no dump has one."""
    if name.startswith("/") or "\\" in name or "\0" in name or ":" in name or ".." in name.split("/"):
        raise UnsafeFile(f"its archive has a member named {name[:80]!r}, which leads out of it (path traversal)")


def _end(data: memoryview) -> tuple[int, int, int]:
    """(number of members, bytes of the directory, its place)."""
    tail_start = max(0, len(data) - _LONGEST_END)
    tail = bytes(data[tail_start:])
    found = tail.rfind(_END)
    if found < 0 or len(tail) - found < 22:
        raise UnsafeFile("its archive has no directory: it is cut off")
    at = tail_start + found
    count, size, start = struct.unpack_from("<HII", data, at + 10)
    if at >= 20 and bytes(data[at - 20 : at - 16]) == _LOCATOR:
        (wide,) = struct.unpack_from("<Q", data, at - 12)
        if wide + 56 > len(data) or bytes(data[wide : wide + 4]) != _END64:
            raise UnsafeFile("its archive points to a directory that is not there")
        count, size, start = struct.unpack_from("<QQQ", data, wide + 32)
    return count, size, start


def _wide(extra: memoryview, size: int, packed: int, local: int) -> tuple[int, int, int]:
    """Sizes and place, those of 64 bits where the fields of 32 bits are too narrow."""
    values, wide = [size, packed, local], _wide_numbers(extra)
    for index, value in enumerate(values):
        if value == 0xFFFFFFFF:
            if len(wide) < 8:
                raise UnsafeFile("the directory of its archive is malformed")
            (values[index],) = struct.unpack_from("<Q", wide)
            wide = wide[8:]
    return values[0], values[1], values[2]


def _wide_numbers(extra: memoryview) -> memoryview:
    """The extra field that holds the numbers of 64 bits."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            return extra[at + 4 : at + 4 + length]
        at += 4 + length
    return extra[:0]
