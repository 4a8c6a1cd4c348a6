"""JSON objects in a zip archive, member by member. A member says how long it is; not one byte more is unpacked."""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ratioscope.errors import UnsafeFile
from ratioscope.flat_json import loaded

from .row import Unreadable

_LOCAL_HEADER = struct.Struct("<4s2xHH16xHH")  # signature, flags, method, lengths of name and extra field
_ZSTD = 93
_ENCRYPTED = 1


def json_members(file: io.BufferedReader, folder: str, most: int) -> Iterator[Any]:
    """The objects in the members of a folder of the archive, in their order. most: bytes that one member may unpack to.

    A member that is larger, damaged or no JSON is an Unreadable. UnsafeFile for what is no archive.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            inside = (member for member in archive.infolist() if member.filename.startswith(folder))
            for member in (member for member in inside if member.filename.endswith(".json")):
                yield _object(file, archive, member, most)
    except (zipfile.BadZipFile, ValueError) as error:
        raise UnsafeFile(f"it is no zip archive ({str(error)[:80]})") from error


def _object(file: io.BufferedReader, archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> Any:
    try:
        value = loaded(_unpacked(file, archive, member, most))
    except (zipfile.BadZipFile, zlib.error, struct.error, ValueError, EOFError, RuntimeError, OSError) as error:
        return Unreadable(f"its member {member.filename[:80]!r} cannot be read ({str(error)[:120]})")
    return (
        value if isinstance(value, dict) else Unreadable(f"its member {member.filename[:80]!r} is JSON, but no object")
    )


def _unpacked(file: io.BufferedReader, archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> bytes:
    if member.file_size > most:
        raise UnsafeFile(
            f"its member {member.filename[:80]!r} decodes to {member.file_size} bytes; at most {most} are allowed"
        )
    if member.compress_type != _ZSTD:
        with archive.open(member) as packed:
            return packed.read(member.file_size + 1)
    with pa.CompressedInputStream(
        pa.BufferReader(_packed(file, member)), "zstd"
    ) as stream:  # Python 3.11 knows no zstd
        data: bytes = stream.read(member.file_size + 1)
    if len(data) != member.file_size or zlib.crc32(data) != member.CRC:
        raise UnsafeFile(
            f"its member {member.filename[:80]!r} does not unpack to what the archive states: it is damaged"
        )
    return data


def _packed(file: io.BufferedReader, member: zipfile.ZipInfo) -> bytes:
    file.seek(member.header_offset)
    signature, flags, method, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    if signature != b"PK\x03\x04" or method != _ZSTD or flags & _ENCRYPTED:
        raise ValueError("it lies elsewhere than the archive says, or is encrypted")
    file.seek(name + extra, io.SEEK_CUR)
    return file.read(member.compress_size)
