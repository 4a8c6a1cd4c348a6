"""Statistics computed from token rows by the same engine that wrote the others: of steps whose two sides were recorded by
different processes, of segments that were lost, and of slices that are made on demand. Kept in the cache by digest.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from ratioscope.layout import SEGMENT_STEPS
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.numpy_engine import schema, statistics
from ratioscope.metrics.merging import KEYS, merge

from ..commits.entries import TokenFile
from ..files.cache import Cache, cache_key
from ..files.progress import OnProgress
from ..rows.record_rows import RecordRows
from ..rows.slices import OnDemand

_READ = (
    "mask", "rollout_logprobs", "old_logprobs", "current_logprobs", "entropy", "replica", "rollout_version_min",
    "rollout_version_max", "rollout_versions", "trainer_version", "turn", "inclusion_probability",
)  # fmt: skip
"""Columns that the engine reads."""
_THREADS = 4
_SAMPLED = b"ratioscope.sampled"

Steps = Mapping[int, Sequence[TokenFile]]


@dataclass(frozen=True)
class FromRows:
    """Statistics in the engine's schema. exact: no row that was kept by a budget's chance is among them."""

    frame: pl.DataFrame
    exact: bool


@dataclass
class RowStatistics:
    """Computes, and remembers what it computed of the newest steps, so that a growing run is not read again."""

    rows: RecordRows
    cache: Cache
    _recent: dict[str, pa.Table] = field(default_factory=dict)
    _partial: dict[str, str] = field(default_factory=dict)

    def of(
        self, steps: Steps, made: OnDemand | None, *, by_step: bool = True, progress: OnProgress | None = None
    ) -> FromRows:
        """Statistics of these steps for the written slices (made: None) or for one made on demand.

        by_step False merges the steps, for slices with so many keys that a row per step and key is too much; the result
        then has null steps.
        """
        ordered = sorted(steps)
        blocks = [ordered[start : start + SEGMENT_STEPS] for start in range(0, len(ordered), SEGMENT_STEPS)]
        kind = f"{made.name if made else 'written'}{'' if by_step else ' merged'}"
        tables = []
        for done, block in enumerate(blocks):
            tables.append(self._block({step: steps[step] for step in block}, made, kind, by_step))
            if progress is not None:
                progress(min((done + 1) * SEGMENT_STEPS, len(ordered)), len(ordered))
        exact = not any(_is_sampled(table) for table in tables)
        frames = [_frame(table) for table in tables]
        whole = pl.concat(frames) if frames else _frame(schema().empty_table())
        return FromRows(whole if by_step else _merged(whole), exact)

    def _block(self, steps: Steps, made: OnDemand | None, kind: str, by_step: bool) -> pa.Table:
        names = {step: cache_key((kind, *(self._name(file) for file in files))) for step, files in steps.items()}
        key = cache_key(names.values())
        kept = self.cache.load(key)
        if kept is not None and kept.schema.names == schema().names:
            return kept
        table = self._computed(steps, names, made, by_step)
        self.cache.store(key, table)
        self._forget_partial(kind, key, full=len(steps) == SEGMENT_STEPS)
        return table

    def _computed(self, steps: Steps, names: Mapping[int, str], made: OnDemand | None, by_step: bool) -> pa.Table:
        def one(step: int) -> pa.Table:
            known = self._recent.get(names[step])
            return known if known is not None else self._step(steps[step], made)

        with ThreadPoolExecutor(_THREADS) as pool:
            parts = (part for few in _batches(list(steps)) for part in pool.map(one, few))
            tables = list(parts if by_step else _folded(parts))
        if by_step:
            self._recent.update(zip(names.values(), tables, strict=True))
            for name in list(self._recent)[: -2 * SEGMENT_STEPS]:
                del self._recent[name]
        sampled = any(_is_sampled(table) for table in tables)
        return _marked(pa.concat_tables(table.replace_schema_metadata() for table in tables), sampled)

    def _step(self, files: Sequence[TokenFile], made: OnDemand | None) -> pa.Table:
        records = joined(self.rows.table(files, (*_READ, *(made.columns if made else ()))))
        sampled = bool(pc.any(pc.less(records["inclusion_probability"], 1.0)).as_py())
        if made is None:
            return _marked(statistics(records), sampled)
        if any(records[name].null_count == len(records) for name in made.columns):
            return _marked(schema().empty_table(), sampled)
        return _marked(statistics(records, slices={made.name: made.labels(records)}, written=False), sampled)

    def _name(self, file: TokenFile) -> str:
        return file.sha256 or f"{file.path} {self.rows.files.signature(file.path)}"

    def _forget_partial(self, kind: str, key: str, *, full: bool) -> None:
        """A block that grows leaves one table in the cache, not one per step."""
        before = self._partial.pop(kind, None)
        if before is not None and before != key:
            self.cache.forget(before)
        if not full:
            self._partial[kind] = key


def _batches(steps: Sequence[int]) -> Iterator[Sequence[int]]:
    """As many steps as there are threads, so that no more are held at a time."""
    return (steps[start : start + _THREADS] for start in range(0, len(steps), _THREADS))


def _folded(parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The parts merged over steps as they come; whenever as much is waiting as has been merged."""
    total, waiting, sampled = _frame(schema().empty_table()), [], False
    for part in parts:
        sampled |= _is_sampled(part)
        waiting.append(_frame(part))
        if sum(map(len, waiting)) > len(total):
            total, waiting = _merged(pl.concat([total, *waiting])), []
    total = _merged(pl.concat([total, *waiting]))
    yield _marked(total.to_arrow().cast(schema()), sampled)


def _merged(frame: pl.DataFrame) -> pl.DataFrame:
    """Merged over attempts and steps, in the same columns."""
    over = merge(frame, tuple(key for key in KEYS if key not in ("attempt", "step")))
    absent = [name for name in frame.columns if name not in over.columns]
    return over.with_columns(pl.lit(None, frame.schema[name]).alias(name) for name in absent).select(frame.columns)


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table.replace_schema_metadata())
    assert isinstance(frame, pl.DataFrame)
    return frame


def _marked(table: pa.Table, sampled: bool) -> pa.Table:
    return table.replace_schema_metadata({_SAMPLED: b"1"} if sampled else None)


def _is_sampled(table: pa.Table) -> bool:
    return _SAMPLED in (table.schema.metadata or {})
