"""What a collector wrote, read back without our own readers; and sinks that collect, fail or wait instead of writing."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.collectors.batch.records import tokens_of
from ratioscope.collectors.collector import Collector
from ratioscope.collectors.process.counts import Tally
from ratioscope.collectors.writing.sink import RowsOutcome
from ratioscope.layout import decode_line
from ratioscope.record import arrow_schema


def token_rows(run: Path) -> pa.Table:
    """All token rows, file by file in the order of their names; page checksums are verified."""
    files = sorted((run / "tokens").glob("*/[!.]*"))
    tables = [pq.ParquetFile(file, page_checksum_verification=True).read() for file in files]
    return pa.concat_tables(tables) if tables else arrow_schema().empty_table()


def commit_lines(run: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The lines of all commit logs, which all must be whole."""
    lines = [
        decode_line(line) for file in sorted((run / "commits").glob("*")) for line in file.read_bytes().splitlines()
    ]
    entries = [line for line in lines if line is not None]
    assert len(entries) == len(lines)
    return [entry for entry in entries if kind in (None, entry["kind"])]


class CollectingSink:
    """Keeps the rows in memory. `failing` steps raise what is said there; while `gate` is closed, writing waits."""

    def __init__(self, failing: Mapping[int, Exception] | None = None) -> None:
        self.failing = dict(failing or {})
        self.gate = threading.Event()
        self.gate.set()
        self.is_waiting = threading.Event()
        self.rows: list[tuple[int, pa.Table]] = []
        self.lines: list[dict[str, Any]] = []

    def open(self) -> int:
        return 0

    def write(self, step: int, rows: pa.Table, earlier: pa.Table | None, tally: Tally, late: str | None) -> RowsOutcome:
        self.is_waiting.set()
        assert self.gate.wait(60)
        if step in self.failing:
            raise self.failing[step]
        self.rows.append((step, rows))
        return RowsOutcome(len(rows), tokens_of(rows))

    def say(self, entry: Mapping[str, Any]) -> None:
        self.lines.append(dict(entry))

    @property
    def written(self) -> list[dict[str, Any]]:
        """All rows, in the order of writing."""
        return [row for _, rows in self.rows for row in rows.to_pylist()]

    @property
    def gaps(self) -> list[dict[str, Any]]:
        """The lines on dropped sequences."""
        return [line for line in self.lines if line["kind"] == "gap"]


def rows_of(**arguments: Any) -> list[dict[str, Any]]:
    """The rows that one call of `log` makes; raises what the call would otherwise only count."""
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink, strict=True) as collector:
        collector.log(step=1, **arguments)
    return sink.written
