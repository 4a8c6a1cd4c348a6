"""From the end of a step until a reader has its verdict, along the tokens of the step."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ratioscope import Collector
from ratioscope.collectors.writing.writer_thread import LEAST_SECONDS
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.run import Run, open_run

from .logging_cost import log_probs
from .measured import Growth, Line, Table

POLL = 0.02
"""Seconds between two looks of the reader. `watch` and the dashboard look less often."""


def parts(quick: bool) -> Iterator[Table | Growth]:
    sizes = (1e3, 1e4) if quick else (1e3, 1e4, 1e5, 1e6, 4e6)
    yield _latency(sizes, 2 if quick else 7)


def _latency(sizes: tuple[float, ...], rounds: int) -> Growth:
    on_disk, known = [], []
    for tokens in sizes:
        arrays = log_probs(int(tokens))
        with tempfile.TemporaryDirectory() as folder, Collector(Path(folder) / "run") as collector:
            for step in (0, 1):
                collector.log(step=step, **arrays)
            collector.flush()
            run = open_run(Path(folder) / "run")
            verdict_of(run)
            both = []
            for step in range(2, rounds + 2):
                began = time.perf_counter()
                collector.log(step=step, **arrays)
                both.append(_seconds(run, step, began))
        on_disk.append(tuple(first for first, _ in both))
        known.append(tuple(second for _, second in both))
    text = (
        "Seconds from the call of log until a reader that follows the run sees the step's commit, and until it has the verdict "
        f"with that step. The reader looks every {POLL} s. Each rank writes its own part of a step, so that the tokens are those "
        f"of one rank. A step is committed when the next one is logged, or {LEAST_SECONDS:g} s after its last batch."
    )
    lines = (Line("the step is committed", sizes, tuple(on_disk)), Line("the verdict is known", sizes, tuple(known)))
    return Growth("verdict", "From the end of a step to its verdict", text, "s", "tokens of a step on one rank", lines)


def _seconds(run: Run, step: int, began: float) -> tuple[float, float]:
    while True:
        run.refresh()
        if step in run.steps:
            break
        time.sleep(POLL)
    committed = time.perf_counter() - began
    frame = run.metrics()
    assert np.isfinite(frame["mismatch/kl_k3"][-1])
    verdict_of(run)
    return committed, time.perf_counter() - began
