"""Writes the statistics of the shipped runs anew from their token rows, after the set of statistics has changed.

    python sample_data/restate.py

Token files and their commit lines stay as they were recorded; only the segments, which are made of them, are replaced.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import layout
from ratioscope.collectors.writing.durable_file import write_whole
from ratioscope.collectors.writing.parquet_file import parquet_bytes
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.numpy_engine import statistics

RUNS = Path(__file__).parent / "runs"


def restate(run: Path) -> None:
    """Replace the statistics of a run that one writer wrote within one segment."""
    logs = {log: _entries(log) for log in (run / layout.COMMITS).glob("*.jsonl")}
    ((log, entries),) = [(log, own) for log, own in logs.items() if any(_is_of(layout.TOKENS, each) for each in own)]
    tokens = [entry for entry in entries if _is_of(layout.TOKENS, entry)]
    tables = [statistics(joined(pq.read_table(run / entry["file"], partitioning=None))) for entry in tokens]
    segment = pa.concat_tables(tables)
    file = layout.statistics_file(log.stem, 0)
    data = parquet_bytes(segment, {})
    write_whole(run, file, data)
    commit: dict[str, Any] = {
        "kind": layout.COMMIT,
        "file": file.as_posix(),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "steps": np.unique(np.asarray(segment["step"])).tolist(),
        "time": tokens[-1]["time"],
    }
    kept = [entry for entry in entries if not _is_of(layout.STATISTICS, entry)]
    last = kept.index(tokens[-1]) + 1
    write_whole(run, log.relative_to(run), b"".join(map(layout.encode_line, (*kept[:last], commit, *kept[last:]))))


def _entries(log: Path) -> list[dict[str, Any]]:
    lines = [layout.decode_line(line) for line in log.read_bytes().splitlines()]
    return [entry for entry in lines if entry is not None]


def _is_of(folder: str, entry: dict[str, Any]) -> bool:
    return str(entry.get("file", "")).startswith(folder)


if __name__ == "__main__":
    for folder in sorted(RUNS.iterdir()):
        restate(folder)
        print(folder.name)
