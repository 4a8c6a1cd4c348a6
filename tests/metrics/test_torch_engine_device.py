"""The torch engine on a CUDA device: nothing waits for it, and the numbers are the CPU's."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from ratioscope.metrics.definitions.registry import statistics_of
from ratioscope.metrics.engines import torch_engine

pytestmark = [pytest.mark.device, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@contextmanager
def no_host_sync() -> Iterator[None]:
    """Any call that waits for the device raises."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def batch(rows: int, columns: int, device: str = "cuda") -> tuple[torch.Tensor, ...]:
    generator = torch.Generator(device).manual_seed(5)
    rollout = -torch.rand(rows, columns, generator=generator, device=device) * 4
    old = rollout + 0.05 * torch.randn(rows, columns, generator=generator, device=device)
    return rollout, old, torch.rand(rows, columns, generator=generator, device=device) > 0.1


def test_statistics_equal_those_of_the_cpu_and_wait_for_nothing() -> None:
    for gap in ("mismatch", "drift"):
        tensors = batch(64, 512)
        torch_engine.statistics(*tensors, gap=gap)
        with no_host_sync():
            found = torch_engine.statistics(*tensors, gap=gap)
        wanted = torch_engine.statistics(*(t.cpu() for t in tensors), gap=gap)
        scalars = len(statistics_of(gap))
        np.testing.assert_allclose(found.cpu().numpy()[:scalars], wanted.numpy()[:scalars], rtol=1e-9, atol=1e-9)
        assert torch.equal(found[scalars:].cpu(), wanted[scalars:])
