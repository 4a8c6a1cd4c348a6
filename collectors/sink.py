"""Where rows go. ParquetSink is the run folder; a Sink of your own takes the same three calls.

A step is committed in this order: token file (temp, fsync, rename, fsync of the folder), statistics segment (the same,
replacing its older self), commit lines. A reader that believes the lines never sees less than they say.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import layout
from ratioscope.record import GAPS, POLICIES, SCHEMA_VERSION

from .commit_log import CommitLog
from .counts import Tally
from .durable_file import make_folder, write_whole
from .first_look import first_look
from .live_scalars import LiveScalars
from .records import tokens_of
from .run_file import attempt_to_join, host_name, launch, note_attempt, start_run
from .step_statistics import part_statistics

logger = logging.getLogger("ratioscope")

_ROW_GROUP_TOKENS = 1 << 22


class Sink(Protocol):
    """Called by the writer's thread alone. Whatever a call raises is counted; the next call is made all the same."""

    def open(self) -> int:
        """Makes ready; the attempt that rows belong to. Called again until it succeeds."""
        ...

    def write(self, step: int, rows: pa.Table, earlier: pa.Table | None, tally: Tally) -> list[str]:
        """Makes the rows of a step durable, or raises; returns what else failed, without a row being lost.

        earlier: the rows of the same step that were written just before, where the step comes in parts.
        """
        ...

    def say(self, entry: Mapping[str, Any]) -> None:
        """Makes a line of the commit log durable, now or with a later call."""
        ...


