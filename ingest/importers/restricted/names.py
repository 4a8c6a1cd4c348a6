"""The names that a file may mention, and the stand-in of each. A name that is not here is refused and never imported."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ratioscope.errors import UnsafeFile

from .inert import InertDict, InertName, Instance, NumpyArray, NumpyType, opened, shaped
from .tensors import DTYPES, STORAGES, tensor

Named = InertName | type[Instance]
InertNames = Mapping[str, Named]


def _ordered(arguments: tuple[Any, ...]) -> Any:
    if arguments:
        raise UnsafeFile("it builds an OrderedDict of something; pickle makes it empty and fills it afterwards")
    return InertDict()


def _first(arguments: tuple[Any, ...]) -> Any:
    """The first argument: of an enumeration its value, of a size its tuple, of a parameter its tensor."""
    return arguments[0] if arguments else None


def _joined_text(arguments: tuple[Any, ...]) -> Any:
    """The arguments as a text: a device is `cuda:0`."""
    return ":".join(str(part)[:20] for part in arguments[:2] if isinstance(part, (str, int)))


def _numpy_type(arguments: tuple[Any, ...]) -> Any:
    kind = arguments[0] if arguments else None
    if not isinstance(kind, str) or len(kind) > 8:
        raise UnsafeFile("it holds a numpy type that is no plain one")
    if kind == "O" or kind == "O8":
        return NumpyType("O")
    try:
        known = np.dtype(kind)
    except TypeError as error:
        raise UnsafeFile(f"it holds the numpy type {kind!r}, which there is not") from error
    return NumpyType(known.str[1:] if known.kind in "US" else known.char)


def _numpy_place(arguments: tuple[Any, ...]) -> Any:
    if not (len(arguments) == 3 and isinstance(arguments[0], InertName) and arguments[0].path == "numpy.ndarray"):
        raise UnsafeFile("it rebuilds something with numpy that is no plain array")
    return NumpyArray()


def _numpy_scalar(arguments: tuple[Any, ...]) -> Any:
    if len(arguments) != 2 or not isinstance(arguments[0], NumpyType):
        raise UnsafeFile("it holds a numpy number of a form that numpy does not write")
    return shaped(arguments[1], arguments[0], (1,), "C")[0]


def _numpy_buffer(arguments: tuple[Any, ...]) -> Any:
    if len(arguments) != 4 or not isinstance(arguments[1], NumpyType) or arguments[3] not in ("C", "F"):
        raise UnsafeFile("it holds a numpy array of a form that numpy does not write")
    return shaped(arguments[0], arguments[1], arguments[2], arguments[3])


def _no_bytes(arguments: tuple[Any, ...]) -> Any:
    """Empty bytes, which an old pickle writes as a call without arguments."""
    if arguments:
        raise UnsafeFile("it makes bytes of something; pickle does so only of nothing")
    return b""


def _encoded(arguments: tuple[Any, ...]) -> Any:
    """bytes, which an old pickle can only write as a text in latin-1."""
    if len(arguments) != 2 or not isinstance(arguments[0], str) or arguments[1] not in ("latin1", "latin-1"):
        raise UnsafeFile("it encodes something that is no text of bytes")
    try:
        return arguments[0].encode("latin-1")
    except UnicodeEncodeError as error:
        raise UnsafeFile("it encodes a text that is none of bytes") from error


def _parts(arguments: tuple[Any, ...]) -> Any:
    """A list of what a set, a tuple or a deque was made of."""
    given = opened(arguments[0]) if arguments else []
    if not isinstance(given, (list, tuple)):
        raise UnsafeFile("it builds a collection of something that is no list")
    return list(given)


def _calls(path: str, make: Any, *more: str) -> dict[str, Named]:
    return {each: InertName(each, make) for each in (path, *more)}


def classes(paths: Iterable[str]) -> dict[str, Named]:
    """Classes whose instances are kept as Instance. An unpickler makes objects of real classes alone."""
    return {path: type("Instance", (Instance,), {"__slots__": (), "path": path}) for path in paths}


PLAIN: InertNames = {
    **_calls("collections.OrderedDict", _ordered),
    **_calls("_codecs.encode", _encoded),
    **_calls("builtins.bytes", _no_bytes, "__builtin__.bytes"),
    **_calls("builtins.list", _parts, "builtins.tuple", "builtins.set", "builtins.frozenset", "collections.deque",
             "__builtin__.list", "__builtin__.set"),
    **_calls("numpy._core.multiarray._reconstruct", _numpy_place, "numpy.core.multiarray._reconstruct"),
    **_calls("numpy._core.multiarray.scalar", _numpy_scalar, "numpy.core.multiarray.scalar"),
    **_calls("numpy._core.numeric._frombuffer", _numpy_buffer, "numpy.core.numeric._frombuffer"),
    **_calls("numpy.dtype", _numpy_type),
    **_calls("numpy.ndarray", None),
    **_calls("torch.device", _joined_text),
    **_calls("torch.Size", _first),
}  # fmt: skip
"""Names of Python, numpy and torch that a plain pickle may mention."""

TENSORS: InertNames = {
    **PLAIN,
    **_calls("torch._utils._rebuild_tensor_v2", tensor, "torch._utils._rebuild_tensor_v3"),
    **_calls("torch._utils._rebuild_parameter", _first),
    **{f"torch.{name}": InertName(f"torch.{name}") for name in (*STORAGES, *DTYPES)},
    "torch.storage.UntypedStorage": InertName("torch.storage.UntypedStorage"),
}
"""Names that a file of `torch.save` may mention."""


def enumeration(path: str) -> dict[str, Named]:
    """An enumeration, whose members become their values."""
    return {path: InertName(path, _first)}
