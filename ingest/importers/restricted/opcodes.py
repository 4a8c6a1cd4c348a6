"""The opcodes of pickle that are carried out, one function each. None imports, calls or sets anything outside the machine.

Those of extension codes and of buffers outside the file have no function: a file that uses them is refused by name.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ratioscope.errors import UnsafeFile

from .budget import OBJECT_BYTES
from .inert import InertName, Instance, built, kind_of
from .machine import Machine
from .names import instance

Operation = Callable[[Machine], None]
MOST_DIGITS = 40
_KEYS = (str, int, float, bytes, bool, type(None))
_WIDTHS = {ord("J"): 5, ord("M"): 3, ord("K"): 2}
"""Opcodes of a whole number -> the bytes with the opcode. Ids of tokens are runs of all three."""
_SIGNED = 5
_FLOAT_WIDTH, _LONGEST_RUN = 9, 4096


def whole_numbers(machine: Machine) -> None:
    """The whole number at hand, and those that follow it directly. Bytes are read in pieces: a view costs three times as much."""
    start = machine.at - 1
    piece, at, found = bytes(machine.data[start : start + _LONGEST_RUN]), 0, []
    while at < len(piece) and (width := _WIDTHS.get(piece[at])) is not None and at + width <= len(piece):
        found.append(int.from_bytes(piece[at + 1 : at + width], "little", signed=width == _SIGNED))
        at += width
    if not found:
        raise UnsafeFile("it ends in the middle of a number")
    machine.budget.spend(len(found) * OBJECT_BYTES)
    machine.stack += found
    machine.at = start + at


def floats(machine: Machine) -> None:
    """The float at hand, and all that follow it directly: long lists of log-probs are runs of them."""
    data, at = machine.data, machine.at - 1
    whole = min((len(data) - at) // _FLOAT_WIDTH, _LONGEST_RUN)
    if whole == 0:
        raise UnsafeFile("it ends in the middle of a number")
    same = np.ndarray(whole, np.uint8, data, at, (_FLOAT_WIDTH,)) == data[at]
    count = whole if same.all() else int(same.argmin())
    machine.budget.spend(count * OBJECT_BYTES)
    machine.stack += np.ndarray(count, ">f8", data, at + 1, (_FLOAT_WIDTH,)).tolist()
    machine.at = at + count * _FLOAT_WIDTH


def _constant(value: Any) -> Operation:
    return lambda machine: machine.push(value)


def _text(width: int) -> Operation:
    return lambda machine: machine.push(_decoded(machine.counted(width)))


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise UnsafeFile("it holds a text that is no UTF-8") from error


def _bytes(width: int) -> Operation:
    return lambda machine: machine.push(machine.counted(width))


def _long(width: int) -> Operation:
    return lambda machine: machine.push(_whole(machine.counted(width)))


def _whole(data: bytes) -> int:
    if len(data) > 16:
        raise UnsafeFile(f"it holds a whole number of {len(data)} bytes; wanted at most 16")
    return int.from_bytes(data, "little", signed=True)


def _digits(machine: Machine) -> None:
    line = machine.line()
    if line in (b"00", b"01"):
        return machine.push(line == b"01")
    machine.push(_parsed(int, line.removesuffix(b"L")))


def _float(machine: Machine) -> None:
    machine.push(_parsed(float, machine.line()))


def _parsed(kind: Callable[[str], Any], line: bytes) -> Any:
    if len(line) > MOST_DIGITS:
        raise UnsafeFile(f"it holds a number of {len(line)} characters; wanted at most {MOST_DIGITS}")
    try:
        return kind(line.decode("ascii"))
    except ValueError as error:
        raise UnsafeFile("it holds a number that is none") from error


def _escaped(machine: Machine) -> None:
    try:
        machine.push(machine.line().decode("raw-unicode-escape"))
    except UnicodeDecodeError as error:
        raise UnsafeFile("it holds a text with a broken escape") from error


def _protocol(machine: Machine) -> None:
    if (version := machine.take(1)[0]) > 5:
        raise UnsafeFile(f"it is a pickle of protocol {version}; wanted at most 5")


def _frame(machine: Machine) -> None:
    length = int.from_bytes(machine.take(8), "little")
    if length > len(machine.data) - machine.at:
        raise UnsafeFile("it states a frame that is longer than the file")


def _mark(machine: Machine) -> None:
    machine.budget.spend(OBJECT_BYTES)
    machine.marks.append(len(machine.stack))


def _since_mark(make: Callable[[list[Any]], Any]) -> Operation:
    def operation(machine: Machine) -> None:
        items = machine.since_mark()
        machine.budget.spend(8 * len(items))
        machine.push(make(items))

    return operation


def _tuple(count: int) -> Operation:
    return lambda machine: machine.push(tuple(machine.pop() for _ in range(count))[::-1])


def _new(make: Callable[[], Any]) -> Operation:
    return lambda machine: machine.push(make())


def _pop(machine: Machine) -> None:
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.pop()


def _duplicate(machine: Machine) -> None:
    machine.push(machine.top())


def _append(machine: Machine) -> None:
    _extend(machine, [machine.pop()])


def _appends(machine: Machine) -> None:
    _extend(machine, machine.since_mark())


def _extend(machine: Machine, items: list[Any]) -> None:
    target = machine.top()
    if type(target) is not list:
        raise UnsafeFile(f"it appends to a {kind_of(target)}; wanted a list")
    machine.budget.spend(8 * len(items))
    target += items


def _set_item(machine: Machine) -> None:
    value, key = machine.pop(), machine.pop()
    _update(machine, [key, value])


def _set_items(machine: Machine) -> None:
    _update(machine, machine.since_mark())


def _update(machine: Machine, pairs: list[Any]) -> None:
    target = machine.top()
    items = target.items if isinstance(target, Instance) else target
    if type(items) is not dict or len(pairs) % 2:
        raise UnsafeFile(f"it sets items of a {kind_of(target)}; wanted a dictionary, and pairs")
    machine.budget.spend(OBJECT_BYTES * len(pairs))
    items.update(_dictionary(pairs))


def _dictionary(pairs: list[Any]) -> dict[Any, Any]:
    if len(pairs) % 2 or not all(isinstance(key, _KEYS) for key in pairs[::2]):
        raise UnsafeFile("it holds a dictionary with a key that is no text and no number")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _remember(width: int) -> Operation:
    return lambda machine: machine.remember(int.from_bytes(machine.take(width), "little"))


def _recall(width: int) -> Operation:
    return lambda machine: machine.recall(int.from_bytes(machine.take(width), "little"))


def _remember_line(machine: Machine) -> None:
    machine.remember(_parsed(int, machine.line()))


def _recall_line(machine: Machine) -> None:
    machine.recall(_parsed(int, machine.line()))


def _memoize(machine: Machine) -> None:
    machine.remember(len(machine.memo))


def _global(machine: Machine) -> None:
    module, name = _decoded(machine.line()), _decoded(machine.line())
    machine.push(machine.named(module, name))


def _stack_global(machine: Machine) -> None:
    name, module = machine.pop(), machine.pop()
    if not (isinstance(module, str) and isinstance(name, str)):
        raise UnsafeFile("it names something by what is no text (STACK_GLOBAL)")
    machine.push(machine.named(module, name))


def _reduce(machine: Machine) -> None:
    arguments, name = machine.pop(), machine.pop()
    if not isinstance(name, InertName) or type(arguments) is not tuple:
        raise UnsafeFile(f"it calls a {kind_of(name)} (REDUCE); only known names are called, by inert stand-ins")
    if name.make is not None:
        machine.push(name.make(arguments, machine.budget))
    else:
        machine.push(instance(name, arguments))


def _new_object(machine: Machine) -> None:
    arguments, name = machine.pop(), machine.pop()
    if not isinstance(name, InertName) or type(arguments) is not tuple:
        raise UnsafeFile(f"it makes an object of a {kind_of(name)} (NEWOBJ); wanted a known class")
    machine.push({} if name.path == "collections.OrderedDict" else instance(name, arguments))


def _new_object_named(machine: Machine) -> None:
    if machine.pop() != {}:
        raise UnsafeFile("it makes an object with arguments by name (NEWOBJ_EX)")
    _new_object(machine)


def _build(machine: Machine) -> None:
    state = machine.pop()
    target = machine.top()
    if type(target) is dict and isinstance(state, dict):
        return  # attributes of an OrderedDict; none is wanted
    built(target, state, machine.budget)


def _persistent(machine: Machine) -> None:
    machine.push(machine.persistent(machine.pop()))


OPERATIONS: dict[int, Operation] = {
    ord(code): operation
    for code, operation in {
        "\x80": _protocol, "\x95": _frame, "(": _mark, "0": _pop, "1": lambda machine: _ignored(machine.since_mark()),
        "2": _duplicate, "N": _constant(None), "\x88": _constant(True), "\x89": _constant(False),
        "K": whole_numbers, "M": whole_numbers, "J": whole_numbers, "G": floats, "\x8a": _long(1), "\x8b": _long(4),
        "I": _digits, "L": _digits, "F": _float, "V": _escaped, "\x8c": _text(1), "X": _text(4), "\x8d": _text(8),
        "C": _bytes(1), "B": _bytes(4), "\x8e": _bytes(8), "\x96": lambda m: m.push(bytearray(m.counted(8))),
        "]": _new(list), "}": _new(dict), ")": _new(tuple), "\x8f": _new(list), "\x85": _tuple(1), "\x86": _tuple(2),
        "\x87": _tuple(3), "t": _since_mark(tuple), "l": _since_mark(list), "d": _since_mark(_dictionary),
        "\x91": _since_mark(list), "\x90": _appends, "a": _append, "e": _appends, "s": _set_item, "u": _set_items,
        "q": _remember(1), "r": _remember(4), "p": _remember_line, "\x94": _memoize, "h": _recall(1), "j": _recall(4),
        "g": _recall_line, "c": _global, "\x93": _stack_global, "R": _reduce, "\x81": _new_object,
        "\x92": _new_object_named, "b": _build, "Q": _persistent,
    }.items()
}  # fmt: skip
"""Byte -> what it does. A set is kept as a list."""
REFUSED = {
    ord(code): name
    for code, name in {
        "i": "INST", "o": "OBJ", "\x82": "EXT1", "\x83": "EXT2", "\x84": "EXT4", "P": "PERSID", "\x97": "NEXT_BUFFER",
        "\x98": "READONLY_BUFFER", "S": "STRING", "T": "BINSTRING", "U": "SHORT_BINSTRING",
    }.items()
}  # fmt: skip
"""The opcodes that are not carried out, by the names that pickle gives them."""


def _ignored(items: list[Any]) -> None:
    pass
