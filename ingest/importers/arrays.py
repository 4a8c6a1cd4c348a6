"""Files of named arrays: npz and safetensors. A declared size is compared with the bytes before an array is made."""

import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

import numpy as np
from numpy.lib import format as npy

from ratioscope.arrays import Array
from ratioscope.errors import UnsafeFile
from ratioscope.flat_json import loaded

from .confinement import FileLimits, too_large
from .restricted.tensors import widened

_HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}
"""Form of an .npy file -> its header. Form 3 is of structures, which hold no column."""


def npz(file: io.BufferedReader, limits: FileLimits) -> dict[str, Array]:
    """Name -> array of an npz file. Members that are no .npy are passed over. UnsafeFile for objects, which are pickles."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            _demand_once(member.filename for member in members)
            if sum(member.file_size for member in members) > limits.nbytes:
                raise too_large(limits)
            return {member.filename.removesuffix(".npy"): _of_member(archive, member) for member in members}
    except UnsafeFile:
        raise
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise UnsafeFile(f"it is no npz file of plain arrays ({str(error)[:80]})") from error


def _of_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    name = member.filename[:80]
    with archive.open(member) as data:
        form = npy.read_magic(data)
        if form not in _HEADERS:
            raise UnsafeFile(f"its array {name!r} has the form {form}, which is not read")
        shape, is_fortran, dtype = _HEADERS[form](data)
        if dtype.hasobject:
            raise UnsafeFile(f"its array {name!r} is of objects: a pickle, which is not run")
        stored = data.read()
    _demand_filled(name, shape, dtype, len(stored))
    return np.frombuffer(stored, dtype).reshape(shape, order="F" if is_fortran else "C")


_SAFETENSORS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "?",
}  # fmt: skip


def safetensors(data: memoryview) -> dict[str, Array]:
    """Name -> array: header length, header in JSON, bytes. Format: https://github.com/huggingface/safetensors#format.

    The arrays are views of the file, but for bfloat16, which is widened. Tensors fill the file without hole or overlap.
    """
    return {name: widened(array) if kind == "BF16" else array for name, (kind, array) in stored_tensors(data).items()}


def stored_tensors(data: memoryview) -> dict[str, tuple[str, Array]]:
    """Name -> (type as the file names it, such as BF16; array) of a safetensors file. bfloat16 is its bits, as uint16."""
    if len(data) < 8 or (size := struct.unpack("<Q", data[:8])[0]) > min(len(data) - 8, 1 << 27):
        raise UnsafeFile("it is no safetensors file: it states a header that is longer than the file")
    try:
        header = loaded(bytes(data[8 : 8 + size]), each_name_once=True)
    except ValueError as error:
        raise UnsafeFile(f"it is no safetensors file ({str(error)[:80]})") from error
    if not isinstance(header, dict):
        raise UnsafeFile("it is no safetensors file: its header is no object of JSON")
    end = 8 + size
    stated = {name: _stated(name, said) for name, said in header.items() if name != "__metadata__"}
    for name, (_, _, (start, stop)) in sorted(stated.items(), key=lambda pair: pair[1][2]):
        if 8 + size + start != end:
            raise UnsafeFile(f"its tensor {name[:80]!r} does not begin where the one before it ends")
        end = 8 + size + stop
    if end != len(data):
        raise UnsafeFile(f"its tensors end at byte {end}, and the file at byte {len(data)}")
    return {name: _of_bytes(name, data[8 + size :], each) for name, each in stated.items()}


_Stated = tuple[str, list[int], tuple[int, int]]


def _stated(name: str, said: Any) -> _Stated:
    """(type, shape, first byte and byte after the last) that the header states of a tensor."""
    said = said if isinstance(said, dict) else {}
    kind, shape, place = said.get("dtype"), said.get("shape"), said.get("data_offsets")
    if not (_are_sizes(shape) and _are_sizes(place) and len(place) == 2 and place[0] <= place[1] and len(shape) <= 32):
        raise UnsafeFile(f"its header states no shape or place of the tensor {name[:80]!r}")
    if not isinstance(kind, str) or kind not in _SAFETENSORS:
        raise UnsafeFile(f"its tensor {name[:80]!r} is of the type {json.dumps(kind)[:40]}, which is not read")
    return kind, shape, (place[0], place[1])


def _are_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(number) is int and 0 <= number < 1 << 62 for number in value)


def _of_bytes(name: str, data: memoryview, stated: _Stated) -> tuple[str, Array]:
    kind, shape, (start, stop) = stated
    dtype = np.dtype(_SAFETENSORS[kind])
    _demand_filled(name[:80], shape, dtype, stop - start)
    return kind, np.frombuffer(data[start:stop], dtype).reshape(shape)


def _demand_filled(name: str, shape: Iterable[int], dtype: np.dtype[Any], held: int) -> None:
    """UnsafeFile where an array declares more or fewer bytes than it has."""
    shape = tuple(shape)
    wanted = math.prod(shape) * dtype.itemsize
    if any(size < 0 for size in shape) or wanted != held or not dtype.itemsize:
        raise UnsafeFile(f"its array {name!r} declares the shape {str(shape)[:60]} of {dtype}, and has {held} bytes")


def _demand_once(names: Iterable[str]) -> None:
    seen = set[str]()
    for name in names:
        if name in seen:
            raise UnsafeFile(f"it has two arrays of the name {name[:80]!r}")
        seen.add(name)
