"""Files of torch.save as plain values, without torch: the zip form, and the older form of several pickles in a row."""

import re
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from ratioscope.errors import UnsafeFile

from .inert import InertName
from .names import TENSORS, InertNames
from .plain_value import in_memory, plain_value, whole_value
from .tensors import DTYPES, STORAGES, Storage

_MAGIC = 0x1950A86A20F9469CFC6C
_OLD_PROTOCOL = 1001
_FAULTS = (
    zipfile.BadZipFile,
    NotImplementedError,
    EOFError,
    OSError,
    ValueError,
    KeyError,
    OverflowError,
    struct.error,
)


def saved(file: IO[bytes], names: InertNames) -> Any:
    """The value that torch.save wrote, tensors as numpy arrays that share the memory of their storage.

    names: what the file may mention beside the names of torch.
    """
    known = {**TENSORS, **names}
    is_archive = file.read(4) == b"PK\x03\x04"
    file.seek(0)
    if not is_archive:
        return _of_older_form(file, known)
    with _named_faults(), zipfile.ZipFile(file) as archive:
        return _of_archive(archive, known)


@contextmanager
def _named_faults() -> Iterator[None]:
    try:
        yield
    except UnsafeFile:
        raise
    except _FAULTS as error:
        raise UnsafeFile(f"its archive is damaged or cut off ({str(error)[:120]})") from error


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    with _named_faults():
        return archive.read(name)


def _of_archive(archive: zipfile.ZipFile, names: InertNames) -> Any:
    members = archive.namelist()
    _demand_plain(archive.infolist())
    roots = [name.removesuffix("/data.pkl") for name in members if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise UnsafeFile(f"its archive has {len(roots)} members data.pkl; wanted the one that torch.save writes")
    root = roots[0]
    if f"{root}/byteorder" in members and _read(archive, f"{root}/byteorder") not in (b"little", b""):
        raise UnsafeFile("it was written on a machine of another byte order, which is not read")
    held: dict[str, bytes] = {}

    def storage(key: Any) -> Storage:
        _, name, member, _, count = _storage_key(key)
        path = f"{root}/data/{member}"
        if path not in held:
            if path not in archive.NameToInfo:
                raise UnsafeFile(f"it refers to the storage {str(member)[:40]!r}, which its archive lacks")
            held[path] = _read(archive, path)
        return _storage(held[path], name, count)

    return whole_value(in_memory(_read(archive, f"{root}/data.pkl")), names, storage)


def _demand_plain(members: list[zipfile.ZipInfo]) -> None:
    """UnsafeFile for an archive that torch.save would not have written."""
    seen = set[str]()
    for member in members:
        name = member.filename
        if name.startswith("/") or "\\" in name or ":" in name or ".." in name.split("/"):
            raise UnsafeFile(f"its archive has a member named {name[:80]!r}, which leads out of it (path traversal)")
        if name in seen:
            raise UnsafeFile(f"its archive has two members of the name {name[:80]!r}")
        if member.flag_bits & 1 or member.compress_type != zipfile.ZIP_STORED:
            raise UnsafeFile(
                f"the member {name[:80]!r} of its archive is compressed or encrypted; torch.save stores members"
            )
        seen.add(name)


def stated_number(head: bytes, name: str) -> int | None:
    """The whole number that follows a name near the beginning of a file of torch.save; None where none does.

    head: the beginning of the file. It tells which files belong together before any is read as a whole.
    """
    after = rb"(?:q.|r.{4}|\x94)?(?:K(.)|M(..)|J(.{4}))"  # kept under a number or not; of one, two or four bytes
    match = re.search(re.escape(name.encode()) + after, head, re.DOTALL)
    return None if match is None else int.from_bytes(match[match.lastindex or 1], "little", signed=match[3] is not None)


def _of_older_form(file: IO[bytes], names: InertNames) -> Any:
    """The form before torch 1.6: number, protocol, machine, value, names of storages; then the storages."""
    magic = plain_value(file, names)
    if type(magic) is not int or magic != _MAGIC:
        raise UnsafeFile("it is no file of torch.save: it has neither an archive nor the number that one begins with")
    if plain_value(file, names) != _OLD_PROTOCOL:
        raise UnsafeFile("it is a file of torch.save of a form that is not read")
    plain_value(file, names)
    wanted: dict[str, tuple[int, Storage]] = {}

    def storage(key: Any) -> Storage:
        _, name, member, _, count = _storage_key(key[:5] if isinstance(key, tuple) else key)
        if str(member) not in wanted:
            dtype = _dtype(name)
            wanted[str(member)] = count, Storage(np.zeros(count * np.dtype(DTYPES[dtype]).itemsize, np.uint8), dtype)
        return wanted[str(member)][1]

    begin = file.tell()
    plain_value(file, names, storage)
    order = plain_value(file, names)
    for member in order if isinstance(order, list) else ():
        _fill(file, wanted, str(member))
    file.seek(begin)
    return plain_value(file, names, storage)  # again, now that the storages are known


def _fill(file: IO[bytes], wanted: dict[str, tuple[int, Storage]], member: str) -> None:
    """Fills a storage with the bytes at hand."""
    if member not in wanted:
        raise UnsafeFile("it holds a storage that nothing refers to")
    count, stored = wanted[member]
    stated = file.read(8)
    data = file.read(len(stored.data))
    if stated != struct.pack("<q", count) or len(data) < len(stored.data):
        raise UnsafeFile("it states two sizes of a storage, or is cut off")
    stored.data[:] = np.frombuffer(data, np.uint8)


def _storage_key(key: Any) -> tuple[Any, InertName, Any, Any, int]:
    if not (isinstance(key, tuple) and len(key) == 5 and key[0] == "storage" and isinstance(key[1], InertName)):
        raise UnsafeFile("it refers to something outside of itself that is no storage (a persistent id)")
    if type(key[4]) is not int or not 0 <= key[4] < 1 << 40 or not isinstance(key[2], (str, int)):
        raise UnsafeFile("it refers to a storage without a name or a size")
    return key


def _storage(stored: bytes, name: InertName, count: int) -> Storage:
    dtype = _dtype(name)
    wanted = count * np.dtype(DTYPES[dtype]).itemsize
    if wanted > len(stored):
        raise UnsafeFile(f"it states a storage of {wanted} bytes and has {len(stored)}")
    return Storage(np.frombuffer(stored, np.uint8, wanted), dtype)


def _dtype(name: InertName) -> str:
    if (dtype := STORAGES.get(name.path.rpartition(".")[2])) is None:
        raise UnsafeFile(f"it holds a storage of {name.path[:60]}, which is not read")
    return dtype


def embedded(arguments: tuple[Any, ...]) -> Any:
    """The value of torch.storage._load_from_bytes: a file of torch.save within a pickle."""
    if len(arguments) != 1 or not isinstance(arguments[0], (bytes, bytearray)):
        raise UnsafeFile("it loads something with torch that is no bytes")
    return saved(in_memory(arguments[0]), {})
