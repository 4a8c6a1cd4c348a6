"""Digests of weights: one text per tensor, made where the tensor is, to tell whether an engine holds the trainer's weights.

    collector.sync(version, digests=ratioscope.weights.digests(model))                  # in the trainer, after an update
    collector.sync(version, replica="3", digests=ratioscope.weights.digests(engine))    # of an engine, after a load

A digest is of the bits: every NaN, -0.0 and subnormal counts. It depends on dtype, shape and the order of elements, and not on
device, memory layout or the number of elements worked on at once. The bits are read as 32-bit words x. A block of 2**16 words
gives the sum of x[i] * key[i] modulo 2**64, with fixed random 64-bit keys; the digest hashes dtype, shape and these sums. Two
tensors that differ have equal sums with a chance of about 2**-33 at most. It is no defence against somebody who constructs
equal sums.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ratioscope.arrays import Integers

from .errors import ConfigError

Tensor = Any
"""A torch tensor on any device, or a numpy array. `Any`, because torch is no dependency."""
Named = Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]

BLOCK = 1 << 16
"""32-bit words that share a sum. A part of the definition: another number gives other digests."""
AT_ONCE = 64
"""Blocks worked on at once. It bounds the memory, 32 MB of products, and changes no digest."""
FUSED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "vllm": {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")},
    "sglang": {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")},
}
"""Engine -> name of a fused module -> modules of the trainer whose tensors it holds, one behind the other in dimension 0.
This is exact on one device: with tensor parallelism each rank holds a slice, and shards cannot be compared with whole tensors."""


def digests(weights: Any, *, fused: str | None = None) -> dict[str, str]:
    """name -> digest, such as "bfloat16[1024,576] 0f1e2d3c4b5a6978", of every parameter of a module, or of named tensors.

    weights: an object with `named_parameters` (tied ones count under each name), a mapping, or pairs of name and tensor.
    fused: an engine, "vllm" or "sglang": tensors that it fuses are digested as it holds them, under its names.
    For a sharded tensor the local shard is digested, without communication. ConfigError for a tensor without bits, as on meta.
    """
    named = dict(_pairs(weights))
    if fused is not None:
        named = _fused(named, fused)
    sums = {name: _sums(name, tensor) for name, tensor in named.items()}
    texts = _fetched(sums)
    return {name: _text(named[name], texts[name]) for name in named}


def _pairs(weights: Any) -> Iterable[tuple[str, Tensor]]:
    parameters: Any = getattr(weights, "named_parameters", None)
    if parameters is not None:
        try:
            return list(parameters(remove_duplicate=False))
        except TypeError:  # a wrapper of a module with a signature of its own
            return list(parameters())
    if isinstance(weights, Mapping):
        return list(weights.items())
    if isinstance(weights, Iterable) and not isinstance(weights, (str, bytes)):
        pairs = list(weights)
        if all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
            return pairs
    raise ConfigError(
        f"digests got {type(weights).__name__}; wanted a module, a mapping of names to tensors, or pairs of name and tensor"
    )


def _fused(named: Mapping[str, Tensor], engine: str) -> dict[str, Tensor]:
    """The tensors as the engine holds them, in the order of the first part of each."""
    if engine not in FUSED:
        raise ConfigError(f"fused is {engine!r}; wanted one of {', '.join(FUSED)}")
    whole: dict[str, str] = {}
    parts: dict[str, list[str]] = {}
    for module, own in FUSED[engine].items():
        for name in named:
            before, found, after = name.partition(f".{own[0]}.")
            every = [f"{before}.{part}.{after}" for part in own]
            if found and all(part in named for part in every):
                parts[f"{before}.{module}.{after}"] = every
                whole |= dict.fromkeys(every, f"{before}.{module}.{after}")
    names = dict.fromkeys(whole.get(name, name) for name in named)
    return {name: _joined([named[part] for part in parts[name]]) if name in parts else named[name] for name in names}


def _joined(parts: list[Tensor]) -> Tensor:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat([_local(part) for part in parts])


def _local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds."""
    return tensor.to_local() if callable(getattr(tensor, "to_local", None)) else tensor


