"""Readers beside other packages on equal data: what it takes to open and paint 1 and 8 runs, to follow and to explain them."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import Collector
from ratioscope.ingest.run import open_run

from .measured import Table, told_in_turns
from .painted import painted
from .workers import OURS, THEIRS, Answer, Worker, calls, told_missing

OWN = "ratioscope"
PACKAGES = {"TensorBoard": "tensorboard", "trackio": "trackio", "rlprobe": "rlprobe", "martingale": "martingale"}
SEQUENCES, TOKENS = 8, 16
CPU = "Processor time of one process, its imports left out."
WAIT = 60.0
"""Seconds after which a step that is not committed ends the benchmark."""
Arrays = dict[str, Any]


@dataclass(frozen=True)
class Runs:
    """The same runs, as every package keeps them."""

    workers: dict[str, Worker]
    collectors: list[Collector]
    made: list[list[Arrays]]
    """The values that each step of each run logs."""
    steps: Iterator[int]
    """Those that are still to come."""

    def read(self, work: str, count: int) -> dict[str, Callable[[], float]]:
        """Processor time of the work on so many runs."""
        return {name: partial(_cpu, call) for name, call in calls(self.workers, work, count).items()}

    def followed(self, count: int) -> dict[str, Callable[[], float]]:
        """The same for one step more; every round begins with that step, whoever is first in it."""
        for worker in self.workers.values():
            if not worker.missing:
                worker("open", count)
        works, waiting = self.read("refresh", count), set[str]()

        def read(name: str) -> float:
            if name not in waiting:
                self._go_on()
                waiting.update(works)
            waiting.discard(name)
            return works[name]()

        return {name: partial(read, name) for name in works}

    def _go_on(self) -> None:
        """One step more of every run. ratioscope logs the next one, so that the step before it is committed."""
        step = next(self.steps)
        for collector, each in zip(self.collectors, self.made, strict=True):
            collector.log(step=step, **each[step])
            collector.flush()
        for append in calls(self.workers, "append", len(self.made)).values():
            append()
        ends = time.monotonic() + WAIT
        for collector in self.collectors:
            while step - 1 not in open_run(collector.run_dir).steps:
                if time.monotonic() > ends:
                    raise SystemExit(f"{collector.run_dir}: step {step - 1} was not committed within {WAIT:g} s")
                time.sleep(0.02)


def parts(quick: bool) -> Iterator[Table]:
    counts = (1, 2) if quick else (1, 8)
    steps, rounds = (10, 1) if quick else (40, 3)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        runs, about = _recorded(Path(folder), stack, counts[-1], (steps, len(counts) * (rounds + 1)))
        missing = told_missing(runs.workers)

        def table(name: str, title: str, text: str, works: Mapping[str, Callable[[], float]]) -> Table:
            return Table(name, title, f"{text} {about} {CPU}", "s", OWN, told_in_turns(works, rounds), missing)

        for count in counts:
            words = f"{count} run{'s' * (count > 1)}"
            yield table(f"open_{count}", f"Open {words}", "All numbers of each step.", runs.read("open", count))
            text = "One step more of each, then all numbers again."
            yield table(f"refresh_{count}", f"Follow {words}", text, runs.followed(count))
        yield table("report_1", "Report on 1 run", REPORTS, runs.read("report", 1))
        yield table("diagnose_1", "Diagnose 1 run", DIAGNOSES, runs.read("diagnose", 1))
        yield from painted(Path(folder), counts, rounds, about)


REPORTS = (
    "The page that each makes of a run: HTML of ratioscope and rlprobe, Markdown of martingale. TensorBoard and trackio make "
    "no page."
)

DIAGNOSES = (
    "The causes that each names: ratioscope by the evidence of token rows, martingale by its split of the gap, rlprobe by "
    "signatures of numbers over steps. TensorBoard and trackio name none."
)


def _recorded(folder: Path, stack: ExitStack, count: int, steps: tuple[int, int]) -> tuple[Runs, str]:
    """(runs of so many steps, with so many more to come; a sentence that describes them)."""
    first, more = steps
    made = [[_step(seed, step) for step in range(first + more + 1)] for seed in range(count)]
    numbers, tokens = zip(*(_kept(folder / f"whole-{seed}", each[:-1]) for seed, each in enumerate(made)), strict=True)
    collectors = [stack.enter_context(Collector(folder / f"run-{seed}")) for seed in range(count)]
    for collector, each in zip(collectors, made, strict=True):
        for step, arrays in enumerate(each[: first + 1]):
            collector.log(step=step, **arrays)
        collector.flush()
    runs = [str(collector.run_dir) for collector in collectors]
    given = {"numbers": numbers, "tokens": tokens, "first": first, "runs": runs}
    workers = {}
    for name, function in {OWN: "ratioscope", **PACKAGES}.items():
        (folder / function).mkdir()
        asked = {**given, "folder": str(folder / function)}
        workers[name] = stack.enter_context(Worker(f"readers:{function}", asked, OURS if name == OWN else THEIRS))
    about = (
        f"{first} steps of {SEQUENCES} sequences of {TOKENS} tokens. ratioscope and martingale have the tokens; TensorBoard, "
        f"trackio and rlprobe have the {len(pq.read_schema(numbers[0]).names)} numbers of each step that ratioscope makes of "
        "them."
    )
    return Runs(workers, collectors, made, iter(range(first + 1, first + more + 1))), about


def _step(seed: int, step: int) -> Arrays:
    """Arguments of a call of log."""
    draws = np.random.default_rng((seed, step))
    rollout = -draws.exponential(size=(SEQUENCES, TOKENS)).astype(np.float32)
    return {
        "token_ids": draws.integers(0, 32_000, rollout.shape),
        "rollout_logprobs": rollout,
        "old_logprobs": np.minimum(rollout + draws.normal(0, 0.03, rollout.shape), 0).astype(np.float32),
    }


def _kept(folder: Path, steps: Sequence[Arrays]) -> tuple[str, str]:
    """(Parquet file of the numbers of each step, Parquet file of the token rows)."""
    with Collector(folder) as collector:
        for step, arrays in enumerate(steps):
            collector.log(step=step, **arrays)
    frame = open_run(folder).metrics()
    numbers = frame.select(
        name for name, kind in frame.schema.items() if kind.is_numeric() and name not in ("step", "attempt")
    )
    pq.write_table(numbers.select(pl.all().cast(pl.Float64)).to_arrow(), f"{folder}-numbers.parquet")
    rows = pa.concat_tables(
        pa.table({"step": [step] * SEQUENCES, **{name: list(array) for name, array in arrays.items()}})
        for step, arrays in enumerate(steps)
    )
    pq.write_table(rows, f"{folder}-tokens.parquet")
    return f"{folder}-numbers.parquet", f"{folder}-tokens.parquet"


def _cpu(call: Callable[[], Answer]) -> float:
    return call().cpu
