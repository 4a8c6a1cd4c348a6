"""Copies arrays and tensors of the trainer into host memory that is used again and again.

Fresh memory costs about a hundred times the copy itself, because each page is faulted in. So buffers come from a pool and go
back to it once the writer has read them. bfloat16, which numpy lacks, is copied as its 16 raw bits; the writer widens it.

On CUDA the trainer's thread never waits. A clone is enqueued on the trainer's own stream, so that whatever the trainer
does to the tensor next comes after it; the transfer to page-locked memory runs on a stream of ours; the writer waits for
its event. torch is never imported: whoever hands over a tensor has loaded it.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.arrays import Array
from ratioscope.errors import SchemaError

from ..foreign import Tensor
from ..process.counts import OneAtATime

_SMALL = 4096  # bytes; below it fresh memory is as cheap as a look into the pool


@dataclass(frozen=True)
class Buffer:
    """A piece of host memory of the pool."""

    memory: NDArray[np.uint8]
    owner: Tensor | None
    """The tensor that holds page-locked memory; None for ordinary memory."""


@dataclass(frozen=True)
class HostArray:
    """A copy of an array in host memory, or on its way there until `wait` returns. Do not read it after it was released."""

    array: Array
    bfloat16: bool = False
    """True if `array` holds the 16 raw bits of bfloat16 values."""
    buffer: Buffer | None = None
    """The pool's memory that `array` lies in; None for a small array with memory of its own."""
    done: Any = None
    """The CUDA event after which the values are there; None if they are."""

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def wait(self) -> Array:
        """The values, once they are there. bfloat16 is widened to float32."""
        if self.done is not None:
            self.done.synchronize()
        return (self.array.astype(np.uint32) << 16).view(np.float32) if self.bfloat16 else self.array


@dataclass(frozen=True)
class Joined:
    """One array or list of numbers per sequence, copied into a single one, one sequence after the other."""

    values: HostArray | list[Any]
    """The single array, shape (tokens,), or list."""
    lengths: list[int]
    present: list[bool]
    """True for each sequence with an array; the length of the others is 0."""

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class Unread:
    """A value that could not be read when `log` was called."""

    reason: str


def whole_array(value: Any) -> Array:
    """The values as an array; NaN where a masked array of floats hides one. SchemaError where it hides anything else.

    The number under such a mask is no value of anybody's, and `np.asarray` would return it.
    """
    if not isinstance(value, np.ma.MaskedArray) or not np.ma.is_masked(value):
        return np.asarray(value)
    if value.dtype.kind != "f":
        raise SchemaError(
            f"a masked array of {value.dtype} hides values; wanted one for each token, or a mask= beside it"
        )
    return value.filled(np.nan)


class HostCopies:
    """Copies arrays and tensors into reused host memory. Safe to use from several threads."""

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._kept = 0
        self._free: defaultdict[tuple[int, bool], list[Buffer]] = defaultdict(list)
        self._pool = OneAtATime()
        self._streams = _first_stream()

    def of(self, value: Any) -> HostArray:
        """A copy of a numpy array or torch tensor as it is at this moment."""
        if not is_tensor(value):
            return self._of_array(whole_array(value))
        tensor = _widened(value.detach())
        if tensor.device.type == "cuda":
            return self._of_cuda(tensor)
        if tensor.device.type not in ("cpu", "meta"):
            tensor = tensor.to("cpu")  # no streams to rely on: this waits for the device
        raw = _raw_bits(tensor)
        return self._of_array(raw.resolve_conj().resolve_neg().numpy(), bfloat16=raw is not tensor)

    def release_all(self, copies: Iterable[HostArray]) -> None:
        """Gives the memory of several copies back."""
        for copy in copies:
            self.release(copy)

    def release(self, copy: HostArray) -> None:
        """Gives the memory back to the pool; beyond `keep_bytes` it goes to the operating system."""
        buffer = copy.buffer
        if buffer is not None:
            self._pool.do(lambda: self._keep(buffer))

    def _keep(self, buffer: Buffer) -> None:
        if self._kept + buffer.memory.nbytes <= self._keep_bytes:
            self._kept += buffer.memory.nbytes
            self._free[buffer.memory.nbytes, buffer.owner is not None].append(buffer)

    def _of_array(self, array: Array, bfloat16: bool = False) -> HostArray:
        if array.dtype.name == "bfloat16":  # ml_dtypes, as JAX uses
            array, bfloat16 = array.view(np.uint16), True
        if array.dtype.kind not in "biuf":
            raise SchemaError(f"an array of {array.dtype} holds no numbers; wanted floats, integers or booleans")
        if array.nbytes < _SMALL:
            return HostArray(array.copy(), bfloat16)
        buffer = self._take(array.nbytes, pinned=False)
        target = buffer.memory[: array.nbytes].view(array.dtype).reshape(array.shape)
        np.copyto(target, array)
        return HostArray(target, bfloat16, buffer)

    def _of_cuda(self, tensor: Tensor) -> HostArray:
        torch = sys.modules["torch"]
        if torch.cuda.is_current_stream_capturing():
            raise SchemaError(
                "a CUDA graph is being captured, and the copy would become a part of it; log outside of it"
            )
        raw = _raw_bits(tensor)
        snapshot = raw.clone(memory_format=torch.contiguous_format)
        if tensor.device not in self._streams:
            self._streams[tensor.device] = torch.cuda.Stream(tensor.device)
        stream = self._streams[tensor.device]
        buffer = self._take(max(snapshot.nbytes, 1), pinned=True)
        assert buffer.owner is not None
        target = buffer.owner[: snapshot.nbytes].view(snapshot.dtype).view(snapshot.shape)
        stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(stream):
            target.copy_(snapshot, non_blocking=True)
            done = torch.cuda.Event(blocking=True)  # the writer sleeps rather than spins while it waits
            done.record(stream)
        snapshot.record_stream(stream)
        return HostArray(target.numpy(), raw is not tensor, buffer, done)

    def _take(self, nbytes: int, pinned: bool) -> Buffer:
        size = 1 << (nbytes - 1).bit_length()
        buffers: list[Buffer] = []
        self._pool.do(lambda: self._hand_out(buffers, (size, pinned)))
        with suppress(IndexError):  # another thread uses the pool: take fresh memory rather than wait
            return buffers.pop()
        if not pinned:
            return Buffer(np.empty(size, np.uint8), None)
        torch = sys.modules["torch"]
        owner = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        return Buffer(owner.numpy(), owner)

    def _hand_out(self, buffers: list[Buffer], kind: tuple[int, bool]) -> None:
        free = self._free[kind]
        if free:
            self._kept -= kind[0]
            buffers.append(free.pop())


def _first_stream() -> dict[Any, Any]:
    """The current CUDA device -> a stream of ours; empty if the process uses none yet.

    The first stream of a process waits until its device has done all work that was given to it. When a collector is made that
    is little; in the first `log` it would be a step.
    """
    torch: Any = sys.modules.get("torch")
    with suppress(Exception):
        if torch is not None and torch.cuda.is_initialized():
            device = torch.device("cuda", torch.cuda.current_device())
            return {device: torch.cuda.Stream(device)}
    return {}


def is_tensor(value: Any) -> bool:
    """True for a torch tensor; imports nothing."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _widened(tensor: Tensor) -> Tensor:
    """The tensor; one of float8, which numpy lacks, as float32, which holds each of its values."""
    is_float8 = tensor.is_floating_point() and tensor.element_size() == 1
    return tensor.float() if is_float8 else tensor


def _raw_bits(tensor: Tensor) -> Tensor:
    torch = sys.modules["torch"]
    return tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
