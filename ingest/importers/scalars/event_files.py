"""Event files of TensorBoard, `events.out.tfevents.*`, read without TensorBoard.

A record is its length (8 bytes), a CRC of the length, the data, and a CRC of the data: CRC-32C, masked. The data is a protobuf
message Event: 2 step, 5 summary; a summary has values: 1 tag, 2 simple_value, 8 tensor. A scalar is a simple value, or a tensor
with one number (tensorflow/core/util/event.proto, summary.proto, tensor.proto). event_settings.py reads the other values.
"""

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ratioscope.errors import UnsafeFile

from ..samples import Rejected
from ..wandb_log import LogDamage, message_fields
from .event_settings import event_settings
from .framed_logs import damage
from .number_row import LogChoices, Logged, whole_step

_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")
_MOST_RECORD = 1 << 28
_CHECKED = 1 << 14
"""Bytes of a record whose data is checked: larger ones are pictures and histograms, and the CRC takes 0.1 s for a megabyte."""
_STEP, _SUMMARY, _VALUE, _TAG, _SIMPLE, _TENSOR = 2, 5, 1, 1, 2, 8
_DTYPE, _SHAPE, _CONTENT, _FLOATS, _DOUBLES = 1, 2, 4, 5, 6
_FORMS = {1: ("<f", 4), 2: ("<d", 8)}
"""Type of a tensor -> how its one number is packed: float32, float64."""
_MASK = 0xA282EAD8
_HPARAMS = "_hparams_/"
"""The beginning of names that hold hyperparameters and the kinds of their values, but no number."""


def event_rows(path: Path, choice: LogChoices) -> Iterator[Logged | Rejected]:
    """The scalars of each event, in their order."""
    health, begins = LogDamage(), True
    for place, data in enumerate(_records(path, health)):
        try:
            step, values = _event(data, choice, begins)
        except (ValueError, struct.error):  # a digest fits, and yet it is no event
            health.damaged += 1
            continue
        if not values:
            continue
        begins = False
        if whole_step(step) is None:
            yield Rejected(path.name, place, "step", f"its step is {step}; wanted a whole number from 0 on")
        else:
            yield Logged(path.name, place, step, values)
    yield from damage(path.name, health)


def _records(path: Path, health: LogDamage) -> Iterator[bytes]:
    """Data of whole records. After a damaged length nothing can be found any more."""
    with path.open("rb") as file:
        begins = True
        while head := file.read(_LENGTH.size + _CRC.size):
            if len(head) < _LENGTH.size + _CRC.size:
                health.torn = True
                return
            (length,), (crc,) = _LENGTH.unpack_from(head), _CRC.unpack_from(head, _LENGTH.size)
            is_damaged = crc != masked_crc(head[: _LENGTH.size]) or length > _MOST_RECORD
            if is_damaged and begins:
                raise UnsafeFile("it is no event file of TensorBoard: its first record has another CRC")
            if is_damaged:
                health.damaged += 1
                return
            begins, data, tail = False, file.read(length), file.read(_CRC.size)
            if len(data) < length or len(tail) < _CRC.size:
                health.torn = True
                return
            if length <= _CHECKED and _CRC.unpack(tail)[0] != masked_crc(data):
                health.damaged += 1
                continue
            yield data


def _event(data: bytes, choice: LogChoices, begins: bool) -> tuple[int, dict[str, float]]:
    step, values = 0, dict[str, float]()
    for field, content in message_fields(data):
        if field == _STEP and isinstance(content, int):
            step = content
        elif field == _SUMMARY and isinstance(content, bytes):
            for part, value in message_fields(content):
                if part == _VALUE and isinstance(value, bytes):
                    _take(value, values, choice, begins)
    return step, values


def _take(value: bytes, values: dict[str, float], choice: LogChoices, begins: bool) -> None:
    parts = dict(message_fields(value))
    tag, simple, tensor = parts.get(_TAG), parts.get(_SIMPLE), parts.get(_TENSOR)
    name = tag.decode("utf-8", "replace") if isinstance(tag, bytes) else ""
    number = struct.unpack("<f", simple)[0] if isinstance(simple, bytes) else None
    if number is None and isinstance(tensor, bytes):
        number = _scalar(tensor)
    if number is not None:
        values[name] = number
    elif own := event_settings(name, parts, begins=begins):
        choice.config.update(own)
    elif not name.startswith(_HPARAMS):
        choice.no_numbers[name] += 1


def _scalar(tensor: bytes) -> float | None:
    """The number of a tensor without dimensions; None for any other tensor."""
    parts = dict(message_fields(tensor))
    dtype = parts.get(_DTYPE)
    if not isinstance(dtype, int) or dtype not in _FORMS or parts.get(_SHAPE):
        return None
    form, size = _FORMS[dtype]
    held = parts.get(_CONTENT) or parts.get(_FLOATS if dtype == 1 else _DOUBLES)
    return float(struct.unpack(form, held)[0]) if isinstance(held, bytes) and len(held) == size else None


def masked_crc(data: bytes) -> int:
    """The CRC-32C of the data, turned and shifted as TensorFlow's records have it.

    >>> hex(masked_crc(b"123456789"))
    '0xc78ab0e5'
    """
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    def entry(value: int) -> int:
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        return value

    return tuple(map(entry, range(256)))
