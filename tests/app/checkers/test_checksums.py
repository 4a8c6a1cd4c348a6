"""The checksums of vLLM and SGLang, against values of SGLang's own kernel and a second reading of its source."""

import hashlib

import numpy as np
import pytest
import torch

from ratioscope.app.checkers.checkpoint import TILE, _cast, sha256, sha256_short, tile_hash

KERNEL = {1: "3d93a6540b54ef2a", 7: "67944e7d1879c96e", 40_000: "7b6a6202366b28ab", 98_310: "da04ec5f1c619791"}
"""Bytes i * 2654435761 % 251 for i below this -> the hash of SGLang 0.5.23's kernel, run by Triton 3.9's interpreter."""
MASK = 0xFFFFFFFF


def octets(number: int) -> np.ndarray:
    return (np.arange(number, dtype=np.int64) * 2654435761 % 251).astype(np.uint8)


@pytest.mark.parametrize("number", KERNEL)
def test_the_hash_on_a_gpu_is_that_of_the_kernel(number: int) -> None:
    assert tile_hash(octets(number)) == KERNEL[number]


def by_loops(data: bytes) -> str:
    """The kernel in plain loops over words."""

    def mix(x: int) -> int:
        x = ((x ^ x >> 16) * 0x85EBCA6B) & MASK
        x = ((x ^ x >> 13) * 0xC2B2AE35) & MASK
        return x ^ x >> 16

    data += bytes(-len(data) % 4)
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]
    first, total = 0x243F6A88, 0
    for start in range(0, len(words), 8192):
        one = two = 0
        for at in range(start, min(start + 8192, len(words))):
            turned = [(at << turn | at >> 32 - turn) & MASK for turn in (15, 13)]
            one += mix(words[at] ^ ((at * 0x27D4EB2D + first) & MASK) ^ turned[0])
            second = (first * 0x9E3779B1 ^ 0xDEADBEEF) & MASK
            two += mix(words[at] ^ ((at * 0x165667B1 + second) & MASK) ^ turned[1])
        total += mix(one & MASK ^ len(data)) << 32 | mix(two & MASK ^ len(data))
    x = total & (1 << 64) - 1
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & (1 << 64) - 1
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & (1 << 64) - 1
    return f"{x ^ x >> 31:016x}"


@pytest.mark.parametrize("number", [0, 3, 4 * TILE, 4 * TILE + 1, 12 * TILE])
def test_the_hash_on_a_gpu_is_that_of_plain_loops(number: int) -> None:
    data = np.random.default_rng(number).integers(0, 256, number, np.uint8)
    assert tile_hash(data) == by_loops(data.tobytes())


def test_it_does_not_depend_on_how_many_tiles_are_hashed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tile_hash(octets(98_310))
    monkeypatch.setattr("ratioscope.app.checkers.checkpoint._AT_ONCE", 1)
    assert tile_hash(octets(98_310)) == whole


def test_the_others_are_sha_256() -> None:
    assert sha256(octets(100)) == hashlib.sha256(octets(100).tobytes()).hexdigest()
    assert sha256_short(octets(100)) == sha256(octets(100))[:16]


@pytest.mark.parametrize("wanted", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("kind", ["BF16", "F16", "F32"])
def test_numbers_are_rounded_as_torch_rounds(kind: str, wanted: str) -> None:
    dtypes = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
    odd = torch.tensor([0.0, -0.0, 1e30, -1e-30, 65519.0, 65520.0, 1 + 2**-8, 1 + 3 * 2**-9, torch.inf, -torch.inf])
    numbers = torch.cat([odd, torch.randn(5000) * 10.0 ** torch.randint(-8, 8, (5000,))]).to(dtypes[kind])
    bits = numbers.view(torch.int16).numpy().view(np.uint16) if kind == "BF16" else numbers.numpy()
    found = _cast(bits, kind, wanted)
    expected = numbers.float().to(dtypes[wanted]).view(torch.uint8).numpy()
    assert found is not None and found.tobytes() == expected.tobytes()
