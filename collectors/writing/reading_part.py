"""A file of a reading, or of top-k: rows of one name, attempt and step, as bytes with the line that commits them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope import layout
from ratioscope.kept_settings import kept
from ratioscope.record import SCHEMA_VERSION
from ratioscope.topk import COUNTS, TOPK

from ..batch.token_columns import token_counts
from .durable_file import FileBytes, is_taken
from .parquet_file import commit_entry, parquet_bytes


@dataclass(frozen=True)
class ReadingPart:
    """The rows of a reading that one file holds."""

    name: str
    """The name of the reading; TOPK for top-k."""
    attempt: int
    step: int
    made_of: Mapping[str, Any]
    """The model, versions and settings that made it. Secrets are removed."""


@dataclass(frozen=True)
class WrittenPart:
    """A file that is ready to be written."""

    file: Path
    """Its path, relative to the run."""
    data: FileBytes
    """The file's content."""
    entry: dict[str, Any]
    """The line that commits it."""

    @property
    def folders(self) -> tuple[PurePath, ...]:
        """The folders that must exist, the outermost first."""
        return tuple(reversed(self.file.parents[:-1]))


def written_part(root: Path, writer: str, part: ReadingPart, rows: pa.Table) -> WrittenPart:
    """The file of these rows, under a name that is not taken."""
    number, is_topk = 0, part.name == TOPK
    while is_taken(root, file := _path(part, writer, number)):
        number += 1
    facts = {
        "kind": layout.TOPK if is_topk else layout.READING,
        **({} if is_topk else {"reading": part.name}),
        "attempt": part.attempt,
        "step": part.step,
        "rows": len(rows),
        "tokens": int(np.sum(token_counts(rows[COUNTS if is_topk else "logprobs"]))),
        "schema": SCHEMA_VERSION,
        **({} if is_topk else {"made_of": dict(kept(part.made_of).settings)}),
    }
    copy = json.dumps({**facts, "file": file.as_posix()})
    data = parquet_bytes(rows, {"ratioscope.writer": writer, layout.COMMIT_COPY: copy})
    return WrittenPart(file, data, {**commit_entry(file, data), **facts})


def _path(part: ReadingPart, writer: str, number: int) -> Path:
    if part.name == TOPK:
        return layout.topk_file(part.step, writer, number)
    return layout.reading_file(part.name, part.step, writer, number)
