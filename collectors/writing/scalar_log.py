"""ScalarLog: one attempt of a run that holds numbers by step and no tokens, as an import of another program's log makes it."""

import secrets
import time
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ratioscope import layout
from ratioscope.process import host_name
from ratioscope.record import SCHEMA_VERSION, scalar_schema

from .durable_file import make_folder, write_whole
from .joining import logs_beside
from .log_appender import LogAppender
from .parquet_file import commit_entry, parquet_bytes
from .run_file import note_attempt, run_id, start_run


class ScalarLog:
    """Writes the numbers of one attempt. Each file is whole and durable before the line that commits it."""

    def __init__(self, root: Path, info: Mapping[str, Any], attempt: int) -> None:
        self._root, self._attempt, self._parts = root, attempt, 0
        self.writer = f"r00000-import-{attempt}-{secrets.token_hex(3)}"
        start_run(root, info)
        for folder in (layout.SCALARS, layout.COMMITS):
            make_folder(root, PurePath(folder), is_known=attempt > 0)
        if attempt:
            note_attempt(root, attempt, info)
        self._log = LogAppender(root, layout.commit_file(self.writer))
        self._say(
            layout.OPEN,
            writer=self.writer,
            rank=0,
            host=host_name(),
            attempt=attempt,
            schema=SCHEMA_VERSION,
            run=run_id(root),
            beside=logs_beside(root, self.writer),
        )

    def write(self, rows: pa.Table) -> None:
        """Writes and commits a file. rows: step, name, value, and metric, the metric of the same definition or null."""
        attempts = pa.repeat(pa.scalar(self._attempt, pa.int32()), len(rows))
        own = rows.append_column("attempt", attempts).select(scalar_schema().names).cast(scalar_schema())
        file = layout.scalar_file(self.writer, self._parts)
        data = parquet_bytes(own, {"ratioscope.writer": self.writer, "ratioscope.schema": str(SCHEMA_VERSION)})
        write_whole(self._root, file, data)
        self._parts += 1
        steps = sorted(step for step in pc.unique(own["step"]).to_pylist() if step is not None)
        self._log.say({**commit_entry(file, data), "rows": len(own), "steps": steps, "schema": SCHEMA_VERSION})

    def close(self) -> None:
        """Says that the attempt is complete. Its rows are numbers of steps, so it wrote no sequence."""
        self._say(
            layout.CLOSE, offered=0, written=0, left_out=0, dropped=0, beside=logs_beside(self._root, self.writer)
        )

    def _say(self, kind: str, **members: Any) -> None:
        self._log.say({"kind": kind, **members, "time": time.time()})
