"""The checksums that vLLM and SGLang make of a tensor's bytes, of arrays in memory.

vLLM 0.32.0: SHA-256 (model_executor/model_loader/weight_checksum.py). SGLang 0.5.23: the first 64 bits of SHA-256 on the CPU
(managers/mm_utils.py), and a hash of its own on a GPU (kernels/ops/memory/gpu_tensor_hash.py): each 32-bit word is mixed with its
place by MurmurHash3's finaliser under two seeds, the sums of 8192 words are mixed again, and so is the sum of these.
"""

import hashlib
from collections.abc import Callable, Mapping

import numpy as np

from ratioscope.arrays import Array

TILE = 8192
"""32-bit words that share a sum."""
_AT_ONCE = 128
"""Tiles that are hashed together: 4 MB of words. It changes no checksum."""
_SEED = 0x243F6A88
_SEEDS = (_SEED, ((_SEED * 0x9E3779B1) ^ 0xDEADBEEF) & 0xFFFFFFFF)
_PLACES = ((0x27D4EB2D, 15), (0x165667B1, 13))
"""(factor, rotation) of the place of a word under each seed."""


def sha256(octets: Array) -> str:
    """vLLM's checksum of these bytes. octets: uint8, one dimension, contiguous."""
    return hashlib.sha256(octets.data).hexdigest()


def sha256_short(octets: Array) -> str:
    """SGLang's checksum on the CPU."""
    return sha256(octets)[:16]


def tile_hash(octets: Array) -> str:
    """SGLang's checksum on a GPU."""
    words = np.concatenate([octets, np.zeros(-len(octets) % 4, np.uint8)]).view("<u4")
    total = 0
    for start in range(0, len(words), TILE * _AT_ONCE):
        total += sum(map(int, _tiles(words, start, min(start + TILE * _AT_ONCE, len(words)))))
    return f"{_splitmix64(total & 0xFFFFFFFFFFFFFFFF):016x}"


def _tiles(words: Array, start: int, stop: int) -> Array:
    """The hash of each tile between these places; uint64."""
    place = np.arange(start, stop, dtype=np.uint64).astype(np.uint32)
    length = np.uint32(len(words) * 4 & 0xFFFFFFFF)
    halves = []
    for seed, (factor, turn) in zip(_SEEDS, _PLACES, strict=True):
        rotated = (place << np.uint32(turn)) | (place >> np.uint32(32 - turn))
        mixed = _mixed(words[start:stop] ^ ((place * np.uint32(factor) + np.uint32(seed)) ^ rotated))
        sums = np.add.reduceat(mixed, np.arange(0, stop - start, TILE), dtype=np.uint32)
        halves.append(_mixed(sums ^ length).astype(np.uint64))
    return (halves[0] << np.uint64(32)) | halves[1]


def _mixed(x: Array) -> Array:
    """MurmurHash3's finaliser of 32 bits (Appleby 2011)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    mixed: Array = x ^ (x >> np.uint32(16))
    return mixed


def _splitmix64(x: int) -> int:
    """The finaliser of splitmix64 (Steele 2014)."""
    mask = 0xFFFFFFFFFFFFFFFF
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


ALGORITHMS: Mapping[str, tuple[Callable[[Array], str], ...]] = {
    "vllm": (sha256,), "sglang": (tile_hash, sha256_short),
}  # fmt: skip
"""Kind of engine -> the checksums that it can make. The answer does not name the one: whichever equals is it."""
