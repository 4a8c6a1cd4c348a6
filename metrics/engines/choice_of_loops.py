"""The engine's loops over tokens in machine code, where the extra `fast` is installed and the work is worth compiling them."""

from functools import cache

from .loops import NUMPY_LOOPS, Loops

WORTH_COMPILING = 5_000_000
"""Tokens from which compiling pays: it takes half a second to a second of a core, and saves a tenth to a quarter of a
microsecond a token."""


def loops_for(tokens: int) -> Loops:
    """The loops for work of so many tokens."""
    return (tokens >= WORTH_COMPILING and machine_loops()) or NUMPY_LOOPS


@cache
def machine_loops() -> Loops | None:
    """The loops in machine code; None where they cannot be made, or would give other bits than numpy's."""
    try:
        from . import compiled_engine

        return compiled_engine.machine_loops() if compiled_engine.is_exact() else None
    except (ImportError, OSError, RuntimeError):  # LLVM raises RuntimeError
        return None
