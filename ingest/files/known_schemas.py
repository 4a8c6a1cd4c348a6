"""Remembers the result of a check per schema: a run has many files, and those of one writer have equal schemas."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow.parquet as pq

_MOST = 8
"""Schemas remembered at most. The writers of a run may have several versions."""
Result = TypeVar("Result")


@dataclass
class KnownSchemas(Generic[Result]):
    """Calls `check` once for each Parquet schema. An error that it raises is not remembered."""

    check: Callable[[pq.ParquetSchema], Result]
    _results: list[tuple[bytes, pq.ParquetSchema, Result]] = field(default_factory=list)
    """(serialised Arrow schema, Parquet schema, what `check` returned)."""

    def of(self, metadata: pq.FileMetaData) -> Result:
        """The result of `check` for the file's schema."""
        serialised = (metadata.metadata or {}).get(b"ARROW:schema", b"")
        for other, schema, result in list(self._results):  # a copy: other threads may append
            if serialised == other and metadata.schema.equals(schema):
                return result
        result = self.check(metadata.schema)
        if len(self._results) >= _MOST:
            self._results.clear()
        self._results.append((serialised, metadata.schema, result))
        return result
