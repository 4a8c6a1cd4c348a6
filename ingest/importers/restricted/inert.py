"""The stand-ins of a restricted reader for another program's classes and objects. None of it has any behaviour.

Each has a `__setstate__` of its own: without one, an unpickler fills the attributes of the object from the file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ratioscope.arrays import Array
from ratioscope.errors import UnsafeFile

Make = Callable[[tuple[Any, ...]], Any]
"""Makes the stand-in of a call from the call's arguments."""


@dataclass(frozen=True)
class InertName:
    """A class or function that a file names, `module.name`. It is never imported."""

    path: str
    make: Make | None = None
    """The stand-in of a call; None: the name may be named and not called."""

    def __call__(self, *arguments: Any) -> Any:
        if self.make is None:
            raise UnsafeFile(f"it makes an object of {self.path}, which is not among the classes that it may")
        return self.make(arguments)

    def __setstate__(self, state: Any) -> None:
        raise UnsafeFile(f"it sets the state of the name {self.path} (BUILD); only objects of a known class have one")


class InertDict(dict[Any, Any]):
    """The items of an OrderedDict, which may have attributes; none is wanted."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        pass


class Instance:
    """An object of an allowed class: what the file gave it, unread."""

    __slots__ = ("arguments", "items", "state")
    path: ClassVar[str]
    arguments: tuple[Any, ...]
    items: dict[Any, Any]
    """Items, if the class is a dictionary."""
    state: Any

    def __new__(cls, *arguments: Any) -> "Instance":
        self = super().__new__(cls)
        self.arguments, self.items, self.state = arguments, {}, None
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value

    def __setstate__(self, state: Any) -> None:
        self.state = state


class NumpyArray:
    """A numpy array that a file builds in two moves: a place first, its content afterwards."""

    array: Array | None = None

    def __setstate__(self, state: Any) -> None:
        """Takes (version, shape, type, is_fortran, bytes or list)."""
        if not (isinstance(state, tuple) and len(state) == 5 and isinstance(state[2], NumpyType)):
            raise UnsafeFile("it gives a numpy array a state of a form that numpy does not write")
        _, shape, kind, is_fortran, data = state
        self.array = shaped(data, kind, shape, "F" if is_fortran else "C")


@dataclass
class NumpyType:
    """A numpy dtype that a file builds in two moves: its name, then its byte order."""

    kind: str
    order: str = "="

    def __setstate__(self, state: Any) -> None:
        if not (isinstance(state, tuple) and len(state) >= 2 and state[1] in ("<", ">", "|", "=")):
            raise UnsafeFile("it gives a numpy type a state of a form that numpy does not write")
        self.order = state[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.kind).newbyteorder("=" if self.order == "|" else self.order)  # type: ignore[arg-type]


SIMPLE = "?bhilqBHILQefd"
"""Characters of the numpy types that hold plain numbers."""


def opened(value: Any) -> Any:
    """The value; of an array that was built in two moves, the array."""
    if isinstance(value, NumpyArray):
        if value.array is None:
            raise UnsafeFile("it names a numpy array and never says what is in it")
        return value.array
    return value


def shaped(data: Any, kind: NumpyType, shape: Any, order: str) -> Array:
    """An array of bytes, or of a list of objects, in a shape. Raises UnsafeFile where the two disagree."""
    count = elements(shape)
    if kind.kind == "O":
        if type(data) is not list or len(data) != count:
            raise UnsafeFile("it gives a numpy array of objects more or fewer objects than its shape has")
        array = np.empty(count, object)
        for index, item in enumerate(data):  # np.array would look into the items
            array[index] = item
        return array.reshape(shape)
    if kind.kind not in SIMPLE and not (kind.kind[:1] in ("U", "S") and kind.kind[1:].isdigit() and len(kind.kind) < 7):
        raise UnsafeFile(f"it holds a numpy array of type {kind.kind[:40]!r}; wanted plain numbers, texts or objects")
    if not isinstance(data, (bytes, bytearray)) or len(data) != count * kind.dtype.itemsize:
        raise UnsafeFile("it gives a numpy array more or fewer bytes than its shape has")
    return np.frombuffer(data, kind.dtype).reshape(shape, order=order)  # type: ignore[call-overload, no-any-return]


def elements(shape: Any) -> int:
    """The number of elements of an array of this shape; UnsafeFile where it is no shape."""
    if not (isinstance(shape, tuple) and len(shape) <= 8 and all(type(n) is int and 0 <= n < 1 << 40 for n in shape)):
        raise UnsafeFile("it holds an array whose shape is no tuple of at most 8 sizes")
    count = 1
    for size in shape:
        count *= size
    return count
