"""Run folders written straight with pyarrow and ratioscope.layout, without the collector: what readers are tested on."""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import layout
from ratioscope.metrics.engines.arrow_columns import ArrowColumn, pc
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.record import GAPS, POLICIES, SCHEMA_VERSION

TIME = 1_790_000_000.0
"""When everything here happens; each line a second later."""


@dataclass
class FakeWriter:
    """Writes one writer's part of a run folder. Every call commits, unless it says otherwise."""

    root: Path
    writer: str = "r00000-host-1-abcdef"
    rank: int = 0
    attempt: int = 0
    segment_steps: int = layout.SEGMENT_STEPS
    clock: float = TIME
    offered: int = 0
    written: int = 0
    dropped: int = 0
    segment: int = 0
    segment_rows: list[pa.Table] = field(default_factory=list)

    def open(self) -> "FakeWriter":
        if not (self.root / layout.RUN_FILE).exists():
            write_run_file(self.root)
        for folder in (layout.TOKENS, layout.STATISTICS, layout.COMMITS):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        return self.say(kind=layout.OPEN, writer=self.writer, rank=self.rank, host="host", pid=1, attempt=self.attempt)

    def step(self, records: pa.Table, *, with_statistics: bool = True, commit: bool = True) -> str:
        """The rows of one step; the path of its token file."""
        step = records["step"][0].as_py()
        records = records.set_column(0, records.schema.field(0), pa.array([self.attempt] * len(records), pa.int32()))
        part = 0
        while (self.root / layout.token_file(step, self.writer, part)).exists():
            part += 1
        path = layout.token_file(step, self.writer, part)
        data = parquet_bytes(records)
        self.put(path, data)
        self.offered, self.written = self.offered + len(records), self.written + len(records)
        if commit:
            self.say(**committed(path, data), **token_facts(records), offered=self.offered, dropped=self.dropped)
        if with_statistics:
            self.add_statistics(statistics(joined(records)), commit=commit)
        return path.as_posix()

    def add_statistics(self, rows: pa.Table, *, commit: bool = True) -> None:
        """Replaces the open segment with one that holds these rows too."""
        self.segment_rows.append(rows)
        segment = pa.concat_tables(self.segment_rows)
        path, data = layout.statistics_file(self.writer, self.segment), parquet_bytes(segment)
        self.put(path, data)
        steps = np.unique(segment["step"].to_numpy()).tolist()
        if commit:
            self.say(**committed(path, data), steps=steps)
        if len(steps) >= self.segment_steps:
            self.segment, self.segment_rows = self.segment + 1, []

    def event(self, event: str, step: int, note: str = "") -> "FakeWriter":
        return self.say(kind=layout.EVENT, event=event, step=step, note=note)

    def drop(self, step: int | None, sequences: int, tokens: int, reason: str) -> "FakeWriter":
        self.offered, self.dropped = self.offered + sequences, self.dropped + sequences
        return self.say(kind=layout.DROPPED, step=step, sequences=sequences, tokens=tokens, reason=reason)

    def close(self) -> "FakeWriter":
        return self.say(kind=layout.CLOSE, offered=self.offered, written=self.written, dropped=self.dropped)

    def say(self, **entry: Any) -> "FakeWriter":
        self.clock += 1
        with self.log.open("ab") as file:
            file.write(layout.encode_line({**entry, "time": self.clock}))
        return self

    def put(self, path: Path, data: bytes) -> None:
        """A whole file under this name, as os.replace leaves it: a new inode."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp")
        temporary.write_bytes(data)
        temporary.replace(target)

    @property
    def log(self) -> Path:
        return self.root / layout.commit_file(self.writer)


def write_run(root: Path, records: pa.Table, *, writers: int = 1, close: bool = True, segment_steps: int = 64) -> Path:
    """A whole run: the rows of each step dealt out to the writers in turn."""
    fakes = [
        FakeWriter(root, f"r{rank:05d}-host-1-abcdef", rank, segment_steps=segment_steps).open()
        for rank in range(writers)
    ]
    for rows in by_step(records):
        for rank, fake in enumerate(fakes):
            own = rows.take(list(range(rank, len(rows), writers)))
            if len(own):
                fake.step(own)
    for fake in fakes if close else ():
        fake.close()
    return root


def write_run_file(root: Path, **changes: Any) -> None:
    root.mkdir(parents=True, exist_ok=True)
    info = {
        "name": root.name,
        "schema_version": SCHEMA_VERSION,
        "trainer": "fake",
        "config": {},
        "attempts": [{"attempt": 0}],
    }
    (root / layout.RUN_FILE).write_text(json.dumps(info | changes))


def by_step(records: pa.Table) -> list[pa.Table]:
    """The rows of each step, steps ascending."""
    return [records.filter(pc.equal(records["step"], step)) for step in np.unique(records["step"].to_numpy()).tolist()]


def few(records: pa.Table, steps: int, rows: int) -> pa.Table:
    """The first rows of the last steps: a small run with the numbers of the large one."""
    return pa.concat_tables(part.slice(0, rows) for part in by_step(records)[-steps:])


def lengths(records: pa.Table) -> list[int]:
    """Tokens of each row."""
    counted: list[int] = pc.list_value_length(records["token_ids"]).to_pylist()
    return counted


def only(records: pa.Table, policies: Sequence[str], minibatch: int | None = None) -> pa.Table:
    """The same rows as a process would have recorded them that knows these policies alone."""
    table = records
    for name in (*POLICIES, "reference"):
        if name not in policies:
            table = replaced(
                table, f"{name}_logprobs", pa.nulls(len(table), records.schema.field(f"{name}_logprobs").type)
            )
    return replaced(table, "minibatch", pa.array([minibatch] * len(table), pa.int32()))


def replaced(table: pa.Table, name: str, values: ArrowColumn) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), values)


def parquet_bytes(table: pa.Table) -> bytes:
    target = io.BytesIO()
    pq.write_table(table, target, compression="zstd", write_page_checksum=True)
    return target.getvalue()


def committed(path: Path, data: bytes) -> Mapping[str, Any]:
    return {
        "kind": layout.COMMIT,
        "file": path.as_posix(),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def token_facts(records: pa.Table) -> Mapping[str, Any]:
    """What the commit of a token file says of its rows."""
    policies = [policy for policy in POLICIES if records[f"{policy}_logprobs"].null_count < len(records)]
    lengths = [pc.list_value_length(records[f"{policy}_logprobs"]) for policy in policies]
    return {
        "step": records["step"][0].as_py(),
        "rows": len(records),
        "tokens": max(pc.sum(length).as_py() or 0 for length in lengths),
        "schema": SCHEMA_VERSION,
        "policies": policies,
        "gaps": [gap for gap, sides in GAPS.items() if set(sides) <= set(policies)],
    }
