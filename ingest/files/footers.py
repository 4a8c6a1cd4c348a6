"""Footers of Parquet files: bounds on what they claim, and the columns that they describe."""

import pyarrow.parquet as pq

from ratioscope.errors import SourceError

MOST_ROWS = 1 << 22
MOST_COLUMNS = 4096
MOST_GROUPS = 1 << 12
MOST_VALUES = 1 << 28
"""Values in one column of one file at most: a gigabyte of log-probs. A file of 87 KB can claim a billion rows by run lengths."""


def demand_reasonable(metadata: pq.FileMetaData) -> None:
    """SourceError for a footer that claims more rows, columns or values than any step of a training run has."""
    if metadata.num_rows > MOST_ROWS:
        raise SourceError(f"it claims {metadata.num_rows} rows; at most {MOST_ROWS} are read from one file")
    if metadata.num_columns > MOST_COLUMNS:
        raise SourceError(f"it claims {metadata.num_columns} columns; at most {MOST_COLUMNS} are read from one file")
    if metadata.num_row_groups > MOST_GROUPS:
        raise SourceError(
            f"it claims {metadata.num_row_groups} row groups; at most {MOST_GROUPS} are read from one file"
        )
    columns = range(metadata.num_columns)
    totals, spare = [0] * len(columns), [0] * len(columns)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        rows = group.num_rows
        for column in columns:
            values = group.column(column).num_values
            totals[column] += values
            spare[column] = min(spare[column], values - rows)
    for column, (values, fewest) in enumerate(zip(totals, spare, strict=True)):
        if values > MOST_VALUES:
            raise SourceError(f"it claims {values} values in one column; at most {MOST_VALUES} are read from one file")
        if fewest < 0:  # a row without a value counts as one, in a list too: polars panics where rows have none
            path = metadata.schema.column(column).path
            raise SourceError(f"its column {path!r} has {-fewest} values fewer than its rows")


def recorded_columns(metadata: pq.FileMetaData) -> frozenset[str]:
    """Columns with a value in any row, by the footer. A column without null counts is taken to have values."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    chunks = (group.column(index) for group in groups for index in range(metadata.num_columns))
    filled = (c for c in chunks if c.statistics is None or (c.statistics.null_count or 0) < c.num_values)
    return frozenset(chunk.path_in_schema.split(".")[0] for chunk in filled)
