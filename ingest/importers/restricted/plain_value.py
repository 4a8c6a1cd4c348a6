"""plain_value: the value of a pickle, read without importing or running anything that the file names.

The value holds dictionaries, lists, tuples, numbers, texts, bytes, numpy arrays and the stand-ins of inert.py; sets are lists.
"""

from collections.abc import Callable
from typing import Any

from ratioscope.errors import UnsafeFile

from .budget import Allowance
from .machine import Machine
from .names import InertNames
from .opcodes import OPERATIONS, REFUSED
from .tree import check_tree

STOP = ord(".")


def plain_value(
    data: bytes | memoryview,
    names: InertNames,
    budget: Allowance,
    *,
    persistent: Callable[[Any], Any] | None = None,
) -> Any:
    """The value of a pickle that fills all of `data`. Raises UnsafeFile for anything that a plain dump does not hold.

    names: those that it may mention. persistent: what stands for a persistent id; None: there may be none.
    """
    value, end = plain_value_at(data, 0, names, budget, persistent=persistent)
    if end != len(memoryview(data)):
        raise UnsafeFile(f"its pickle ends at byte {end}, and {len(memoryview(data)) - end} more bytes follow")
    return value


def plain_value_at(
    data: bytes | memoryview,
    start: int,
    names: InertNames,
    budget: Allowance,
    *,
    persistent: Callable[[Any], Any] | None = None,
) -> tuple[Any, int]:
    """The value of the pickle that begins at byte `start`, and the byte after its end."""
    machine = Machine(memoryview(data), start, names, budget, persistent)
    try:
        value = _run(machine)
    except UnsafeFile:
        raise
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:  # of a form nobody thought of
        raise UnsafeFile(f"its pickle is malformed at byte {machine.at} ({type(error).__name__})") from error
    check_tree(value, budget)
    return value, machine.at


def _run(machine: Machine) -> Any:
    """The value on the stack when the pickle says STOP."""
    data = machine.data
    while True:
        if machine.at >= len(data):
            raise UnsafeFile("its pickle ends before it says so (no STOP): it is cut off")
        code = data[machine.at]
        machine.at += 1
        if code == STOP:
            break
        if (operation := OPERATIONS.get(code)) is None:
            known = REFUSED.get(code, f"byte {code:#04x}")
            raise UnsafeFile(f"it uses the opcode {known}, which no dump of a trainer needs")
        operation(machine)
    value = machine.pop()
    if machine.stack or machine.marks:
        raise UnsafeFile("its pickle leaves values behind that belong to nothing")
    return value