def _sums(name: str, tensor: Tensor) -> Any:
    """The sum of each block, on the device of the tensor; shape (blocks,), int64."""
    if isinstance(tensor, np.ndarray):
        if tensor.dtype.hasobject:
            raise ConfigError(f"{name} holds Python objects; wanted numbers")
        little = tensor.astype(tensor.dtype.newbyteorder("<"), copy=False)
        octets = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
        sums = []
        for start in range(0, len(octets), 4 * BLOCK * AT_ONCE):
            part = octets[start : start + 4 * BLOCK * AT_ONCE]
            short = -len(part) % (4 * BLOCK)
            words = (np.pad(part, (0, short)) if short else part).view("<i4").reshape(-1, BLOCK)
            sums.append((words * keys()).sum(axis=1, dtype=np.int64))
        return np.concatenate(sums) if sums else np.zeros(0, np.int64)
    if not hasattr(tensor, "data_ptr"):
        raise ConfigError(f"{name} is {type(tensor).__name__}; wanted a torch tensor or numpy array")
    return _sums_of_tensor(name, _local(tensor))


def _sums_of_tensor(name: str, tensor: Tensor) -> Tensor:
    import torch

    if tensor.device.type == "meta" or tensor.layout is not torch.strided:
        raise ConfigError(
            f"{name} is on {tensor.device} with layout {tensor.layout}; wanted a dense tensor with values"
        )
    with torch.no_grad():
        flat = tensor.detach().contiguous().reshape(-1)
        octets = flat.view(torch.uint8)
        key = _keys_on(tensor.device)
        sums = []
        for start in range(0, octets.numel(), 4 * BLOCK * AT_ONCE):
            part = octets[start : start + 4 * BLOCK * AT_ONCE]
            if short := -part.numel() % (4 * BLOCK):
                part = torch.nn.functional.pad(part, (0, short))
            elif part.storage_offset() % 4:
                part = part.clone()
            sums.append((part.view(torch.int32).view(-1, BLOCK) * key).sum(dim=1))
        return torch.cat(sums) if sums else torch.zeros(0, dtype=torch.int64)


@cache
def keys() -> Integers:
    """A random 64-bit number for each word of a block: splitmix64 of its place (Steele 2014)."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, BLOCK + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).view(np.int64)


@lru_cache(8)
def _keys_on(device: Any) -> Tensor:
    """The keys on a device: half a megabyte, kept for the next call."""
    import torch

    return torch.from_numpy(keys()).to(device)


def _fetched(sums: Mapping[str, Any]) -> dict[str, bytes]:
    """name -> its sums as bytes. Each device is waited for once, and its sums are copied at once."""
    digests = {name: part.astype("<i8").tobytes() for name, part in sums.items() if isinstance(part, np.ndarray)}
    by_device: dict[Any, list[str]] = {}
    for name, part in sums.items():
        if name not in digests:
            by_device.setdefault(part.device, []).append(name)
    for names in by_device.values():
        digests |= dict(_split(names, [sums[name] for name in names]))
    return digests


def _split(names: list[str], parts: list[Tensor]) -> Iterator[tuple[str, bytes]]:
    import torch

    every = torch.cat(parts).cpu().numpy().astype("<i8")
    ends = np.cumsum([part.numel() for part in parts])
    for name, start, end in zip(names, [0, *ends[:-1]], ends, strict=True):
        yield name, every[start:end].tobytes()


def _text(tensor: Tensor, sums: bytes) -> str:
    local = _local(tensor)
    dtype = getattr(local.dtype, "name", None) or str(local.dtype).removeprefix("torch.")
    form = f"{dtype}[{','.join(map(str, local.shape))}]"
    return f"{form} {hashlib.blake2b(form.encode() + b' ' + sums, digest_size=8).hexdigest()}"
