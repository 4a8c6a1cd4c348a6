"""Logging tensors on a CUDA device: nothing waits for the device, and what the trainer does next changes nothing."""

import os
import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
from support.paths import TESTS
from support.written_run import CollectingSink

from ratioscope import Collector
from ratioscope.collectors.batch.host_copy import HostCopies

pytestmark = [pytest.mark.device, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_log_waits_for_nothing_and_takes_the_values_of_the_moment(dtype: torch.dtype) -> None:
    sink = CollectingSink()
    values = (-torch.rand(64, 1000, device="cuda") * 20).to(dtype).requires_grad_() * 1
    wanted = values.detach().float().cpu().tolist()
    work = torch.rand(4000, 4000, device="cuda")
    with Collector("unused", sink=lambda: sink) as collector:
        collector.log(step=0, rollout_logprobs=values, old_logprobs=values.t().contiguous().t())  # buffers are made
        assert collector.flush()
        for step in range(1, 6):
            fresh = values.detach().clone()
            for _ in range(20):  # keeps the device busy, so that a copy could not be done already
                work = work @ work / 4000
            torch.cuda.set_sync_debug_mode("error")
            try:
                collector.log(step=step, rollout_logprobs=fresh, old_logprobs=fresh.t().contiguous().t())
            finally:
                torch.cuda.set_sync_debug_mode("default")
            fresh += 100
            del fresh  # its memory is free to be used again
            torch.full((64, 1000), 7.0, device="cuda", dtype=dtype)
    assert (len(sink.written), collector.counts.sequences.dropped) == (6 * 64, 0)
    for row in sink.written:
        index = int(row["sequence_id"].split("-")[2])
        assert row["rollout_logprobs"] == row["old_logprobs"] == wanted[index]


def test_every_shape_and_kind_comes_over() -> None:
    copies = HostCopies(1 << 20)
    for tensor in (
        torch.arange(6, device="cuda").reshape(2, 3),
        torch.tensor([[True, False]], device="cuda"),
        torch.zeros(0, 4, device="cuda"),
        torch.tensor(3.5, device="cuda"),
        torch.rand(3, 4, 5, device="cuda")[:, 1],
    ):
        copy = copies.of(tensor)
        assert copy.wait().tolist() == tensor.tolist()
        assert copy.wait().shape == tuple(tensor.shape)
        copies.release(copy)


def test_ragged_tensors_are_copied_as_one() -> None:
    sink = CollectingSink()
    rows = [torch.rand(length, device="cuda") for length in (3, 0, 5)]
    with Collector("unused", sink=lambda: sink, strict=True) as collector:
        collector.log(step=1, rollout_logprobs=rows, rewards=[row.sum() for row in rows])
    assert [row["rollout_logprobs"] for row in sink.written] == [row.tolist() for row in rows]


def test_logging_while_a_graph_is_captured_is_refused_and_leaves_the_graph_alone() -> None:
    sink = CollectingSink()
    values, out = torch.rand(2, 3, device="cuda"), torch.zeros(2, 3, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with Collector("unused", sink=lambda: sink) as collector:
        with torch.cuda.graph(graph):
            out.copy_(values * 2)
            collector.log(step=1, rollout_logprobs=values)
        graph.replay()
    assert out.tolist() == (values * 2).tolist()
    assert collector.counts.reasons == {"malformed": 2}


FIRST_LOG = """
import torch
from support.written_run import CollectingSink
from ratioscope import Collector

values = -torch.rand(64, 1000, device="cuda")
with Collector("unused", sink=CollectingSink) as collector:
    torch.cuda._sleep(2_000_000_000)
    collector.log(step=1, rollout_logprobs=values)
    print(torch.cuda.current_stream().query())
"""


def test_the_first_log_of_a_process_waits_for_nothing() -> None:
    paths = os.pathsep.join((str(TESTS), *sys.path))
    code = [sys.executable, "-c", FIRST_LOG]
    done = subprocess.run(code, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n", "the device has done all its work: the thread waited for it"


def test_training_is_the_same_to_the_bit_with_and_without() -> None:
    plain, watched = trained(None), trained(sink := CollectingSink())
    assert len(sink.written) == 10 * 32
    assert all(torch.equal(one, other) for one, other in zip(plain, watched, strict=True))


def trained(sink: CollectingSink | None) -> list[torch.Tensor]:
    """Weights and the random generator's state after ten steps of a small policy, recorded into the sink if there is one."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with Collector("unused", sink=lambda: sink) if sink else nullcontext() as collector:
        for step in range(10):
            logprobs = torch.log_softmax(model(torch.randn(32, 100, 64, device="cuda")), -1)
            sampled = torch.multinomial(logprobs.detach().exp().flatten(0, 1), 1).view(32, 100)
            current = logprobs.gather(2, sampled[:, :, None])[:, :, 0]
            if collector is not None:
                collector.log(step=step, rollout_logprobs=current.detach().bfloat16(), current_logprobs=current)
            torch.autograd.backward((-current * torch.randn(32, 1, device="cuda")).mean())
            optimizer.step()
            optimizer.zero_grad()
    return [*(parameter.detach() for parameter in model.parameters()), torch.cuda.get_rng_state()]
