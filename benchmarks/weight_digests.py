"""The time of digests of weights against one read of the same weights, and the bytes that a sync adds to the commit log.

Prints GB/s and the ratio for a model of 311 tensors. On CUDA where there is one, else on the CPU. A read sums the bits.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from ratioscope.collectors.writing.writer_thread import WeightLines
from ratioscope.layout import encode_line
from ratioscope.weights import digests

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LAYERS, HIDDEN = 28, 2048 if DEVICE == "cuda" else 512
REPEATS = 7


def model() -> dict[str, torch.Tensor]:
    """311 tensors with the shapes of a small dense model, in bfloat16."""
    shapes = {"q": (HIDDEN, HIDDEN), "k": (HIDDEN // 2, HIDDEN), "v": (HIDDEN // 2, HIDDEN), "o": (HIDDEN, HIDDEN)}
    shapes |= {"gate": (3 * HIDDEN, HIDDEN), "up": (3 * HIDDEN, HIDDEN), "down": (HIDDEN, 3 * HIDDEN)}
    shapes |= {name: (HIDDEN,) for name in ("norm_1", "norm_2", "q_norm", "k_norm")}
    named = {f"layers.{i}.{name}": shape for i in range(LAYERS) for name, shape in shapes.items()}
    named |= {"embed": (32000, HIDDEN), "norm": (HIDDEN,), "lm_head": (32000, HIDDEN)}
    return {name: torch.randn(shape, device=DEVICE).to(torch.bfloat16) for name, shape in named.items()}


def seconds(call: Callable[[], Any]) -> float:
    """The least time of a call, the device's work included."""
    call()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    weights = model()
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    read = seconds(lambda: [tensor.view(torch.int32).sum() for tensor in weights.values()])
    made = seconds(lambda: digests(weights))
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{len(weights)} tensors, {nbytes / 1e9:.2f} GB in bfloat16, on {name}; best of {REPEATS}")
    print(f"{'one read':12}{read * 1e3:10.1f} ms{nbytes / read / 1e9:10.1f} GB/s{1:8.1f}x")
    print(f"{'digests':12}{made * 1e3:10.1f} ms{nbytes / made / 1e9:10.1f} GB/s{made / read:8.1f}x")
    large = {f"layers.{i // 1000}.experts.{i % 1000}.w": f"bfloat16[2,2] {i:016x}" for i in range(100_000)}
    for title, own in (("this model", digests(weights)), ("100,000 tensors", large)):
        lines, changed = WeightLines(), next(iter(own))
        start = time.perf_counter()
        first = sum(len(encode_line(line)) for line in lines.of(0, 0, None, own))
        took = time.perf_counter() - start
        again = sum(
            len(encode_line(line))
            for line in lines.of(1, 1, None, own | {changed: f"{own[changed].split()[0]} {0:016x}"})
        )
        equal = sum(len(encode_line(line)) for line in lines.of(0, 0, "engine", own))
        print(
            f"{title}: first line {first / 1e3:.1f} kB ({took * 1e3:.0f} ms), each further version {again / 1e3:.1f} kB,",
            end=" ",
        )
        print(f"an engine with equal weights {equal / 1e3:.2f} kB")


if __name__ == "__main__":
    main()
