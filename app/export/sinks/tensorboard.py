"""TensorBoard event files, written without TensorBoard: see ingest/importers/scalars/event_files.py for the form."""

import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from ratioscope.ingest.importers.scalars.event_files import masked_crc

_VERSION = b"brain.Event:2"


class EventFile:
    """A new event file. Each sync writes one of its own: TensorBoard draws the files of a folder as one run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        values = b"".join(_field(1, _field(1, name.encode()) + _float(2, value)) for name, value in numbers.items())
        self._append(_event(time.time()) + _number(2, step) + _field(5, values))

    def close(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()

    def _append(self, event: bytes) -> None:
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            taken = [
                int(part)
                for path in self._folder.glob("events.out.tfevents.*")
                if (part := path.name.split(".")[3]).isdigit()
            ]
            begins = max([int(time.time()), *(seconds + 1 for seconds in taken)])
            self._file = (self._folder / f"events.out.tfevents.{begins}.ratioscope").open("xb")
            self._record(_event(time.time()) + _field(3, _VERSION))
        self._record(event)

    def _record(self, data: bytes) -> None:
        assert self._file is not None
        length = struct.pack("<Q", len(data))
        crcs = (struct.pack("<I", masked_crc(part)) for part in (length, data))
        self._file.write(b"".join((length, next(crcs), data, next(crcs))))
        self._file.flush()


def tensorboard_logger(place: str, run_id: str, name: str) -> EventFile:
    """A folder of TensorBoard's."""
    return EventFile(Path(place))


def _event(seconds: float) -> bytes:
    return b"\x09" + struct.pack("<d", seconds)


def _float(field: int, value: float) -> bytes:
    """A float32, as TensorBoard's scalars are; what is too large for one is infinite."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return bytes([field << 3 | 5]) + packed


def _field(field: int, data: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(data)) + data


def _number(field: int, value: int) -> bytes:
    return bytes([field << 3]) + _varint(value % (1 << 64))


def _varint(value: int) -> bytes:
    packed = bytearray()
    while value >= 0x80:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*packed, value])
