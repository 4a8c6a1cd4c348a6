"""Frames: what a trainer's process sends to its writer's process over a pipe. A frame is a JSON object and some bytes.

Both ends are ours and of the same version. A frame contains no code.
"""

import json
import os
import struct
from collections.abc import Callable, Mapping
from typing import Any

_HEAD = struct.Struct("<IQ")  # bytes of the JSON object, bytes that follow it


def write_frame(write: Callable[[memoryview], int], message: Mapping[str, Any], body: Any = b"") -> None:
    """Writes a frame, and waits while the pipe is full. write: returns bytes written. body: any buffer of bytes."""
    head = json.dumps(message).encode()
    rest = memoryview(body).cast("B")
    _write_all(write, memoryview(_HEAD.pack(len(head), len(rest)) + head))
    _write_all(write, rest)


def read_frame(descriptor: int) -> tuple[dict[str, Any], bytearray] | None:
    """The next frame; None at the end of the pipe, also if it ends inside a frame."""
    head = _read_exactly(descriptor, _HEAD.size)
    if head is None:
        return None
    head_bytes, body_bytes = _HEAD.unpack(head)
    message, body = _read_exactly(descriptor, head_bytes), _read_exactly(descriptor, body_bytes)
    return None if message is None or body is None else (json.loads(message), body)


def _write_all(write: Callable[[memoryview], int], left: memoryview) -> None:
    while left:
        left = left[write(left) :]


def _read_exactly(descriptor: int, nbytes: int) -> bytearray | None:
    data = bytearray(nbytes)
    left = memoryview(data)
    while left:
        got = os.readv(descriptor, [left])
        if not got:
            return None
        left = left[got:]
    return data