class ParquetSink:
    """One writer's part of a run folder."""

    def __init__(
        self,
        root: Path,
        info: Mapping[str, Any],
        *,
        rank: int,
        attempt: int | None = None,
        versions: str | None = None,
        live: LiveScalars | None = None,
    ) -> None:
        self._root, self._info, self._rank, self._attempt = root, info, rank, attempt
        self._versions, self._live, self._has_looked = versions, live, False
        self.writer = f"r{rank:05d}-{host_name()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._log = CommitLog(root / layout.commit_file(self.writer))
        self._is_open, self._is_announced = False, False
        self._segment, self._segment_rows = 0, pa.table({})

    def open(self) -> int:
        if not self._is_open:
            start_run(self._root, self._info)
            for folder in (layout.TOKENS, layout.STATISTICS, layout.COMMITS):
                make_folder(self._root / folder)
            if self._attempt is None:
                self._attempt = attempt_to_join(self._root, self._rank)
            self._announce(self._attempt)
            self._is_open = True
        assert self._attempt is not None
        return self._attempt

    def write(self, step: int, rows: pa.Table, earlier: pa.Table | None, tally: Tally) -> list[str]:
        entries, failures = [self._token_file(step, rows, tally)], []
        try:
            fresh = part_statistics(rows, earlier)
            entries += self._segment_entries(fresh)
            entries += self._looked(step, rows, earlier, fresh)
        except Exception as error:
            failures.append(f"statistics: {type(error).__name__}: {error}")
        try:
            self._log.say(*entries)
        except OSError as error:
            failures.append(f"commit log: {error}")
        return failures

    def say(self, entry: Mapping[str, Any]) -> None:
        self._log.say({**entry, "time": time.time()})

    def _announce(self, attempt: int) -> None:
        """Says once that the writer has begun: a line that cannot be written waits for the next."""
        if not self._is_announced:
            self._is_announced = True
            self._log.say(self._opening())
        try:
            note_attempt(self._root, attempt, self._info)
        except (OSError, ValueError) as error:  # what readers go by is the line above
            logger.warning("%s: attempt %d cannot be added to run.json: %s", self._root, attempt, error)

    def _opening(self) -> dict[str, Any]:
        return {
            "kind": layout.OPEN,
            "writer": self.writer,
            "rank": self._rank,
            "host": host_name(),
            "pid": os.getpid(),
            "attempt": self._attempt,
            "launch": launch(),
            "schema": SCHEMA_VERSION,
            "time": time.time(),
        }

    def _token_file(self, step: int, rows: pa.Table, tally: Tally) -> dict[str, Any]:
        policies = [policy for policy in POLICIES if rows[f"{policy}_logprobs"].null_count < len(rows)]
        data = parquet_bytes(rows, {"ratioscope.writer": self.writer, "ratioscope.schema": str(SCHEMA_VERSION)})
        make_folder((self._root / layout.token_file(step, self.writer, 0)).parent)
        part = 0
        while (self._root / (file := layout.token_file(step, self.writer, part))).exists():
            part += 1
        write_whole(self._root / file, data)
        return {
            **_commit(file, data),
            "step": step,
            "rows": len(rows),
            "tokens": tokens_of(rows),
            "schema": SCHEMA_VERSION,
            "gaps": [gap for gap, sides in GAPS.items() if set(sides) <= set(policies)],
            "policies": policies,
            "slices": len(rows) - rows["positions"].null_count,
            "offered": tally.offered,
            "dropped": tally.dropped,
        }

    def _looked(self, step: int, rows: pa.Table, earlier: pa.Table | None, fresh: pa.Table) -> list[dict[str, Any]]:
        """Hands the statistics on, and tells once, for all ranks, what the first rows look like."""
        if self._live is not None:
            self._live.take(step, fresh, rows if earlier is None else pa.concat_tables([earlier, rows]))
        if self._has_looked or self._rank != 0:
            return []
        self._has_looked = True
        note = first_look(rows, fresh, self._versions)
        return [{"kind": layout.EVENT, "event": layout.FIRST_ROWS, "step": step, "note": note, "time": time.time()}]

    def _segment_entries(self, fresh: pa.Table) -> list[dict[str, Any]]:
        if not len(fresh):
            return []
        segment = pa.concat_tables([self._segment_rows, fresh]) if len(self._segment_rows) else fresh
        data = parquet_bytes(segment, {})
        file = layout.statistics_file(self.writer, self._segment)
        write_whole(self._root / file, data)
        steps = np.unique(np.asarray(segment["step"])).tolist()
        full = len(steps) >= layout.SEGMENT_STEPS
        self._segment, self._segment_rows = (self._segment + 1, pa.table({})) if full else (self._segment, segment)
        return [{**_commit(file, data), "steps": steps}]


def parquet_bytes(table: pa.Table, metadata: Mapping[str, str]) -> bytes:
    """The table as a Parquet file: zstd, byte-stream-split floats, page checksums; a row lies within one row group."""
    leaves = [_leaf(field) for field in table.schema]
    # Any: the stubs know only the form that is one bool for all columns
    floats: Any = [path for path, value in leaves if pa.types.is_floating(value)]
    others: Any = [path for path, value in leaves if not pa.types.is_floating(value)]
    target = io.BytesIO()
    pq.write_table(
        table.replace_schema_metadata(dict(metadata)),
        target,
        compression="zstd",
        use_dictionary=others,
        use_byte_stream_split=floats,
        write_page_checksum=True,
        row_group_size=_rows_per_group(table),
    )
    return target.getvalue()


def _leaf(field: pa.Field[Any]) -> tuple[str, pa.DataType]:
    if pa.types.is_list(field.type):
        return f"{field.name}.list.element", field.type.value_type
    return field.name, field.type


def _rows_per_group(table: pa.Table) -> int:
    tokens = tokens_of(table) if "rollout_logprobs" in table.column_names else 0
    return max(1, len(table) if tokens <= _ROW_GROUP_TOKENS else len(table) * _ROW_GROUP_TOKENS // tokens)


def _commit(file: Path, data: bytes) -> dict[str, Any]:
    return {
        "kind": layout.COMMIT,
        "file": file.as_posix(),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "time": time.time(),
    }
