"""Reads token rows of committed files as one table in the Record schema. A file that is not as committed is set aside."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.errors import SourceError
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.record import FIELDS, MOST_POSITIONS, arrow_schema

from ..commits.entries import TokenFile
from ..files.columns import conformed, demand_columns
from ..files.footers import KnownSchemas, recorded_columns
from ..files.parquet_files import Opened, ParquetFiles, read
from ..files.quarantine import SetAside, faults_set_aside

KEYS = ("attempt", "step", "minibatch", "sequence_id", "positions")


_KEPT = 1 << 14
"""Files whose footers need no second reading, for a committed file does not change: the verdict asks for 96 steps of 64 ranks."""


class RecordRows:
    """Reads token files. `extra` collects names of columns that no Record has."""

    def __init__(self, files: ParquetFiles, set_aside: SetAside) -> None:
        self.files = files
        self._set_aside = set_aside
        self.extra: set[str] = set()
        self._known_columns = lru_cache(_KEPT)(self._columns_of)

    def table(self, token_files: Iterable[TokenFile], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of the files, one file after the other, with KEYS and these columns (None: all columns)."""
        schema, token_files = arrow_schema() if columns is None else _part_of_schema(columns), tuple(token_files)
        self.files.bring_all((file.path, committed_size(file)) for file in token_files)
        tables = [table for file in token_files if (table := self._one(file, schema)) is not None]
        return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()

    def sound(self, file: TokenFile) -> pa.Schema | None:
        """The file's own schema, if polars may scan the file later without checks. Otherwise None, and the file is set aside.

        If no digest is known, pyarrow and polars each read every page once: only pyarrow verifies page checksums, and polars
        fails on some headers that pyarrow accepts.
        """
        with faults_set_aside(file.path, self._set_aside):
            with self.files.opened(file.path, committed_size(file), file.sha256) as parquet:
                self.extra.update(demand_token_file(parquet, file))
                parquet.demand_small(parquet.leaves, range(parquet.metadata.num_row_groups))
                if file.sha256 is None:
                    read(parquet, parquet.schema_arrow.names)
                    pl.read_parquet(self.files.place(file.path), glob=False, hive_partitioning=False)
                return parquet.metadata.schema.to_arrow_schema()
        return None

    def columns(self, files: Iterable[TokenFile]) -> Counter[str]:
        """Column of the Record -> the rows of these files that have a value in it, by their footers."""
        columns, files = Counter[str](), tuple(files)
        alone = self.files.footers((file.path, file.bytes) for file in files)
        for file in files:
            if file.path in alone:
                columns.update(recorded_columns(alone[file.path]))
                continue
            with faults_set_aside(file.path, self._set_aside):
                columns.update((self._columns_of if file.sha256 is None else self._known_columns)(file))
        return Counter({name: columns[name] for name in columns.keys() & set(FIELDS)})

    def _columns_of(self, file: TokenFile) -> dict[str, int]:
        with self.files.opened(file.path, committed_size(file), file.sha256) as parquet:
            return recorded_columns(parquet.metadata)

    def _one(self, file: TokenFile, schema: pa.Schema) -> pa.Table | None:
        with faults_set_aside(file.path, self._set_aside):
            with self.files.opened(file.path, committed_size(file), file.sha256) as parquet:
                self.extra.update(demand_token_file(parquet, file))
                table = conformed(read(parquet, schema.names), schema)
                demand_keys(table, file)
                return table
        return None


def demand_token_file(parquet: Opened, file: TokenFile) -> tuple[str, ...]:
    """Columns of the file that no Record has. SourceError unless its footer fits the commit of this token file."""
    return demand_footer(parquet.metadata, file)


def demand_footer(metadata: pq.FileMetaData, file: TokenFile) -> tuple[str, ...]:
    """Columns that no Record has, by the footer alone. SourceError unless it fits the commit of this token file."""
    extra = _known_columns(metadata)
    if metadata.num_rows != file.rows:
        raise SourceError(f"it has {metadata.num_rows} rows, its commit states {file.rows}")
    return extra


_known_columns = KnownSchemas(lambda schema: demand_columns(schema.to_arrow_schema())).of


def committed_size(file: TokenFile) -> int | None:
    """The size of the file in its commit; None where no commit names it."""
    return None if file.recovered else file.bytes


def _part_of_schema(columns: Sequence[str]) -> pa.Schema:
    chosen = {*columns, *KEYS}
    return pa.schema([field for field in arrow_schema() if field.name in chosen & set(FIELDS)])


def demand_keys(table: pa.Table, file: TokenFile) -> None:
    """SourceError unless all rows have the committed step and attempt, and a sequence_id. Others would be miscounted."""
    for name, committed in (("step", file.step), ("attempt", file.attempt)):
        column = table[name]
        if column.null_count or not pc.all(pc.equal(column, committed)).as_py() and len(column):
            values = np.unique(column.drop_null().to_numpy())[:3].tolist()
            raise SourceError(f"its rows have {name} {values}, its commit states {committed}")
    if table["sequence_id"].null_count:
        raise SourceError(f"{table['sequence_id'].null_count} of its rows have no sequence_id")
    demand_positions(table)


def demand_positions(table: pa.Table) -> None:
    """SourceError where a token stands nowhere in a response: its place is below 0, or far beyond what a response has."""
    if "positions" not in table.column_names or table["positions"].null_count == len(table):
        return
    bounds = pc.min_max(pc.list_flatten(table["positions"])).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] < MOST_POSITIONS:
        raise SourceError(
            f"its tokens have positions {bounds['min']} to {bounds['max']}; wanted 0 to {MOST_POSITIONS - 1}"
        )
