"""Files of torch.save as plain values, without torch: the zip form, and the older form of several pickles in a row."""

import re
import struct
from typing import Any

import numpy as np

from ratioscope.errors import UnsafeFile

from .budget import Allowance
from .inert import InertName
from .names import TENSORS, InertNames
from .plain_value import plain_value, plain_value_at
from .stored_zip import members
from .tensors import DTYPES, STORAGES, Storage

_MAGIC = 0x1950A86A20F9469CFC6C
_OLD_PROTOCOL = 1001


def saved(data: memoryview, names: InertNames, budget: Allowance) -> Any:
    """The value that torch.save wrote, tensors as numpy arrays that share the memory of `data`.

    names: what the file may mention beside the names of torch.
    """
    known = {**TENSORS, **names}
    if bytes(data[:4]) == b"PK\x03\x04":
        return _of_archive(data, known, budget)
    return _of_older_form(data, known, budget)


def _of_archive(data: memoryview, names: InertNames, budget: Allowance) -> Any:
    found = members(data, budget)
    roots = [name.removesuffix("/data.pkl") for name in found if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise UnsafeFile(f"its archive has {len(roots)} members data.pkl; wanted the one that torch.save writes")
    root = roots[0]
    if bytes(found.get(f"{root}/byteorder", b"little")) not in (b"little", b""):
        raise UnsafeFile("it was written on a machine of another byte order, which is not read")

    def storage(key: Any) -> Storage:
        _, name, member, _, count = _storage_key(key)
        if (stored := found.get(f"{root}/data/{member}")) is None:
            raise UnsafeFile(f"it refers to the storage {str(member)[:40]!r}, which its archive lacks")
        return _storage(stored, name, count)

    return plain_value(found[f"{root}/data.pkl"], names, budget, persistent=storage)


def stated_number(head: bytes, name: str) -> int | None:
    """The whole number that follows a name near the beginning of a file of torch.save; None where none does.

    head: the beginning of the file. It tells which files belong together before any is read as a whole.
    """
    after = rb"(?:q.|r.{4}|\x94)?(?:K(.)|M(..)|J(.{4}))"  # kept under a number or not; of one, two or four bytes
    match = re.search(re.escape(name.encode()) + after, head, re.DOTALL)
    return None if match is None else int.from_bytes(match[match.lastindex or 1], "little", signed=match[3] is not None)


def _of_older_form(data: memoryview, names: InertNames, budget: Allowance) -> Any:
    """The form before torch 1.6: number, protocol, machine, value, names of storages; then the storages."""
    magic, at = plain_value_at(data, 0, names, budget)
    if type(magic) is not int or magic != _MAGIC:
        raise UnsafeFile("it is no file of torch.save: it has neither an archive nor the number that one begins with")
    protocol, at = plain_value_at(data, at, names, budget)
    if protocol != _OLD_PROTOCOL:
        raise UnsafeFile("it is a file of torch.save of a form that is not read")
    _, at = plain_value_at(data, at, names, budget)
    wanted: dict[str, tuple[int, Storage]] = {}

    def storage(key: Any) -> Storage:
        _, name, member, _, count = _storage_key(key[:5] if isinstance(key, tuple) else key)
        if str(member) not in wanted:
            dtype = _dtype(name)
            budget.spend(count * np.dtype(DTYPES[dtype]).itemsize)
            if count * np.dtype(DTYPES[dtype]).itemsize > len(data):
                raise UnsafeFile(f"it states a storage of {count} elements in a file of {len(data)} bytes")
            wanted[str(member)] = count, Storage(np.zeros(count * np.dtype(DTYPES[dtype]).itemsize, np.uint8), dtype)
        return wanted[str(member)][1]

    begin = at
    _, at = plain_value_at(data, begin, names, budget, persistent=storage)
    order, at = plain_value_at(data, at, names, budget)
    for member in order if isinstance(order, list) else ():
        at = _fill(data, at, wanted, str(member))
    return plain_value_at(data, begin, names, budget, persistent=storage)[0]  # again, now that the storages are known


def _fill(data: memoryview, at: int, wanted: dict[str, tuple[int, Storage]], member: str) -> int:
    """Fills a storage with the bytes at `at`, and returns where they end."""
    if member not in wanted or at + 8 > len(data):
        raise UnsafeFile("it is cut off, or holds a storage that nothing refers to")
    count, stored = wanted[member]
    (stated,) = struct.unpack_from("<q", data, at)
    end = at + 8 + len(stored.data)
    if stated != count or end > len(data):
        raise UnsafeFile("it states two sizes of a storage, or is cut off")
    stored.data[:] = np.frombuffer(data[at + 8 : end], np.uint8)
    return end


def _storage_key(key: Any) -> tuple[Any, InertName, Any, Any, int]:
    if not (isinstance(key, tuple) and len(key) == 5 and key[0] == "storage" and isinstance(key[1], InertName)):
        raise UnsafeFile("it refers to something outside of itself that is no storage (a persistent id)")
    if type(key[4]) is not int or not 0 <= key[4] < 1 << 40 or not isinstance(key[2], (str, int)):
        raise UnsafeFile("it refers to a storage without a name or a size")
    return key


def _storage(stored: memoryview, name: InertName, count: int) -> Storage:
    dtype = _dtype(name)
    wanted = count * np.dtype(DTYPES[dtype]).itemsize
    if wanted > len(stored):
        raise UnsafeFile(f"it states a storage of {wanted} bytes and has {len(stored)}")
    return Storage(np.frombuffer(stored, np.uint8)[:wanted], dtype)


def _dtype(name: InertName) -> str:
    if (dtype := STORAGES.get(name.path.rpartition(".")[2])) is None:
        raise UnsafeFile(f"it holds a storage of {name.path[:60]}, which is not read")
    return dtype


def embedded(arguments: tuple[Any, ...], budget: Allowance) -> Any:
    """The value of torch.storage._load_from_bytes: a file of torch.save within a pickle, read under the same limits."""
    if len(arguments) != 1 or not isinstance(arguments[0], (bytes, bytearray)):
        raise UnsafeFile("it loads something with torch that is no bytes")
    return saved(memoryview(arguments[0]), {}, budget)
