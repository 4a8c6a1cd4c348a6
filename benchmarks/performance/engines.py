"""A full index of a run beside a bare scan of its columns, and beside engines that compute one number of it."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..index import POLICIES, recorded
from .measured import Table, told_in_turns
from .workers import OURS, PEERS, THEIRS, Answer, Worker, calls, told_missing

SCAN = "a bare scan of the log-probs"
NANOSECOND = 1e-9
BESIDE_OURS = str(PEERS / "beside_ours")


def parts(quick: bool) -> Iterator[Table]:
    tokens, rounds = (100_000, 2) if quick else (4_000_000, 4)
    yield _beside(tokens, rounds, POLICIES[:2])
    yield _beside(tokens, rounds, POLICIES)


def _beside(tokens: int, rounds: int, policies: tuple[str, ...]) -> Table:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        run = Path(folder) / "run"
        found = recorded(run, policies, tokens, 1)
        files = sorted(map(str, (run / "tokens").rglob("*.parquet")))
        columns = [f"{policy}_logprobs" for policy in policies]
        own: dict[str, tuple[str, dict[str, Any], str, str]] = {
            SCAN: ("scan", {"files": files, "columns": columns}, OURS, ""),
            "ratioscope index, numpy": ("index", {"run": str(run), "compiled": False}, OURS, ""),
            "ratioscope index, machine code": ("index", {"run": str(run), "compiled": True}, OURS, BESIDE_OURS),
        }
        others = {
            name: (function, {"files": files}, python, path) for name, (function, python, path) in ONE_NUMBER.items()
        }
        asked = own | others if len(policies) == 2 else own
        workers = {
            name: stack.enter_context(Worker(f"engines:{function}", given, python, path))
            for name, (function, given, python, path) in asked.items()
        }
        works = {name: _cpu(call, found) for name, call in calls(workers, "work").items()}
        rows = told_in_turns(works, rounds)
        missing = told_missing(workers)
    gaps = {2: "one gap", 3: "three gaps"}[len(policies)]
    text = (
        f"One step of {found:,} tokens of {len(policies)} policies. The index is all statistics, written slices and "
        f"distributions of {gaps}, as `ratioscope index` computes them from a step's file; a process and a thread does it. "
    )
    if others_here := len(policies) == 2:
        text += (
            "The other engines compute one number of several hundred from the same files: the mean of exp(x) - 1 - x by step, x "
            "the log-ratio. verl's function computes its metrics from padded tensors in memory. "
        )
    text += (
        "Processor time of all threads, for a token. Each does its work twice in its turn, and the second time counts: the first "
        "one may find its memory given back to the system, which made a scan up to three times as slow."
    )
    title = "A full index beside a bare scan" + ("" if others_here else ", three policies")
    return Table(f"index_{len(policies)}", title, text, "ns/token", SCAN, rows, missing)


ONE_NUMBER = {
    "kl_k3 alone, polars": ("polars", THEIRS, ""),
    "kl_k3 alone, DuckDB": ("duckdb", THEIRS, ""),
    "kl_k3 alone, Daft": ("daft", THEIRS, ""),
    "verl's compute_offpolicy_metrics": ("verl", OURS, BESIDE_OURS),
}


def _cpu(call: Callable[[], Answer], tokens: int) -> Callable[[], float]:
    """The processor time of a second call, in nanoseconds a token. The first one gets the memory from the system."""

    def second() -> float:
        call()
        return call().cpu / tokens / NANOSECOND

    return second
