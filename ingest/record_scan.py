"""Records and tokens as LazyFrames, over files whose digests were checked first: polars itself checks nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from ratioscope.metrics.join import joined
from ratioscope.record import arrow_schema, polars_schema

from .commits import TokenFile
from .record_rows import RecordRows
from .token_frame import columns_read, token_frame, token_schema

_THREADS = 4


def record_scan(root: Path, rows: RecordRows, files: Iterable[TokenFile]) -> pl.LazyFrame:
    """The rows of the files in the Record schema: columns that a file lacks are null, those that no Record has are left out."""
    with ThreadPoolExecutor(_THREADS) as pool:
        schemas = pool.map(lambda file: (file, rows.sound(file)), files)
        found = [(file, schema) for file, schema in schemas if schema is not None]
    alike = [root / file.path for file, schema in found if _is_record(schema)]
    parts = [pl.scan_parquet(alike, glob=False, hive_partitioning=False)] if alike else []
    parts += [_widened(root / file.path, schema) for file, schema in found if not _is_record(schema)]
    return pl.concat(parts) if parts else pl.LazyFrame(schema=polars_schema())


def token_scan(rows: RecordRows, steps: Mapping[int, Sequence[TokenFile]]) -> pl.LazyFrame:
    """One row per token, see token_frame: a step is read when its turn comes, with no more columns than are asked for."""

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, most: int | None, _batch: int | None
    ) -> Iterator[pl.DataFrame]:
        asked = token_schema().names() if columns is None else columns
        needed = [*asked, *(predicate.meta.root_names() if predicate is not None else ())]
        for files in steps.values():
            frame = token_frame(joined(rows.table(files, columns_read(needed))), needed)
            if most is not None:
                frame, most = frame.head(most), max(0, most - len(frame))
            yield (frame if predicate is None else frame.filter(predicate)).select(asked)
            if most == 0:
                return

    return register_io_source(source, schema=token_schema())


def _is_record(found: pa.Schema) -> bool:
    wanted = arrow_schema()
    return found.names == wanted.names and found.types == wanted.types


def _widened(path: Path, found: pa.Schema) -> pl.LazyFrame:
    own = pl.scan_parquet(path, glob=False, hive_partitioning=False)
    return own.select(
        pl.col(name).cast(kind) if name in found.names else pl.lit(None, kind).alias(name)
        for name, kind in polars_schema().items()
    )
