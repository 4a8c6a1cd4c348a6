"""Statistics computed from token rows, by the engine that also computes them in a trainer. They are cached by digests of files.

They are needed for steps whose two sides were recorded by different processes, for lost segments, and for slices made on demand.
The cache holds a table per block of steps. `ratioscope index` also keeps one for each step of a block that is not full.
The statistics that a run lacks and that are computed from its token rows: the work of `ratioscope index`.
Tables of statistics in the engine's schema: merged over steps, and marked where a budget kept rows by chance.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType

import polars as pl
import pyarrow as pa

from ratioscope.layout import SEGMENT_STEPS
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.choice_of_loops import loops_for
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.loops import Loops
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.engines.statistics_table import schema
from ratioscope.metrics.merging import KEYS, merge
from ratioscope.metrics.pieces import portions
from ratioscope.record import GAPS

from ..commits.entries import TokenFile
from ..files.cache import Cache, cache_key
from ..files.progress import OnProgress
from ..files.quarantine import CountedSetAside
from ..rows.readings import Pair
from ..rows.record_rows import RecordRows
from ..rows.slices import OnDemand

_READ = (
    "mask", "rollout_logprobs", "old_logprobs", "current_logprobs", "entropy", "advantages", "replica", "rollout_version_min",
    "rollout_version_max", "rollout_versions", "trainer_version", "turn", "inclusion_probability",
)  # fmt: skip
"""Columns of the Record that the engine reads."""
_THREADS = 4

FilesByStep = Mapping[int, Sequence[TokenFile]]

_SAMPLED = b"ratioscope.sampled"


@dataclass(frozen=True)
class FromRows:
    """Statistics that were computed from rows."""

    frame: pl.DataFrame
    """In the engine's schema."""
    exact: bool
    """False where a budget kept rows by chance, so that values are estimates."""


@dataclass(frozen=True)
class CachedSteps:
    """Consecutive steps whose statistics are one table of the cache."""

    steps: FilesByStep
    names: Mapping[int, str]
    """step -> cache key of its own table."""
    key: str
    """Cache key of the table of all steps."""
    is_full: bool
    """False for the last block of a run that may still grow."""
    work: int = 0
    """Tokens of all blocks that belong to the same work; they decide on the engine's loops."""


@dataclass
class RowStatistics:
    """Computes statistics by blocks of SEGMENT_STEPS steps, and caches each block."""

    rows: RecordRows
    cache: Cache
    aside: CountedSetAside
    """Counts the files that its readers set aside."""
    _recent: dict[str, pa.Table] = field(default_factory=dict)
    """Name of a step -> its table, for the newest steps: a block that grows by a step is not read again."""
    _partial: dict[tuple[str, int], str] = field(default_factory=dict)
    """(kind of statistics, first step) -> cache key of a block, while that block is not full."""

    def of(
        self,
        steps: FilesByStep,
        made: OnDemand | None,
        *,
        by_step: bool = True,
        progress: OnProgress | None = None,
        pair: Pair | None = None,
    ) -> FromRows:
        """Statistics of these steps: for the written slices (made: None), or for a slice made on demand.

        pair: of this gap alone, between two policies or readings; else of those of GAPS.

        by_step False merges the steps, and `step` is null in the result. Slices such as token_id have too many keys for a row
        per step and key.
        """
        tables = []
        done = 0
        for block in self.blocks(steps, made, by_step=by_step, pair=pair):
            tables.append(self.block(block, made, by_step=by_step, pair=pair))
            done += len(block.steps)
            if progress is not None:
                progress(done, len(steps))
        exact = not any(is_sampled(table) for table in tables)
        frames = [frame_of(table) for table in tables]
        whole = pl.concat(frames) if frames else frame_of(schema().empty_table())
        return FromRows(whole if by_step else merged(whole), exact)

    def blocks(
        self, steps: FilesByStep, made: OnDemand | None, *, by_step: bool = True, pair: Pair | None = None
    ) -> list[CachedSteps]:
        """The steps in blocks, ascending. The names change with every digest of a file."""
        ordered = sorted(steps)
        work = sum(file.tokens for files in steps.values() for file in files)
        return [
            self._named({step: steps[step] for step in part}, made, by_step, pair, work)
            for part in portions(ordered, SEGMENT_STEPS)
        ]

    def _named(
        self, steps: FilesByStep, made: OnDemand | None, by_step: bool, pair: Pair | None, work: int
    ) -> CachedSteps:
        of_pair = {step: pair.digests(step) if pair else () for step in steps}
        what = _what(made, pair)
        names = {step: cache_key((what, *map(self._name, files), *of_pair[step])) for step, files in steps.items()}
        key = cache_key(("steps" if by_step else "merged", *names.values()))
        return CachedSteps(steps, names, key, len(steps) == SEGMENT_STEPS, work)

    def kept(self, key: str) -> pa.Table | None:
        """The table of a block or step in the cache; None where there is none that can be read."""
        table = self.cache.load(key)
        if table is None or table.schema.names != schema().names:
            return None
        return marked(table.cast(schema()), is_sampled(table))

    def block(
        self,
        block: CachedSteps,
        made: OnDemand | None,
        *,
        by_step: bool = True,
        pair: Pair | None = None,
        given: Mapping[str, pa.Table] = MappingProxyType({}),
    ) -> pa.Table:
        """The table of a block, from the cache or from its steps. given: name of a step -> its table, where it is known.

        It is not kept where a file was set aside meanwhile: the file may come back, with the digest that the name is made of.
        """
        cached = self.kept(block.key)
        if cached is not None:
            return cached
        before = self.aside.times
        table = self._computed(block, made, by_step, pair, given)
        if self.aside.times == before:
            self.cache.store(block.key, table)
            self._forget_parts((f"{_what(made, pair)}{'' if by_step else ' merged'}", min(block.steps)), block)
        return table

    def _computed(
        self, block: CachedSteps, made: OnDemand | None, by_step: bool, pair: Pair | None, given: Mapping[str, pa.Table]
    ) -> pa.Table:
        before, known = self.aside.times, {**self._recent, **given}

        def one(step: int) -> pa.Table:
            cached = known.get(block.names[step])
            cached = self.kept(block.names[step]) if cached is None else cached
            return (
                cached
                if cached is not None
                else self.step(step, block.steps[step], made, pair, loops=loops_for(block.work))
            )

        with ThreadPoolExecutor(_THREADS) as pool:  # as many steps at a time as threads, so that memory holds no more
            parts = (part for few in portions(list(block.steps), _THREADS) for part in pool.map(one, few))
            tables = list(parts if by_step else folded(parts))
        if by_step and self.aside.times == before:
            self._recent.update(zip(block.names.values(), tables, strict=True))
            for name in list(self._recent)[: -2 * SEGMENT_STEPS]:
                del self._recent[name]
        sampled = any(is_sampled(table) for table in tables)
        return marked(pa.concat_tables(table.replace_schema_metadata() for table in tables), sampled)

    def step(
        self, step: int, files: Sequence[TokenFile], made: OnDemand | None, pair: Pair | None = None, *, loops: Loops
    ) -> pa.Table:
        """The table of one step, computed from its rows by these loops."""
        of_pair = pair.columns if pair else ()
        records = joined(self.rows.table(files, (*_READ, *of_pair, *(made.columns if made else ()))))
        records = pair.beside(records, step) if pair else records
        gaps = (pair.gap,) if pair else tuple(GAPS)
        sampled = bool(pc.any(pc.less(records["inclusion_probability"], 1.0)).as_py())
        if made is None:
            return marked(statistics(records, gaps=gaps, loops=loops), sampled)
        if any(records[name].null_count == len(records) for name in made.columns):
            return marked(schema().empty_table(), sampled)
        slices = {made.name: made.labels(records)}
        return marked(statistics(records, slices=slices, written=False, gaps=gaps, loops=loops), sampled)

    def _name(self, file: TokenFile) -> str:
        return file.sha256 or f"{file.path} {self.rows.files.signature(file.path)}"

    def _forget_parts(self, place: tuple[str, int], block: CachedSteps) -> None:
        """Removes the tables that the block was made of, so that the cache holds one table per block and not one per step.

        The tables of single steps stay until the block is full: `index` computes only new steps of a run that grows.
        """
        before = self._partial.pop(place, None)
        if before is not None and before != block.key:
            self.cache.forget(before)
        if not block.is_full:
            self._partial[place] = block.key
        elif self.cache.holds(block.key):
            for name in block.names.values():
                self.cache.forget(name)


