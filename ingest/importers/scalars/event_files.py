"""Event files of TensorBoard, `events.out.tfevents.*`, read without TensorBoard.

A record is its length (8 bytes), a CRC of the length, the data, and a CRC of the data: CRC-32C, masked. The data is a protobuf
message Event: 2 step, 5 summary; a summary has values: 1 tag, 2 simple_value, 8 tensor. A scalar is a simple value, or a tensor
with one number (tensorflow/core/util/event.proto, summary.proto, tensor.proto).

The other values hold settings: hyperparameters, and texts that were written before the first number. A value has metadata
(field 9) that name its plugin. The plugin `hparams` holds a message: 3 session_start_info, with a map from names to
google.protobuf.Value (tensorboard/plugins/hparams/plugin_data.proto). That of `text` has a tensor of texts.
"""

import struct
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ratioscope.errors import UnsafeFile

from ..samples import Rejected
from ..wandb_log import LogDamage, message_fields
from .framed_logs import damage
from .number_row import LogChoices, Logged, setting, whole_step

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


_TENSOR, _METADATA, _PLUGIN, _NAME, _CONTENT, _TEXTS = 8, 9, 1, 1, 2, 8
_SESSION_START, _HPARAMS, _KEY, _VALUE = 3, 1, 1, 2
_NUMBER, _TEXT, _TRUTH = 2, 3, 4
_SUFFIX = "/text_summary"
"""PyTorch and tensorboardX put this behind the name of a text."""
ARGUMENTS = "args"
"""The text in which the Hugging Face trainers write their arguments; the same are its hyperparameters."""

Fields = Mapping[int, int | bytes]
"""Number of a field -> its last value in a message."""


def event_settings(name: str, value: Fields, *, begins: bool) -> dict[str, Any]:
    """The settings that a value of a summary holds; none for any other one. begins: no number was logged before.

    A text is a setting if it is a JSON object or one word, and the log has no number yet: samples come later and have many words.
    """
    plugin, content = _plugin(value.get(_METADATA))
    if plugin == b"hparams":
        return dict(_hyperparameters(content))
    if plugin != b"text" or not begins or not isinstance(tensor := value.get(_TENSOR), bytes):
        return {}
    text = next((part for field, part in message_fields(tensor) if field == _TEXTS and isinstance(part, bytes)), b"")
    key, own = name.removesuffix(_SUFFIX), setting(text.decode("utf-8", "replace").strip())
    if isinstance(own, dict):
        return own if key == ARGUMENTS else {key: own}
    return {key: own} if key.isidentifier() and not (isinstance(own, str) and len(own.split()) != 1) else {}


def _plugin(metadata: object) -> tuple[bytes, bytes]:
    """(name, content) of the plugin that a value is for."""
    plugin = dict(message_fields(metadata)).get(_PLUGIN) if isinstance(metadata, bytes) else None
    parts = dict(message_fields(plugin)) if isinstance(plugin, bytes) else {}
    name, content = parts.get(_NAME), parts.get(_CONTENT)
    return name if isinstance(name, bytes) else b"", content if isinstance(content, bytes) else b""


def _hyperparameters(content: bytes) -> Iterator[tuple[str, Any]]:
    """(name, value) of each hyperparameter. Any: a number, a truth value, or what a text holds."""
    start = dict(message_fields(content)).get(_SESSION_START)
    for field, entry in message_fields(start if isinstance(start, bytes) else b""):
        parts = dict(message_fields(entry)) if field == _HPARAMS and isinstance(entry, bytes) else {}
        key, value = parts.get(_KEY), parts.get(_VALUE)
        if isinstance(key, bytes) and isinstance(value, bytes):
            yield key.decode("utf-8", "replace").replace("/", "."), _plain(dict(message_fields(value)))


def _plain(value: Fields) -> Any:
    number, text = value.get(_NUMBER), value.get(_TEXT)
    if isinstance(number, bytes):
        return struct.unpack("<d", number)[0]
    return setting(text.decode("utf-8", "replace")) if isinstance(text, bytes) else bool(value.get(_TRUTH))
