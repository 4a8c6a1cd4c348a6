"""plain_value: the value of a pickle, read by Python's own unpickler, for which every name is a stand-in of inert.py.

The unpickler can call, make and change only what it has been given: values of Python, numpy arrays and stand-ins. The process
that it runs in bounds its memory and its time.
"""

import copyreg
import io
import pickle
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from ratioscope.errors import UnsafeFile

from ..confinement import FileLimits, too_large
from .inert import Instance, NumpyArray
from .names import InertNames

_LEVELS = 64
"""Levels of lists, tuples and dictionaries."""
_KEYS = (str, int, float, bytes, type(None))
_LEAVES = frozenset((int, float, str, bytes, bool, type(None)))
_CONTAINERS = (dict, list, tuple, set, frozenset, np.ndarray, Instance, NumpyArray)


def plain_value(file: IO[bytes], names: InertNames, storage: Callable[[Any], Any] | None = None) -> Any:
    """The value of the pickle at hand; the file is left behind its end. UnsafeFile for what no plain dump holds.

    names: those that it may mention. storage: what stands for a persistent id; None: there may be none.
    """
    copyreg.clear_extension_cache()  # it holds what other code has imported, and no name is asked for it
    try:
        value = _Reader(file, names, storage).load()
    except (MemoryError, UnsafeFile):
        raise
    except Exception as error:
        words = f"{type(error).__name__}: {str(error)[:120]}".encode("ascii", "backslashreplace").decode()
        raise UnsafeFile(f"its pickle is damaged, cut off or no plain one ({words})") from error
    return value


def whole_value(file: IO[bytes], names: InertNames, storage: Callable[[Any], Any] | None = None) -> Any:
    """The value of a pickle that fills the rest of the file."""
    value = plain_value(file, names, storage)
    if file.read(1):
        raise UnsafeFile("its pickle ends, and more bytes follow")
    return value


def in_memory(data: bytes | bytearray) -> io.BufferedReader:
    """Bytes as a file that an unpickler reads in large pieces."""
    return io.BufferedReader(io.BytesIO(data), 1 << 17)


class _Reader(pickle.Unpickler):
    def __init__(self, file: IO[bytes], names: InertNames, storage: Callable[[Any], Any] | None) -> None:
        super().__init__(file)
        self._names, self._storage = names, storage

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in of a name. Nothing is imported."""
        path = f"{module}.{name}"
        if path not in self._names:
            shown = path[:120].encode("ascii", "backslashreplace").decode()
            raise UnsafeFile(f"it names {shown}, which is not among the names that this kind of file may mention")
        return self._names[path]

    def persistent_load(self, key: Any) -> Any:
        if self._storage is None:
            raise UnsafeFile("it refers to something outside of itself (a persistent id)")
        return self._storage(key)


def bounded_tree(value: Any, limits: FileLimits) -> Any:
    """The value. UnsafeFile where it contains itself, is nested too deeply, or would take too much once something walks it.

    A list named a thousand times in a list named a thousand times is small, and so is a tensor with a stride of 0.
    """
    _size(value, {}, 0, limits)
    return value


def _size(whole: Any, sizes: dict[int, int], level: int, limits: FileLimits) -> int:
    """Bytes of a value, of each shared part as often as it is met."""
    if (known := sizes.get(id(whole))) is not None:
        if known < 0:
            raise UnsafeFile("it holds a value that contains itself")
        return known
    if level > _LEVELS:
        raise UnsafeFile(f"it is nested more than {_LEVELS} levels deep")
    sizes[id(whole)] = -1
    parts = _parts(whole)
    inner = () if _LEAVES.issuperset(map(type, parts)) else (part for part in parts if isinstance(part, _CONTAINERS))
    size = getattr(whole, "nbytes", 8 * len(parts)) + sum(_size(part, sizes, level + 1, limits) for part in inner)
    if size > limits.nbytes:
        raise too_large(limits)
    sizes[id(whole)] = size
    return size


def _parts(whole: Any) -> Any:
    """The values in a container."""
    if isinstance(whole, dict):
        if not all(isinstance(key, _KEYS) for key in whole):
            raise UnsafeFile("it holds a dictionary with a key that is no text and no number")
        return whole.values()
    if isinstance(whole, Instance):
        return (whole.items, whole.state, whole.arguments)
    if isinstance(whole, NumpyArray):
        return (whole.array,)
    if isinstance(whole, np.ndarray):
        return whole.reshape(-1) if whole.dtype == object else ()
    return whole if isinstance(whole, _CONTAINERS) else ()