def _what(made: OnDemand | None, pair: Pair | None) -> str:
    return f"{made.name if made else 'written'}{f' of {pair.gap}' if pair else ''}"


@dataclass(frozen=True)
class RowWork:
    """Statistics of one slice on demand, or of all written slices."""

    rows: RowStatistics
    made: OnDemand | None
    """The slice on demand; None: the written slices."""
    steps: tuple[FilesByStep, ...]
    """step -> the files to compute it from, for each kind of job. A step may be in two of them."""

    @property
    def by_step(self) -> bool:
        """False for a slice on demand: over the steps of a block its many keys are merged."""
        return self.made is None

    def blocks(self) -> list[CachedSteps]:
        """All of it, in blocks of steps."""
        return [block for steps in self.steps for block in self.rows.blocks(steps, self.made, by_step=self.by_step)]

    def assemble(self, block: CachedSteps, given: Mapping[str, pa.Table]) -> None:
        """Makes the block's table of the tables of its steps, and keeps it. given: name of a step -> its table."""
        self.rows.block(block, self.made, by_step=self.by_step, given=given)


def folded(parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """One table: the parts merged over steps. Merges whenever the waiting parts have as many rows as the merged ones."""
    total, waiting, sampled = frame_of(schema().empty_table()), [], False
    for part in parts:
        sampled |= is_sampled(part)
        waiting.append(frame_of(part))
        if sum(map(len, waiting)) > len(total):
            total, waiting = merged(pl.concat([total, *waiting])), []
    total = merged(pl.concat([total, *waiting]))
    yield marked(total.to_arrow().cast(schema()), sampled)


def merged(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows merged over attempts and steps, with the same columns."""
    over = merge(frame, tuple(key for key in KEYS if key not in ("attempt", "step")))
    absent = [name for name in frame.columns if name not in over.columns]
    return over.with_columns(pl.lit(None, frame.schema[name]).alias(name) for name in absent).select(frame.columns)


def frame_of(table: pa.Table) -> pl.DataFrame:
    """The table for polars, without its mark."""
    return pl.DataFrame(table.replace_schema_metadata())


def marked(table: pa.Table, sampled: bool) -> pa.Table:
    """The table, with a mark if a budget kept some of its rows by chance."""
    return table.replace_schema_metadata({_SAMPLED: b"1"} if sampled else None)


def is_sampled(table: pa.Table) -> bool:
    """True if the table has that mark."""
    return _SAMPLED in (table.schema.metadata or {})
