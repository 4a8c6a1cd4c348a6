"""Functions in machine code that LLVM makes of their text, in memory. This file imports llvmlite, and starts no thread."""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock
from typing import Any

import llvmlite.binding  # pyright: ignore[reportMissingImports]

from ratioscope.arrays import Array

llvm: Any = llvmlite.binding
"""`Any`: llvmlite has no types."""
VERSION = ".".join(map(str, llvm.llvm_version_info))
Function = Callable[..., None]
"""It receives whole numbers, addresses, arrays (None: a null pointer) and lists of them. Other threads run meanwhile."""

_MAKING = Lock()
_IN_USE: list[Any] = []
"""The owners of machine code that functions point to."""


@cache
def functions(text: str) -> Callable[[str], Function]:
    """name -> a function of this module, ready to run. Texts that are equal are compiled once."""
    with _MAKING:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
        )
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), target)
        engine.finalize_object()
        _IN_USE.append(engine)

    @cache
    def named(name: str) -> Function:
        address, kinds = engine.get_function_address(name), dict[int, Any]()

        def call(*given: Any) -> None:
            words = [*map(_word, _flat(given))]
            if len(words) not in kinds:
                kinds[len(words)] = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(words))(address)
            kinds[len(words)](*words)

        return call

    return named


def _flat(given: Sequence[Any]) -> list[Any]:
    return [one for each in given for one in (each if isinstance(each, list) else [each])]


def _word(given: Any) -> int:
    return given if isinstance(given, int) else 0 if given is None else address(given)


def address(array: Array) -> int:
    """The address of the numbers of an array."""
    if array.flags.carray and array.size:  # contiguous and writeable: it takes a fifth of the time
        buffer: Any = array  # the stubs do not call it one
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    place: int = array.__array_interface__["data"][0]  # `ctypes.data` takes three times as long
    return place
