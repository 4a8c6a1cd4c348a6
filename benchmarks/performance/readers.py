"""The cost of readers along the steps and the ranks of a run: CPU seconds of a fresh process with an empty cache."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .._long_runs import long_runs
from ..scale import write
from .measured import Growth, Line, Table

SCAN = """
import sys, pyarrow.dataset as ds, pathlib
ds.dataset(sorted((pathlib.Path(sys.argv[1]) / "statistics").rglob("*.parquet"))).to_table()
"""
LEAST = 0.001
"""Less than this cannot be told from the start of a process."""
SCANNED = "a bare scan of the statistics"
VERBS = {"info": ("info",), "metrics": ("metrics", "--json"), "report": ("report", "-o", "report.html")}


def parts(quick: bool) -> Iterator[Table | Growth]:
    rounds = 1 if quick else 2
    steps = (100, 300) if quick else (100, 1_000, 10_000)
    yield _growth("steps", "steps", steps, _of_steps, rounds)
    ranks = (1, 4) if quick else (1, 8, 64)
    yield _growth("ranks", "ranks that each wrote 100 steps", ranks, _of_ranks, rounds, verbs=("info", "metrics"))


def _growth(
    name: str,
    along: str,
    sizes: Sequence[int],
    made: Callable[[Path, int], Path],
    rounds: int,
    verbs: Sequence[str] = tuple(VERBS),
) -> Growth:
    lines: dict[str, list[tuple[float, ...]]] = {verb: [] for verb in (SCANNED, *verbs)}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            run = made(Path(folder), size)
            for verb, values in lines.items():
                values.append(tuple(_spent(verb, run) for _ in range(rounds)))
    text = (
        "CPU seconds of a fresh process with an empty cache, less what the same process needs to start. The grey line reads "
        "every column of the statistics files with pyarrow and computes nothing."
    )
    drawn = tuple(Line(verb, tuple(map(float, sizes)), tuple(values)) for verb, values in lines.items())
    return Growth(f"readers_{name}", f"Readers along the {name} of a run", text, "s of CPU", along, drawn)


def _of_steps(folder: Path, steps: int) -> Path:
    return long_runs(steps, 1, folder)[0]


def _of_ranks(folder: Path, ranks: int) -> Path:
    write(folder / "run", ranks, 100)
    return folder / "run"


def _spent(verb: str, run: Path) -> float:
    if verb == SCANNED:
        scan = _cpu([sys.executable, "-c", SCAN, str(run)])
        return max(LEAST, scan - _cpu([sys.executable, "-c", "import pyarrow.dataset"]))
    name, *options = VERBS[verb]
    own = _cpu([sys.executable, "-m", "ratioscope", name, str(run), *options])
    return max(LEAST, own - _cpu([sys.executable, "-m", "ratioscope", name, "--help"]))


def _cpu(command: Sequence[str]) -> float:
    """CPU seconds of a process, its threads and children included."""
    with tempfile.TemporaryDirectory() as cache:
        process = subprocess.Popen(
            command,
            cwd=cache,
            env={**os.environ, "XDG_CACHE_HOME": cache},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1: the run is not healthy
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime
