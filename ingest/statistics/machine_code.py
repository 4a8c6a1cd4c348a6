"""The engine's loops over tokens in machine code, where the extra `fast` is installed and the work is worth compiling them.

The code is made from the definitions of this installation and kept in a folder of the user's cache, beside that of statistics.
It is as much the user's own as Python's `__pycache__`; a run folder, a log or a dump has no part in it. Code that cannot be
made or read means numpy's loops.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

from ratioscope.metrics.engines.loops import NUMPY_LOOPS, Loops
from ratioscope.metrics.engines.program import Program
from ratioscope.metrics.engines.program_text import program_text

from ..files.cache_folder import cache_folder

Kernel = Callable[..., None]

WORTH_COMPILING = 20_000_000
"""Tokens from which compiling pays: it takes 15 seconds of a core, and saves about a microsecond a token."""
WORTH_LOADING = 1_000_000
"""Tokens from which compiled code pays if it is on disk: importing numba and reading the code takes half a second."""


def loops_for(tokens: int) -> Loops:
    """The loops for work of so many tokens."""
    folder = _folder()
    if folder is None or find_spec("numba") is None or tokens < WORTH_LOADING:
        return NUMPY_LOOPS
    if tokens < WORTH_COMPILING and not any(folder.glob("*.py")):
        return NUMPY_LOOPS
    return machine_loops(folder) or NUMPY_LOOPS


@cache
def machine_loops(folder: Path) -> Loops | None:
    """The loops in machine code, kept in this folder; None where they cannot be made."""
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        from ratioscope.metrics.engines.compiled_engine import compiled_loops
    except (ImportError, OSError):
        return None

    @cache
    def kernel_of(program: Program) -> Kernel | None:
        return _kernel(folder, program)

    return compiled_loops(kernel_of)


def _kernel(folder: Path, program: Program) -> Kernel | None:
    """The kernel of a program, ready to run; None where it cannot be made. Code on disk that cannot be read is made again."""
    text = program_text(program)
    place = folder / f"kernel_{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
    for _ in range(2):
        try:
            if not place.is_file() or place.read_bytes() != text.encode():
                _write_whole(place, text)
            if _digests(place) != _noted(place):
                _forget(place)
            kernel = _loaded(place)
            _write_whole(_note(place), json.dumps(_digests(place)))
            return kernel
        except Exception:  # numba unpickles a file that may be damaged, which can raise anything
            _forget(place)
    return None


def _note(place: Path) -> Path:
    """The file with the digests of the machine code: numba checks none, and a flipped bit would be other numbers or a crash."""
    return place.with_suffix(".digests")


def _noted(place: Path) -> object:
    try:
        return json.loads(_note(place).read_text())
    except (OSError, ValueError):
        return {}


def _digests(place: Path) -> dict[str, str]:
    """Name -> digest of each file that numba keeps of this module."""
    files = sorted(place.parent.glob(f"__pycache__/{place.stem}*.nb?"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _forget(place: Path) -> None:
    for file in place.parent.glob(f"__pycache__/{place.stem}*"):
        file.unlink(missing_ok=True)


def _loaded(place: Path) -> Kernel:
    """The kernel of the module in this file. numba keeps its machine code beside it."""
    spec = spec_from_file_location(place.stem, place)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[place.stem] = module  # numba looks the module up when it reads machine code
    spec.loader.exec_module(module)
    kernel: Kernel = module.kernel
    return kernel


def _write_whole(place: Path, text: str) -> None:
    """Writes the file so that no other process reads a part of it."""
    handle, name = tempfile.mkstemp(dir=place.parent, suffix=".part")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(name, place)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def _folder() -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder.parent / "machine_code"
