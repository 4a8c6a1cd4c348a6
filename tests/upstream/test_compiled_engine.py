"""The engine in machine code gives what numpy's loops give, bit for bit, and what the oracle gives. It needs llvmlite."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from support.programs import columns, one_by_one
from support.waiting import PATIENCE

from ratioscope import Collector, layout
from ratioscope.arrays import Integers, Matrix
from ratioscope.collectors.writing import writer_process
from ratioscope.metrics.distribution import EDGES
from ratioscope.metrics.engines import compiled_engine
from ratioscope.metrics.engines.choice_of_loops import WORTH_COMPILING, machine_loops
from ratioscope.metrics.engines.loops import NUMPY_LOOPS, LogWeights, Loops, Runs
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.engines.numpy_program import Columns, Scattered
from ratioscope.metrics.engines.program import Program, token_program
from ratioscope.metrics.merging import KEYS
from ratioscope.metrics.reduction import Cells

pytest.importorskip("llvmlite", reason="llvmlite is not installed")
pytestmark = pytest.mark.upstream

WRITERS: tuple[Literal["process", "thread"], ...] = ("process", "thread")


@pytest.fixture(scope="session")
def loops() -> Loops:
    made = machine_loops()
    assert made is not None and made.name.startswith("LLVM ")
    return made


@pytest.mark.parametrize(
    ("gap", "whole"), [("mismatch", True), ("mismatch", False), ("drift", False), ("rollout:referee", True)]
)
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("hostile", [True, False])
def test_a_program_gives_what_each_formula_gives(
    loops: Loops, gap: str, whole: bool, recorded: bool, hostile: bool
) -> None:
    given, starts = columns(hostile=hostile, recorded=recorded), np.array([0, 1, 2, 17, 300, 899])
    with np.errstate(all="ignore"):
        program = token_program(gap, whole=whole, entropy=recorded, advantage=recorded, sound=False)
        found, by_numpy = (each.sums(program, given, starts, ())[0] for each in (loops, NUMPY_LOOPS))
        wanted = one_by_one(gap, given, starts, whole=whole)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)  # exp(2x) is the square of exp(x) here
    np.testing.assert_array_equal(found, by_numpy)


@pytest.mark.parametrize("tokens", [1, 5, 7, 8, 9, 127, 130, 3000])
def test_sums_of_cells_of_any_length_and_place_have_numpys_bits(loops: Loops, tokens: int) -> None:
    random = np.random.default_rng(tokens)
    program = token_program("mismatch", whole=False, entropy=False, sound=True)
    earlier = -random.exponential(size=tokens).astype(np.float32)
    given = {"earlier": earlier, "later": earlier + random.normal(0, 0.1, tokens).astype(np.float32)}
    for starts in (np.array([0]), np.unique(np.append(0, random.integers(0, tokens, 9)))):
        codes = random.integers(-1, 5, tokens).astype(np.int8)
        by_cell = Scattered(codes, np.arange(len(starts)) * 6 + 1, len(starts) * 6)
        anywhere = Scattered(random.integers(0, 9, tokens), np.zeros_like(starts), 10)
        for others in ((), (by_cell,), (by_cell, anywhere)):
            assert_equal_sums(loops, program, given, starts, others)


def assert_equal_sums(
    loops: Loops, program: Program, given: Columns, starts: Integers, others: Sequence[Scattered]
) -> None:
    (found, found_others), (wanted, wanted_others) = (
        each.sums(program, given, starts, others) for each in (loops, NUMPY_LOOPS)
    )
    np.testing.assert_array_equal(found, wanted)
    assert len(found_others) == len(others)
    for one, other in zip(found_others, wanted_others, strict=True):
        np.testing.assert_array_equal(one.codes, other.codes)
        np.testing.assert_array_equal(one.matrix, other.matrix)


def test_cells_of_scattered_tokens_have_numpys_bits(loops: Loops) -> None:
    random, program = np.random.default_rng(7), token_program("drift", whole=False, entropy=False, sound=True)
    begins = np.unique(np.append(0, random.integers(0, 1000, 60)))
    earlier = -random.exponential(size=1000).astype(np.float32)
    given = {"earlier": earlier, "later": earlier + random.normal(0, 0.1, 1000).astype(np.float32)}
    sequence = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, 1000)))
    cells = sequence * 3 + random.integers(0, 3, 1000)
    assert_equal_sums(loops, program, given, begins, [Scattered(cells, np.zeros_like(begins), 3 * len(begins))])


@pytest.mark.parametrize("sound", [True, False])
def test_scattered_sums_that_overflow_or_vanish_have_numpys_bits(loops: Loops, sound: bool) -> None:
    random, program = np.random.default_rng(8), token_program("mismatch", whole=False, entropy=False, sound=sound)
    far = np.repeat([0.0, 299.0, -299.0], 100).astype(np.float32)
    given = {"earlier": -np.abs(far) / 2 - far / 2, "later": far - random.exponential(size=300).astype(np.float32) / 9}
    cells = np.repeat([2, 0, 3], 100)
    cells[random.random(300) < 0.1] = 3
    others = [Scattered(cells, np.zeros(2, np.int64), 5)]
    with np.errstate(all="ignore"):
        assert_equal_sums(loops, program, given, np.array([0, 150]), others)
        _, (found,) = loops.sums(program, given, np.array([0, 150]), others)
    assert found.codes.tolist() == [0, 2, 3]
    assert np.isfinite(found.matrix[:4]).all()  # log-sums and maxima


def test_exponentials_of_any_size_have_numpys_bits(loops: Loops) -> None:
    random, program = np.random.default_rng(4), token_program("mismatch", whole=False, entropy=False, sound=False)
    odd = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, -708, 709, -708.01, 709.01, 1e-300, 1e30])
    sizes = np.concatenate([size * random.normal(size=2000) for size in (1e-5, 1.0, 100.0, 1000.0)])
    given = {
        "earlier": np.append(np.append(odd, odd), sizes).astype(np.float32),
        "later": np.append(np.append(odd, odd[::-1]), sizes[::-1]).astype(np.float32),
    }
    starts = np.arange(len(given["earlier"]))
    with np.errstate(all="ignore"):
        found, wanted = (each.sums(program, given, starts, ())[0] for each in (loops, NUMPY_LOOPS))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("numbers", [0, 1, 7, 8, 9, 1000])
def test_edges_that_numbers_reach_are_counted_alike(loops: Loops, numbers: int) -> None:
    edges = np.array([-3.5, -1, 0, 2.25], np.float32)
    hostile = [np.nan, np.inf, -np.inf, *edges, *np.nextafter(edges, np.float32(-np.inf)), 1e30, -1e30]
    given = np.random.default_rng(numbers).choice(np.array(hostile, np.float32), numbers)
    wanted = [int((edges <= x).sum()) if np.isfinite(x) else -1 for x in given]
    for each in (loops, NUMPY_LOOPS):
        found = each.edge_counts(given, edges)
        assert found.dtype == np.int8
        assert found.tolist() == wanted


@pytest.mark.parametrize("groups", [1, 3])
def test_buckets_of_log_weights(loops: Loops, groups: int) -> None:
    random = np.random.default_rng(1)
    edges = np.concatenate((EDGES, np.nextafter(EDGES, np.inf), np.nextafter(EDGES, -np.inf)))
    for weights in (
        random.normal(0, 1, 5000),
        edges[np.abs(edges) < 100],
        np.append(edges, -np.inf),
        np.zeros(3),
        [-0.0],
    ):
        place, given = random.integers(0, groups, len(weights)), np.asarray(weights, np.float64)
        whole = Runs(np.array([groups - 1]), np.array([len(weights)]))
        ends = np.sort(random.integers(0, len(weights) + 1, 9))
        several = Runs(np.arange(10) % groups, np.diff(ends, prepend=0, append=len(weights)))
        for runs in (whole, several, Runs.of(place, np.ones(len(weights), np.int64))):
            found, wanted = (each.buckets(runs, LogWeights.of(given), groups) for each in (loops, NUMPY_LOOPS))
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one, other)


def records(*, hostile: bool) -> pa.Table:
    random = np.random.default_rng(5)
    lengths = np.append(random.geometric(0.01, 200), [0, 1, 2])
    offsets, tokens = pa.array(np.append(0, np.cumsum(lengths)), pa.int32()), int(lengths.sum())

    def lists(values: np.ndarray, kind: pa.DataType) -> Any:
        return pa.ListArray.from_arrays(offsets, pa.array(values, kind))

    rollout = -random.exponential(size=tokens).astype(np.float32)
    drawn = {"rollout": rollout}
    for policy in ("old", "current"):
        drawn[policy] = np.minimum(rollout + random.normal(0, 0.1, tokens).astype(np.float32), 0)
        if hostile:
            odd = random.random(tokens) < 0.01
            drawn[policy][odd] = random.choice([np.nan, -np.inf, np.inf, 9.0, -3000.0], odd.sum())
    return pa.table(
        {
            "attempt": pa.array(np.zeros(len(lengths)), pa.int32()),
            "step": pa.array(np.arange(len(lengths)) // 90, pa.int64()),
            "sequence_id": [str(row) for row in range(len(lengths))],
            **{f"{policy}_logprobs": lists(values, pa.float32()) for policy, values in drawn.items()},
            "mask": lists(random.random(tokens) < 0.9, pa.bool_()),
            "entropy": lists(random.exponential(size=tokens), pa.float32()),
            "turn": lists(np.sort(random.integers(0, 4, tokens)), pa.int16()),
            "replica": list(random.choice(["a", "b"], len(lengths))),
            "inclusion_probability": list(np.where(random.random(len(lengths)) < 0.5 * hostile, 0.5, 1.0)),
        }
    )  # fmt: skip


@pytest.mark.parametrize("hostile", [True, False])
@pytest.mark.parametrize("odd", [None, "token_id"])
def test_statistics_have_numpys_bits(loops: Loops, hostile: bool, odd: str | None) -> None:
    rows = records(hostile=hostile)
    slices = {"odd": [list(range(len(row or ()))) for row in rows["mask"].to_pylist()]} if odd else None
    found, wanted = (statistics(rows, slices=slices, loops=each) for each in (loops, NUMPY_LOOPS))
    assert found.equals(wanted)
    assert len(found) > 50


def test_loops_that_add_up_in_another_order_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled_engine.is_exact()
    sums = compiled_engine.machine_loops().sums

    def nudged(*given: Any) -> tuple[Matrix, list[Cells]]:
        matrix, others = sums(*given)
        return np.nextafter(matrix, np.inf), others

    monkeypatch.setattr(compiled_engine, "_sums", nudged)
    assert not compiled_engine.is_exact()


def test_a_writers_process_uses_it_after_some_steps_and_writes_the_same_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RATIOSCOPE_WRITER", raising=False)
    pids, real = list[int](), writer_process.WriterProcess._hear

    def hear(self: Any, reply: Any) -> None:
        pids.extend([reply["ready"]] if "ready" in reply else [])
        real(self, reply)

    monkeypatch.setattr(writer_process.WriterProcess, "_hear", hear)
    random, tokens = np.random.default_rng(0), WORTH_COMPILING // 4
    rollout = -random.exponential(size=(tokens // 1000, 1000)).astype(np.float32)
    given: dict[str, Any] = {"rollout_logprobs": rollout, "old_logprobs": rollout - np.float32(0.01)}
    loaded, written = list[bool](), list[pl.DataFrame]()
    for writer in WRITERS:
        with Collector(tmp_path / writer, writer=writer) as collector:
            for step in range(6):
                collector.log(step=step, **given)
                assert collector.flush(PATIENCE)
                if writer == "process":
                    loaded.append("/llvmlite/" in Path(f"/proc/{pids[0]}/maps").read_text())
        files = (tmp_path / writer / layout.STATISTICS).rglob("*.parquet")
        written.append(pl.concat([pl.read_parquet(file) for file in files]).sort(KEYS))
    assert loaded == [False] * 4 + [True] * 2
    assert len(written[0]) > 100 and written[0].equals(written[1])


def test_another_process_gives_equal_bytes_and_starts_no_thread() -> None:
    here = Path(__file__).parent
    text = f"""
import hashlib, sys, threading
sys.path[:0] = [{str(here)!r}, {str(here.parent)!r}]
from test_compiled_engine import NUMPY_LOOPS, machine_loops, records, statistics
for loops in (machine_loops(), NUMPY_LOOPS):
    table = statistics(records(hostile=False), loops=loops)
    print(hashlib.sha256(str(table.to_pydict()).encode()).hexdigest(), threading.active_count())
"""
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert not ended.returncode, ended.stderr
    compiled, by_numpy = ended.stdout.splitlines()
    assert compiled == by_numpy
    assert compiled.endswith(" 1")
