"""What was found of a file's columns, once for equal schemas: the files of one writer are all alike, and a run has many."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

_MOST = 8
"""Schemas of one run: its writers may be of several versions."""
Found = TypeVar("Found")


@dataclass
class KnownSchemas(Generic[Found]):
    """Asks `look` once for each schema; what it raises is raised, and asked again."""

    look: Callable[[pa.Schema], Found]
    _known: list[tuple[bytes, pq.ParquetSchema, Found]] = field(default_factory=list)

    def of(self, metadata: pq.FileMetaData) -> Found:
        """What `look` says of the file's Arrow schema."""
        arrow = (metadata.metadata or {}).get(b"ARROW:schema", b"")
        for known, schema, found in list(self._known):  # other threads may add to it
            if arrow == known and metadata.schema.equals(schema):
                return found
        fresh = self.look(metadata.schema.to_arrow_schema())
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known.append((arrow, metadata.schema, fresh))
        return fresh
