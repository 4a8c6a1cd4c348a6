"""The torch engine equals the numpy engine; ranks equal one process, whichever holds how much, or nothing."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.paths import TESTS
from support.sizes import examples
from torch.multiprocessing.spawn import start_processes

from ratioscope.metrics.definitions.registry import METRICS, statistics_of
from ratioscope.metrics.engines import numpy_engine, torch_engine
from ratioscope.metrics.frame import metric_frame
from ratioscope.record import GAPS, arrow_schema

logprob = st.floats(-30, 0, width=32) | st.sampled_from([-np.inf, np.nan, np.inf, 0.5])
shapes = st.tuples(st.integers(1, 5), st.integers(1, 7))


@st.composite
def batches(draw: Any) -> dict[str, Any]:
    shape = draw(shapes)
    columns = {name: draw(arrays(np.float32, shape, elements=logprob)) for name in ("rollout", "old", "current")}
    entropy = draw(arrays(np.float32, shape, elements=st.floats(0, 10, width=32)))
    advantages = draw(arrays(np.float32, shape, elements=st.floats(-8, 8, width=32) | st.just(np.nan)))
    return columns | {"entropy": entropy, "advantages": advantages, "mask": draw(arrays(np.bool_, shape))}


def table(batch: dict[str, Any]) -> pa.Table:
    rows = len(batch["mask"])
    columns = {
        "attempt": [0] * rows, "step": [0] * rows, "minibatch": [0] * rows, "sequence_id": [str(i) for i in range(rows)],
        "mask": batch["mask"].tolist(), "entropy": batch["entropy"].tolist(),
        "advantages": batch["advantages"].tolist(),
        **{f"{policy}_logprobs": batch[policy].tolist() for policy in ("rollout", "old", "current")},
    }  # fmt: skip
    schema = arrow_schema()
    return pa.table([pa.array(columns.get(f.name, [None] * rows), f.type) for f in schema], schema=schema)


def by_numpy(batch: dict[str, Any], gap: str) -> np.ndarray[Any, Any]:
    frame = pl.DataFrame(numpy_engine.statistics(table(batch)))
    row = frame.filter((pl.col("slice") == "all") & (pl.col("gap") == gap))
    return np.array([row[s.name][0] for s in statistics_of(gap)], np.float64)


def by_torch(batch: dict[str, Any], gap: str) -> torch.Tensor:
    earlier, later = (torch.tensor(batch[policy]) for policy in GAPS[gap])
    entropy = torch.tensor(batch["entropy"]) if GAPS[gap][1] == "current" else None
    mask, advantages = (torch.tensor(batch[name]) for name in ("mask", "advantages"))
    return torch_engine.statistics(earlier, later, mask, gap=gap, entropy=entropy, advantages=advantages)


@given(batches(), st.sampled_from(list(GAPS)))
@examples(60)
def test_torch_equals_numpy_on_any_batch(batch: dict[str, Any], gap: str) -> None:
    found = by_torch(batch, gap).numpy()[: len(statistics_of(gap))]
    np.testing.assert_allclose(found, by_numpy(batch, gap), rtol=1e-10, atol=1e-12)


@given(batches(), st.sampled_from(list(GAPS)), st.integers(1, 20))
@examples(30)
def test_pieces_of_a_batch_equal_the_batch(batch: dict[str, Any], gap: str, tokens: int) -> None:
    wanted = by_torch(batch, gap)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_engine, "PIECE", tokens)
        found = by_torch(batch, gap)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12, atol=1e-12)


def test_the_tail_gives_the_same_k_hat_as_a_file_does() -> None:
    generator = torch.Generator().manual_seed(3)
    shape = (200, 12)
    rollout = -torch.rand(shape, generator=generator)
    old = rollout + 0.3 * torch.randn(shape, generator=generator)
    batch = {"rollout": rollout, "old": old, "current": old, "entropy": rollout.abs(), "advantages": rollout}
    frame = pl.DataFrame(
        numpy_engine.statistics(table({**{k: v.numpy() for k, v in batch.items()}, "mask": np.ones(shape, bool)}))
    )
    found, wanted = torch_engine.values(torch_engine.statistics(rollout, old)), metric_frame(frame).row(0, named=True)
    shared = {name: value for name, value in found.items() if np.isfinite(value)}
    assert {"pareto_k_token", "pareto_k_sequence"} <= set(shared)
    for name, value in shared.items():
        assert value == pytest.approx(wanted[f"mismatch/{name}"], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_any_float_dtype_is_rounded_to_what_a_file_would_hold(dtype: torch.dtype) -> None:
    earlier = -torch.rand(3, 4, dtype=torch.float64).to(dtype) - 0.1
    later = earlier - 0.125
    as_stored = torch_engine.statistics(earlier.float(), later.float())
    assert torch.equal(torch_engine.statistics(earlier, later), as_stored)


def test_float64_sums_keep_what_float32_would_lose() -> None:
    """Log-ratios of 1e-4: K3 is 5e-9, which exp(x) - 1 - x in float32 cannot see."""
    earlier = torch.full((64, 512), -1.0)
    later = earlier + 1e-4
    x = later.double() - earlier.double()
    found = torch_engine.values(torch_engine.statistics(earlier, later))["kl_k3"]
    truth = float((x**2 / 2 + x**3 / 6).mean())
    single = (later - earlier).exp() - 1 - (later - earlier)
    assert found == pytest.approx(truth, rel=1e-8)
    assert abs(float(single.mean()) / truth - 1) > 0.5


def test_gradients_are_left_alone() -> None:
    later = (-torch.rand(2, 3)).requires_grad_()
    torch_engine.scalars(rollout=-torch.rand(2, 3), current=later)
    assert later.grad is None and later.requires_grad


def test_scalars_carry_the_canonical_names_of_the_gaps_on_record() -> None:
    rollout, old = -torch.rand(4, 5), -torch.rand(4, 5)
    read = torch_engine.scalars(rollout=rollout, old=old)
    assert read["ratioscope/mismatch/tokens"] == 20
    assert {name.split("/")[1] for name in read} == {"mismatch"}
    listed = {f"ratioscope/mismatch/{metric.name}" for metric in METRICS if "mismatch" in metric.gaps}
    assert {name.removesuffix("_se") for name in read} <= listed


def batch_of_ranks(ranks: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(7)
    rollout = -torch.rand(4 * ranks, 16, generator=generator) * 3
    old = rollout + 0.2 * torch.randn(4 * ranks, 16, generator=generator)
    mask = torch.rand(4 * ranks, 16, generator=generator) > 0.2
    mask[:4] = False  # rank 0 has no tokens
    return rollout, old, mask


def one_rank(rank: int, ranks: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    local = torch_engine.statistics(*(part[4 * rank : 4 * rank + 4] for part in batch_of_ranks(ranks)))
    merged = torch_engine.all_reduce(local)
    np.save(f"{folder}/{rank}.npy", merged.numpy())
    dist.destroy_process_group()


def every_rank(ranks: int, folder: str) -> None:
    """Forks the ranks from a process that only imported, because each import of torch takes two seconds; raises if one fails."""
    start_processes(one_rank, (ranks, folder), nprocs=ranks, start_method="fork")  # type: ignore[no-untyped-call]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_equal_one_process_though_one_has_no_tokens(ranks: int, tmp_path: Path) -> None:
    code = "import sys, test_torch_engine as t; t.every_rank(int(sys.argv[1]), sys.argv[2])"
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (TESTS, Path(__file__).parent)))}
    done = subprocess.run(
        [sys.executable, "-c", code, str(ranks), str(tmp_path)], env=here, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    whole = torch_engine.statistics(*batch_of_ranks(ranks)).numpy()
    for rank in range(ranks):
        np.testing.assert_allclose(np.load(tmp_path / f"{rank}.npy"), whole, rtol=1e-13)
