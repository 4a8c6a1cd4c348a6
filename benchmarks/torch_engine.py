"""The cost of a step's statistics on the trainer's device: time beside the time its bytes need, and memory.

Every size stands beside one pass of the K1, K3 and ESS that trainers log over the same tokens, and beside a copy of the tensors
that the statistics read. On CUDA where there is one, else on the CPU, which has no figure for memory.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from ratioscope.metrics.engines import torch_engine

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
COLUMNS = 4096
SIZES = (16, 256, 2048, 16384) if DEVICE == "cuda" else (16, 256)
"""Rows of a batch."""
REPEATS = 20 if DEVICE == "cuda" else 3
GAPS = ("mismatch", "drift")


def naive(rollout: torch.Tensor, old: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The three numbers that trainers log, in float32."""
    x = torch.where(mask, old - rollout, 0.0)
    w = x.exp() * mask
    n = mask.sum()
    return torch.stack((-x.sum() / n, (w - 1 * mask - x).sum() / n, w.sum() ** 2 / (n * (w * w).sum())))


def seconds(call: Callable[[], Any]) -> tuple[float, float]:
    """Median time of a call: until it returns, and until the device is done."""
    call()
    returned, done = [], []
    for _ in range(REPEATS):
        _wait()
        start = time.perf_counter()
        call()
        returned.append(time.perf_counter() - start)
        _wait()
        done.append(time.perf_counter() - start)
    return sorted(returned)[REPEATS // 2], sorted(done)[REPEATS // 2]


def extra_bytes(call: Callable[[], Any]) -> int:
    """Memory of the device that a call needs beside its arguments."""
    if DEVICE == "cpu":
        return 0
    _wait()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    _wait()
    return torch.cuda.max_memory_allocated() - before


def _wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def row(name: str, call: Callable[[], Any], floor: float) -> None:
    """Prints the times of a call, the second against `floor` seconds, and its memory."""
    returned, done = seconds(call)
    print(
        f"{name:28}{returned * 1e3:10.2f} ms{done * 1e3:10.2f} ms{done / floor:10.1f}x{extra_bytes(call) / 2**20:10.0f} MiB"
    )


def main() -> None:
    print(
        torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU", f"torch {torch.__version__}, median of {REPEATS}"
    )
    generator = torch.Generator(DEVICE).manual_seed(0)
    for rows in SIZES:
        rollout = -torch.rand(rows, COLUMNS, generator=generator, device=DEVICE)
        old = rollout + 0.05 * torch.randn(rows, COLUMNS, generator=generator, device=DEVICE)
        mask = torch.rand(rows, COLUMNS, generator=generator, device=DEVICE) > 0.1
        given = (rollout, old, mask)
        floor = seconds(lambda given=given: [tensor.clone() for tensor in given])[1]
        size = sum(tensor.nbytes for tensor in given)
        print(f"\n{rows * COLUMNS:,} tokens, {size / 2**20:.0f} MiB; a copy moves {2 * size / floor / 1e9:,.0f} GB/s")
        print(f"{'':28}{'returns':>13}{'done':>13}{'copies':>11}{'memory':>14}")
        row("a copy of the same bytes", lambda given=given: [tensor.clone() for tensor in given], floor)
        row("naive K1, K3, ESS", lambda given=given: naive(*given), floor)
        for gap in GAPS:
            row(f"all statistics, {gap}", lambda gap=gap, given=given: torch_engine.statistics(*given, gap=gap), floor)


if __name__ == "__main__":
    main()
