"""Packages that read a run: `open` reads all that it has, `append` writes one step more, `refresh` reads again, `report` tells,
`diagnose` looks for causes.

The integer is the number of runs. numbers: Parquet files, one per run, of a number per metric and step. tokens: the same runs'
token rows. The last steps of both are for `append`.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from .tokens import martingale_recorder, recorded_by_martingale

Works = dict[str, Callable[[int], object]]
Numbers = Mapping[str, float]


def tensorboard(folder: str, numbers: Sequence[str], first: int, **_: object) -> Works:
    writing = import_module("tensorboard.summary.writer.event_file_writer")
    reading = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = import_module("tensorboard.compat.proto.event_pb2")
    summaries = import_module("tensorboard.compat.proto.summary_pb2")
    folders = [f"{folder}/{place}" for place in range(len(numbers))]
    writers = [writing.EventFileWriter(each) for each in folders]

    def write(place: int, step: int, row: Numbers) -> None:
        values = [summaries.Summary.Value(tag=name, simple_value=value) for name, value in row.items()]
        writers[place].add_event(events.Event(step=step, summary=summaries.Summary(value=values)))

    def scalars(accumulators: Sequence[Any]) -> int:
        for each in accumulators:
            each.Reload()
        return sum(len(each.Scalars(tag)) for each in accumulators for tag in each.Tags()["scalars"])

    def opened(runs: int) -> int:
        kept[:] = [reading.EventAccumulator(each, size_guidance={reading.SCALARS: 0}) for each in folders[:runs]]
        return scalars(kept)

    kept: list[Any] = []
    append = _written(numbers, first, write, lambda: [writer.flush() for writer in writers])
    return {"open": opened, "append": append, "refresh": lambda _: scalars(kept)}


def trackio(folder: str, numbers: Sequence[str], first: int, **_: object) -> Works:
    os.environ["TRACKIO_DIR"] = folder
    storage = import_module("trackio.sqlite_storage")
    kept: Any = storage.SQLiteStorage

    def write(place: int, step: int, row: Numbers) -> None:
        for project in ("runs", *(["run"] if place == 0 else [])):  # its page shows a project: all runs, or the first
            kept.bulk_log(project=project, run=f"run-{place}", metrics_list=[dict(row)], steps=[step])

    def opened(runs: int) -> int:
        storage._LOGS_READ_CACHE.clear()  # a fresh process has none
        return again(runs)

    def again(runs: int) -> int:
        return sum(len(kept.get_logs(project="runs", run=f"run-{place}")) for place in range(runs))

    return {"open": opened, "append": _written(numbers, first, write), "refresh": again}


def rlprobe(folder: str, numbers: Sequence[str], first: int, **_: object) -> Works:
    probe, reading = import_module("rlprobe"), import_module("rlprobe.storage")
    telling, doctor = import_module("rlprobe.doctor.report"), import_module("rlprobe.doctor.engine")
    options: dict[str, Any] = {"install_handlers": False, "capture_env": False, "steps_per_flush": 1}
    runs_ = [f"{folder}/{place}" for place in range(len(numbers))]
    recorders = [probe.Recorder(each, **options) for each in runs_]

    def write(place: int, step: int, row: Numbers) -> None:
        recorders[place].log_step(step, extra=dict(row))

    def opened(runs: int) -> int:
        return sum(len(reading.RunReader(each).steps()) for each in runs_[:runs])

    def reported(runs: int) -> None:
        for each in runs_[:runs]:
            telling.render_report(each, out_path=f"{folder}/report.html")

    def diagnosed(runs: int) -> int:
        return sum(len(doctor.diagnose(each)) for each in runs_[:runs])

    append = _written(numbers, first, write, lambda: [each.flush() for each in recorders])
    return {"open": opened, "append": append, "refresh": opened, "report": reported, "diagnose": diagnosed}


def martingale(folder: str, tokens: Sequence[str], first: int, **_: object) -> Works:
    record, diagnostics = import_module("martingale.record"), import_module("martingale.diagnostics")
    folders = [f"{folder}/{place}" for place in range(len(tokens))]
    recorders = [martingale_recorder(each) for each in folders]
    rows = [pq.read_table(each).to_pylist() for each in tokens]
    steps = [_by_step(each) for each in rows]
    for recorder, each in zip(recorders, steps, strict=True):
        for _step in range(first):
            recorded_by_martingale(recorder, next(each))

    def append(runs: int) -> None:
        for recorder, each in zip(recorders[:runs], steps, strict=False):
            recorded_by_martingale(recorder, next(each))

    def read(runs: int) -> list[Any]:
        ledgers = [record.TokenLedger(Path(each) / "tokens.db", readonly=True) for each in folders[:runs]]
        found = [diagnostics.decompose(ledger) for ledger in ledgers]
        for ledger in ledgers:
            ledger.close()
        return found

    def reported(runs: int) -> None:
        for found in read(runs):
            diagnostics.render_markdown({**found, "attribution": diagnostics.attribute(found)})

    def diagnosed(runs: int) -> int:
        return len([diagnostics.attribute(found) for found in read(runs)])

    return {"open": read, "append": append, "refresh": read, "report": reported, "diagnose": diagnosed}


def ratioscope(folder: str, runs: Sequence[str], **_: object) -> Works:
    """`append` is the business of the process that records these runs."""
    os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
    reading, data = import_module("ratioscope.ingest.run"), import_module("ratioscope.app.documents.material")
    html, causes = (
        import_module("ratioscope.app.documents.report"),
        import_module("ratioscope.ingest.analysis.diagnosis"),
    )
    kept: list[Any] = []

    def opened(count: int) -> int:
        kept[:] = [reading.open_run(each) for each in runs[:count]]
        return sum(each.metrics().height for each in kept)

    def refreshed(_: int) -> int:
        for each in kept:
            each.refresh()
        return sum(each.metrics().height for each in kept)

    def reported(count: int) -> None:
        for each in runs[:count]:
            html.html_report(data.material(reading.open_run(each)))

    def diagnosed(count: int) -> int:
        return sum(len(causes.diagnosis_of(reading.open_run(each)).steps) for each in runs[:count])

    return {"open": opened, "refresh": refreshed, "report": reported, "diagnose": diagnosed}


def _written(
    numbers: Sequence[str],
    first: int,
    write: Callable[[int, int, Numbers], object],
    flush: Callable[[], object] = lambda: None,
) -> Callable[[int], object]:
    """Writes the first steps of every run; returns what writes the next one of so many runs."""
    rows = [iter(_rows(each)) for each in numbers]
    for place, each in enumerate(rows):
        for step in range(first):
            write(place, step, next(each))
    flush()
    steps = [first] * len(rows)

    def append(runs: int) -> None:
        for place in range(runs):
            write(place, steps[place], next(rows[place]))
            steps[place] += 1
        flush()

    return append


def _rows(path: str) -> Iterator[Numbers]:
    for row in pq.read_table(path).to_pylist():
        yield {name: value for name, value in row.items() if value is not None and math.isfinite(value)}


def _by_step(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    steps = sorted({row["step"] for row in rows})
    return iter([[dict(row) for row in rows if row["step"] == step] for step in steps])
