"""Tensors of torch as numpy arrays: a storage is a stretch of bytes, a tensor is a view of it. torch itself is not needed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from ratioscope.arrays import Array, Singles
from ratioscope.errors import UnsafeFile

from .inert import InertName, elements

DTYPES = {
    "float64": "<f8", "double": "<f8", "float32": "<f4", "float": "<f4", "float16": "<f2", "half": "<f2", "bfloat16": "<u2",
    "int64": "<i8", "long": "<i8", "int32": "<i4", "int": "<i4", "int16": "<i2", "short": "<i2", "int8": "<i1", "uint8": "<u1",
    "uint64": "<u8", "uint32": "<u4", "uint16": "<u2",
    "bool": "?",
}  # fmt: skip
"""torch's type -> numpy's. bfloat16 is the upper half of a float32: it is read as an integer and widened."""
STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "UntypedStorage": "uint8",
}  # fmt: skip


@dataclass(frozen=True)
class Storage:
    """The bytes behind tensors, and the type that they have where no tensor says another."""

    data: NDArray[np.uint8]
    """Bytes, shape (bytes,)."""
    dtype: str
    """The name of the type."""

    def __setstate__(self, state: Any) -> None:
        raise UnsafeFile("it sets the state of a storage (BUILD); only objects of a known class have one")


def tensor(arguments: tuple[Any, ...]) -> Array:
    """The array of `_rebuild_tensor_v2(storage, offset, size, stride, ...)`; it shares the storage's memory."""
    if len(arguments) < 4 or not isinstance(arguments[0], Storage):
        raise UnsafeFile("it builds a tensor of something that is no storage")
    storage, offset, size, stride = arguments[:4]
    named = arguments[6] if len(arguments) > 6 else None
    if isinstance(named, dict) and any(named.values()):  # torch negates or conjugates such a tensor as it reads it
        raise UnsafeFile(
            f"it holds a tensor with {', '.join(map(str, named))[:40]}, which is not read; save a clone of it"
        )
    dtype = named.path.rpartition(".")[2] if isinstance(named, InertName) else storage.dtype
    if dtype not in DTYPES:
        raise UnsafeFile(f"it holds a tensor of type {dtype[:40]}, which is not read")
    flat = storage.data[: len(storage.data) // np.dtype(DTYPES[dtype]).itemsize * np.dtype(DTYPES[dtype]).itemsize]
    view = _strided(flat.view(DTYPES[dtype]), offset, size, stride)
    return widened(view) if dtype == "bfloat16" else view


def widened(halves: Array) -> Singles:
    """bfloat16 numbers, given as their 16 bits, as float32, exactly."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def _strided(flat: Array, offset: Any, size: Any, stride: Any) -> Array:
    count = elements(size)
    if not (isinstance(stride, tuple) and len(stride) == len(size) and type(offset) is int and offset >= 0):
        raise UnsafeFile("it holds a tensor whose size, stride and offset do not fit each other")
    if not all(type(step) is int and 0 <= step < 1 << 40 for step in stride):
        raise UnsafeFile("it holds a tensor with a stride that torch does not write")
    if count == 0:
        return np.empty(size, flat.dtype)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if last >= len(flat):
        raise UnsafeFile(f"it holds a tensor that reaches to element {last} of a storage of {len(flat)}")
    steps = tuple(step * flat.itemsize for step in stride)
    return as_strided(flat[offset:], size, steps, writeable=False)
