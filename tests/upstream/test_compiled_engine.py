"""The engine in machine code gives what the oracle and numpy's loops give, in equal bytes for equal input. It needs numba."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from support.programs import columns, one_by_one

from ratioscope.ingest.statistics import machine_code
from ratioscope.metrics.distribution import EDGES
from ratioscope.metrics.engines.agreement import disagreement
from ratioscope.metrics.engines.loops import NUMPY_LOOPS, Loops
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.engines.program import token_program
from ratioscope.metrics.merging import KEYS

pytest.importorskip("numba", reason="numba is not installed")
pytestmark = pytest.mark.upstream


@pytest.fixture(scope="session")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Loops:
    made = machine_code.machine_loops(tmp_path_factory.mktemp("machine_code"))
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("gap", "whole"), [("mismatch", True), ("mismatch", False), ("drift", False), ("rollout:referee", True)]
)
@pytest.mark.parametrize("entropy", [True, False])
@pytest.mark.parametrize("hostile", [True, False])
def test_a_program_gives_what_each_formula_gives(
    loops: Loops, gap: str, whole: bool, entropy: bool, hostile: bool
) -> None:
    given, starts = columns(hostile=hostile, entropy=entropy), np.array([0, 1, 2, 17, 300, 899])
    with np.errstate(all="ignore"):
        found = loops.cell_sums(token_program(gap, whole=whole, entropy=entropy, sound=False), given, starts)
        wanted = one_by_one(gap, given, starts, whole=whole)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)  # sums of 900 terms, added up in another order


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
        found, wanted = loops.buckets(place, given, groups), NUMPY_LOOPS.buckets(place, given, groups)
        for one, other in zip(found[:2], wanted[:2], strict=True):
            np.testing.assert_array_equal(one, other)
        for one, other in zip(found[2:], wanted[2:], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_order_keeps_equal_cells_in_place(loops: Loops) -> None:
    random = np.random.default_rng(2)
    for count in (1, 7, 5000, 10**9):
        cells = random.integers(0, count, 3000)
        np.testing.assert_array_equal(loops.order(cells, count), np.argsort(cells, kind="stable"))


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
def test_statistics_agree_and_have_equal_bytes(loops: Loops, hostile: bool, odd: str | None) -> None:
    rows = records(hostile=hostile)
    slices = {"odd": [list(range(len(row or ()))) for row in rows["mask"].to_pylist()]} if odd else None
    once, again = (statistics(rows, slices=slices, loops=loops) for _ in range(2))
    assert once.equals(again)
    assert len(once) > 50
    computed, other = (pl.DataFrame(t).sort(KEYS) for t in (once, statistics(rows, slices=slices)))
    assert disagreement(other, computed) == ""


def test_machine_code_on_disk_gives_equal_bytes_in_another_process(tmp_path: Path) -> None:
    here = Path(__file__).parent
    text = f"""
import hashlib, sys, threading
from pathlib import Path
sys.path[:0] = [{str(here)!r}, {str(here.parent)!r}]
from test_compiled_engine import machine_code, records, statistics
table = statistics(records(hostile=False), loops=machine_code.machine_loops(Path({str(tmp_path)!r})))
print(hashlib.sha256(str(table.to_pydict()).encode()).hexdigest(), threading.active_count())
"""
    said = []
    for _ in range(2):
        ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
        assert not ended.returncode, ended.stderr
        said.append(ended.stdout)
    assert said[0] == said[1]
    assert said[0].endswith(" 1\n")  # no thread was started
    assert list(tmp_path.glob("__pycache__/*.nbc"))


def test_damaged_machine_code_is_made_again(tmp_path: Path) -> None:
    program, starts = token_program("drift", whole=False, entropy=False, sound=False), np.array([0, 300])
    given = columns(hostile=False, entropy=False)
    found = []
    for _ in range(2):
        machine_code.machine_loops.cache_clear()
        made = machine_code.machine_loops(tmp_path)
        assert made is not None
        found.append(made.cell_sums(program, given, starts))
        for file in [*tmp_path.glob("*.py"), *tmp_path.glob("__pycache__/*")]:
            file.write_bytes(b"\0" * 100)
    np.testing.assert_array_equal(found[0], found[1])
    assert len(found[0][0]) == 2


def test_machine_code_with_a_flipped_bit_is_made_again(tmp_path: Path) -> None:
    program, starts = token_program("drift", whole=False, entropy=False, sound=False), np.array([0, 300])
    given = columns(hostile=False, entropy=False)
    found, loaded = [], []
    for _ in range(3):
        machine_code.machine_loops.cache_clear()
        made = machine_code.machine_loops(tmp_path)
        assert made is not None and made.name.startswith("numba ")
        found.append(made.cell_sums(program, given, starts))
        (code,) = tmp_path.glob("__pycache__/*.nbc")
        loaded.append(code.stat().st_mtime_ns)
        if len(found) == 2:
            data = bytearray(code.read_bytes())
            data[len(data) // 2] ^= 1
            code.write_bytes(data)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert loaded[0] == loaded[1], "sound code is not made again"
    assert loaded[1] != loaded[2]
