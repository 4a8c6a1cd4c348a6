"""On a CUDA device: nothing waits for it, what is recorded is what the trainer held, and the numbers are the CPU's."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from ratioscope import Collector
from ratioscope.metrics import torch_engine
from ratioscope.metrics.registry import statistics_of

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_log_waits_for_nothing_and_keeps_the_moment_of_the_call(dtype: torch.dtype, tmp_path: Path) -> None:
    rollout, old, mask = batch(32, 256)
    rollout, old = rollout.to(dtype), old.to(dtype).requires_grad_()
    held = old.detach().float().cpu().numpy(), mask.cpu().numpy()
    with Collector(tmp_path / "run") as collector:
        collector.log(step=0, rollout_logprobs=rollout, old_logprobs=old, mask=mask)
        collector.flush(60)
        with no_host_sync():
            collector.log(step=1, rollout_logprobs=rollout, old_logprobs=old, mask=mask)
            with torch.no_grad():
                old.zero_()  # the trainer reuses its memory at once
        collector.flush(60)
    (file,) = (tmp_path / "run").glob("tokens/step=000000001/*.parquet")
    table = pq.read_table(file)
    for row, (values, kept) in enumerate(zip(*held, strict=True)):
        length = int(np.flatnonzero(kept)[-1]) + 1
        assert table["old_logprobs"][row].as_py() == values[:length].tolist()


def test_training_on_the_device_is_bit_identical_with_the_collector_on(tmp_path: Path) -> None:
    assert torch.equal(trained(None), trained(tmp_path / "run"))


def trained(folder: Path | None) -> torch.Tensor:
    """The weights after some steps of a small model whose log-probs are logged each step."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Dropout(0.1), torch.nn.Linear(128, 64)).cuda()
    optimiser = torch.optim.AdamW(model.parameters())
    collector = Collector(folder) if folder else None
    for step in range(20):
        logprobs = torch.log_softmax(model(torch.randn(32, 64, device="cuda")), -1)
        if collector:
            collector.log(step=step, rollout_logprobs=logprobs.bfloat16(), current_logprobs=logprobs)
        (-logprobs.mean() + logprobs.square().mean()).backward()
        optimiser.step()
        optimiser.zero_grad()
    if collector:
        collector.close()
    return torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()
