"""A disk of two megabytes is filled, freed and written to again: a tmpfs where one may be mounted, else os.write plays one.

The mount is in a namespace of its own, so that it ends with the process.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratioscope.collectors.budget import Budget
from ratioscope.collectors.collector import Collector
from ratioscope.collectors.writing.parquet_sink import ParquetSink
from ratioscope.ingest.run import open_run

from .figures import Figures
from .logged import ROWS, logged
from .processes import PATIENCE
from .strike import unsynced
from .truth import compare

STEPS = 12
FULL, FREED = 4, 8
"""Steps before which the disk fills up, and is freed."""
_MOUNT = 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"'
_NAMESPACES = (["unshare", "--mount", "--propagation", "private"], ["unshare", "--user", "--map-root-user", "--mount"])


def filled(folder: Path, *, seed: int) -> Figures:
    """On a real file system if any may be mounted here."""
    disk = folder / "disk"
    disk.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    for namespace in _NAMESPACES:
        command = ["sh", "-c", _MOUNT, str(disk), sys.executable, "-m", "chaos.full_disk", str(disk), str(seed)]
        done = subprocess.run([*namespace, *command], capture_output=True, text=True, env=environment)
        if done.returncode == 0:
            told = json.loads(done.stdout)
            return Figures("A full disk", told["counts"], told["wrong"], ["a tmpfs of 2 MB"])
    with small_disk(disk) as free, unsynced():
        figures = _fill(disk, seed, ballast=lambda: free.__setitem__(0, 0), freed=lambda: free.__setitem__(0, 1 << 30))
    figures.remarks.append("os.write played a full disk: no tmpfs may be mounted here")
    return figures


def _fill(disk: Path, seed: int, ballast: object, freed: object) -> Figures:
    """Statistics of every step are there in the end; token rows are missing only while the disk was full."""
    assert callable(ballast) and callable(freed)
    figures, root, seconds = Figures("A full disk"), disk / "run", [0.0]

    def sink() -> ParquetSink:
        return ParquetSink(root, {"name": "full"}, rank=0, budget=Budget(disk_reserve=0), clock=lambda: seconds[0])

    acknowledged = set()
    with Collector(root, sink=sink) as collector:
        for step in range(STEPS):
            if step == FULL:
                ballast()
            elif step == FREED:
                freed()
                seconds[0] += 60  # by when it has tried again
                collector.flush(PATIENCE)  # tells what the full disk cost
            before = _not_written(collector)
            collector.log(step=step, **logged(seed, step))
            if collector.flush(PATIENCE) and _not_written(collector) == before:
                acknowledged.add((0, step))
    tally, run = collector.counts.sequences, open_run(root)
    whole = compare(figures, run, seed, acknowledged)
    with_statistics = run.metrics()["step"].to_list()
    figures.demand(tally.pending == 0, f"{tally}")
    figures.demand({step for _, step in acknowledged} >= {*range(FULL), *range(FREED, STEPS)}, f"{acknowledged}")
    figures.demand(len(whole) < STEPS, "the disk was never full")
    figures.demand(with_statistics == list(range(STEPS)), f"statistics of steps {with_statistics}")
    figures.demand(run.dropped["sequences"] == tally.dropped, f"{tally}, the run tells of {run.dropped}")
    figures.demand(not run.states, f"{run.states}")
    figures.add(
        steps=STEPS, steps_with_rows=len(whole), steps_with_statistics=len(with_statistics), rows=len(whole) * ROWS
    )
    return figures


def _not_written(collector: Collector) -> int:
    """Sequences whose rows are dropped, or will be once their statistics are on disk."""
    tally = collector.counts.sequences
    return tally.dropped + tally.pending


def _fill_up(disk: Path) -> None:
    """Until not a byte more fits."""
    with (disk / "ballast").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC


@contextmanager
def small_disk(disk: Path) -> Iterator[list[int]]:
    """What is written from here on takes from so many bytes; with none left a write fails."""
    real, free = os.write, [1 << 30]

    def write(descriptor: int, data: bytes) -> int:
        if not os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(disk)):
            return real(descriptor, data)
        if free[0] < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        free[0] -= len(data)
        return real(descriptor, data)

    os.write = write  # type: ignore[assignment]
    try:
        yield free
    finally:
        os.write = real


if __name__ == "__main__":
    place = Path(sys.argv[1])
    found = _fill(place, int(sys.argv[2]), ballast=lambda: _fill_up(place), freed=lambda: (place / "ballast").unlink())
    print(json.dumps({"counts": found.counts, "wrong": found.wrong}))
