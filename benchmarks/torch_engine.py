"""The cost of a step's statistics on the trainer's device, against one pass of the naive K1, K3 and ESS over the same tokens.

Prints times and their ratio for a step of a million tokens. On CUDA where there is one, else on the CPU.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from ratioscope.metrics.engines import torch_engine

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, COLUMNS = 256, 4096
REPEATS = 20 if DEVICE == "cuda" else 3


def naive(rollout: torch.Tensor, old: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The three numbers that trainers log, in float32."""
    x = torch.where(mask, old - rollout, 0.0)
    w = x.exp() * mask
    n = mask.sum()
    return torch.stack((-x.sum() / n, (w - 1 * mask - x).sum() / n, w.sum() ** 2 / (n * (w * w).sum())))


def seconds(call: Callable[[], Any]) -> float:
    """Median time of a call, the device's work included."""
    call()
    times = []
    for _ in range(REPEATS):
        _wait()
        start = time.perf_counter()
        call()
        _wait()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def _wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    generator = torch.Generator(DEVICE).manual_seed(0)
    rollout = -torch.rand(ROWS, COLUMNS, generator=generator, device=DEVICE)
    old = rollout + 0.05 * torch.randn(ROWS, COLUMNS, generator=generator, device=DEVICE)
    mask = torch.rand(ROWS, COLUMNS, generator=generator, device=DEVICE) > 0.1
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
    base = seconds(lambda: naive(rollout, old, mask))
    print(f"{ROWS * COLUMNS:,} tokens on {name}; median of {REPEATS}")
    print(f"{'naive K1, K3, ESS':28}{base * 1e3:10.2f} ms{1:10.1f}x")
    for gap in ("mismatch", "drift"):
        took = seconds(lambda gap=gap: torch_engine.statistics(rollout, old, mask, gap=gap))
        print(f"{'all statistics, ' + gap:28}{took * 1e3:10.2f} ms{took / base:10.1f}x")


if __name__ == "__main__":
    main()
