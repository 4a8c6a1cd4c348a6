"""Metrics of a run by step and slice. Each frame is computed once and grows with the run."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.layout import SEGMENT_STEPS
from ratioscope.metrics.distribution import Level, histogram_columns
from ratioscope.metrics.engines.slices import WRITTEN
from ratioscope.metrics.frame import metric_frame, statistics_read, unavailable
from ratioscope.metrics.merging import KEYS, merge
from ratioscope.record import GAPS

from ..commits.catalog import Catalog
from ..commits.visible_files import VisibleFiles, next_visible_files, visible_files
from ..files.progress import OnProgress
from ..rows.readings import Pair
from ..rows.slices import OnDemand, slice_named
from .distributions import distribution_frame
from .growing_table import BlockTable, ByStep, Ingredients, StepBlock, StepTable
from .kept_tables import KeptTable, KeptTables
from .logged_scalars import LoggedScalars, why_absent
from .row_plan import gaps_on_record
from .row_statistics import FromRows, RowStatistics
from .row_work import RowWork
from .run_statistics import HISTOGRAMS, SCALARS, RunStatistics

Steps = range | frozenset[int]
"""Some of the steps of a run."""
MOST_BYTES = 256 << 20
"""Bytes of statistics tables kept in memory. Metric frames do not need them: they read segments themselves."""
BLOCK = 4 * SEGMENT_STEPS
"""Steps merged at a time for metrics over all steps, so that a growing run merges its newest steps only."""

WORTH_KEEPING = 64
"""New steps after which the copies of a growing run's frames are written again."""
_LOGGED = " logged"
_KEYS_WITHOUT_STEP = tuple(key for key in KEYS if key != "step")


@dataclass
class RunMetrics:
    """Computes metrics and statistics of a run, and keeps them in memory while the run grows."""

    catalog: Catalog
    written: RunStatistics
    """Statistics of written slices."""
    rows: RowStatistics
    """Statistics of slices on demand."""
    kept: KeptTables
    """Copies of the tables, for the next start."""
    logged: LoggedScalars
    """Numbers that a trainer logged."""
    _visible: tuple[int, VisibleFiles] | None = None
    """(version of the catalog, its visible files)."""
    _gaps: tuple[VisibleFiles, frozenset[str]] | None = None
    _step_tables: dict[str, StepTable] = field(default_factory=dict)
    """Frames of metrics by step."""
    _block_tables: dict[str, BlockTable] = field(default_factory=dict)
    """Statistics merged over blocks of steps."""
    _whole_frames: dict[str, tuple[Ingredients, pl.DataFrame]] = field(default_factory=dict)
    """Frames of metrics over all steps."""
    _statistics: dict[tuple[str, ...], ByStep] = field(default_factory=dict)
    """(slice, columns) -> statistics by step, bounded by MOST_BYTES."""
    _histograms: dict[Level, StepTable] = field(default_factory=dict)
    """Histograms by step."""
    _read: tuple[VisibleFiles, set[int], pl.DataFrame] | None = None
    """(visible files, steps, statistics) that the newest frame by step was computed from, until they have been merged."""
    _on_demand: dict[tuple[str, bool], tuple[int, FromRows]] = field(default_factory=dict)
    """(slice on demand, whether by step) -> (version of the catalog, its statistics)."""

    @property
    def visible(self) -> VisibleFiles:
        """The visible files of the catalog's present version."""
        version = self.catalog.version
        if self._visible is None:
            self._visible = (version, visible_files(self.catalog))
        elif self._visible[0] != version:
            self._visible = (version, next_visible_files(self.catalog, *self._visible))
        return self._visible[1]

    @property
    def gaps(self) -> frozenset[str]:
        """Gaps with both sides on record at some step, in token rows or in statistics."""
        visible = self.visible
        if self._gaps is None or self._gaps[0] is not visible:
            recorded = gaps_on_record(visible.token_files)
            if not recorded.issuperset(GAPS) and set(visible.steps) - set(visible.token_files):
                recorded |= self.written.gaps(visible)
            recorded |= self.logged.gaps(visible)
            self._gaps = (visible, recorded)
        return self._gaps[1]

    @property
    def is_scalar_log(self) -> bool:
        """True if all that is on record are numbers that a trainer logged."""
        return bool(self.visible.scalars) and not self.visible.token_files and not self.visible.segments

    def statistics(self, slice_name: str) -> pl.DataFrame:
        """Merged statistics of any slice; histograms with `all`."""
        if (made := slice_named(slice_name)) is not None:
            return self._of_rows(made, True, None).frame
        return self.table(slice_name, (*SCALARS, *(HISTOGRAMS if slice_name == "all" else ()))).frame

    def row_work(self, slice_name: str) -> RowWork:
        """The statistics of a slice that are computed from token rows, whether or not they are in the cache."""
        made = slice_named(slice_name)
        steps = self.written.from_rows(self.visible) if made is None else [self.visible.token_files]
        return RowWork(self.rows, made, tuple(steps))

    def frame(
        self,
        by: Sequence[str],
        progress: OnProgress | None,
        steps: Steps | None = None,
        names: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """metric_frame of the run, see Run.metrics. steps: only these. names: only these metrics."""
        recorded = self._recorded(by, progress, steps, names)
        if not self.visible.scalars or slice_of(by) != "all":
            return recorded
        own = self.logged.frame(self.visible, by, names)
        return beside(recorded, own if steps is None or "step" not in by else within(own, steps), by)

    def _recorded(
        self,
        by: Sequence[str],
        progress: OnProgress | None,
        steps: Steps | None = None,
        names: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """The metrics that are computed from statistics."""
        name = slice_of(by)
        if (made := slice_named(name)) is not None:
            by_step = not {"step", "attempt"}.isdisjoint(by)
            if steps is None:
                return metric_frame(self._of_rows(made, by_step, progress).frame, by, names)
            files = {step: own for step, own in self.visible.token_files.items() if step in steps}
            return metric_frame(self.rows.of(files, made, by_step=by_step, progress=progress).frame, by, names)
        if steps is not None:
            chosen = {step for step in self.visible.steps if step in steps}
            if "step" in by and (_what(by, names) in self._step_tables or 2 * len(chosen) > len(self.visible.steps)):
                return within(self._recorded(by, progress, names=names), steps)
            return metric_frame(self.written.of(self.visible, (name,), _columns(names), chosen), by, names)
        return self._by_step(by, names) if "step" in by else self._whole(by, names, progress)

    def _by_step(self, by: Sequence[str], names: Sequence[str] | None) -> pl.DataFrame:
        """Metrics by step, and perhaps by one slice."""
        if names is not None and _what(by, None) in self._step_tables:
            return _of_names(self._by_step(by, None), by, names)
        visible, what = self.visible, _what(by, names)

        def fresh(steps: set[int]) -> pl.DataFrame:
            statistics = self.written.of(visible, (slice_of(by),), _columns(names), steps)
            if tuple(by) == ("step",) and names is None and statistics.estimated_size() <= MOST_BYTES:
                self._read = visible, steps, statistics
            return metric_frame(statistics, by, names)

        if what not in self._step_tables:
            self._step_tables[what] = StepTable(KeptTable(self.kept, what, WORTH_KEEPING), _order(by))
        return self._step_tables[what].frame(self.written.ingredients(visible), fresh, self._names)

    def _names(self) -> dict[Hashable, str]:
        return self.written.lasting_names(self.visible)

    def _whole(self, by: Sequence[str], names: Sequence[str] | None, progress: OnProgress | None) -> pl.DataFrame:
        """Metrics over all steps. It calls `progress` before each block of steps that has to be merged."""
        what, ingredients = _what(by, names), self.written.ingredients(self.visible)
        cached = self._whole_frames.get(what)
        if cached is None or cached[0] is not ingredients:
            if names is not None and _what(by, None) in self._whole_frames:
                return _of_names(self._whole(by, None, progress), by, names)
            statistics = self._merged(slice_of(by), _columns(names), progress)
            cached = self._whole_frames[what] = (ingredients, metric_frame(statistics, by, names))
        return cached[1]

    def _merged(self, slice_name: str, columns: Sequence[str], progress: OnProgress | None = None) -> pl.DataFrame:
        """Statistics of a slice merged over all steps, by blocks of steps.

        All written slices are merged together with the one that is asked for: a reader who looks at one looks at others next.
        """
        visible, ingredients = self.visible, self.written.ingredients(self.visible)
        blocks = _blocks(ingredients)
        slices = WRITTEN if slice_name in WRITTEN[1:] and tuple(columns) == SCALARS else (slice_name,)
        tables = {name: self._block_table(name, columns) for name in slices}
        cached = {name: table.rows(blocks, len(blocks) * BLOCK, self._names) for name, table in tables.items()}
        rows: dict[str, dict[StepBlock, pl.DataFrame]] = {name: {} for name in slices}
        for place, block in enumerate(blocks):
            missing = [name for name in slices if block not in cached[name]]
            if missing and progress is not None:
                progress(place * BLOCK, len(ingredients))
            fresh = self._merged_block(visible, missing, columns, set(block[0]))
            for name in slices:
                rows[name][block] = fresh[name] if name in fresh else cached[name][block]
        self._read = None
        for name, table in tables.items():
            table.replace(rows[name], len(ingredients), self._names)
        parts = list(rows[slice_name].values()) or [self.written.of(visible, (slice_name,), columns, set())]
        keys = [key for key in _KEYS_WITHOUT_STEP if key in parts[0].columns]
        return merge(pl.concat(parts, how="diagonal_relaxed"), keys)

    def _merged_block(
        self, visible: VisibleFiles, slices: Sequence[str], columns: Sequence[str], steps: set[int]
    ) -> dict[str, pl.DataFrame]:
        """slice -> its statistics merged over these steps. Merging all slices at once takes hardly longer than one of them."""
        if not slices:
            return {}
        merged = merge(self._of_block(visible, slices, columns, steps), _KEYS_WITHOUT_STEP)
        return {name: merged.filter(pl.col("slice") == name) for name in slices}

    def _of_block(
        self, visible: VisibleFiles, slices: Sequence[str], columns: Sequence[str], steps: set[int]
    ) -> pl.DataFrame:
        """Statistics of some slices. Those that metrics by step have just read are not read again."""
        if self._read is not None and tuple(columns) == SCALARS and "all" in slices:
            files, own, statistics = self._read
            if files is visible and steps <= own:
                others = [name for name in slices if name != "all"]
                parts = [self.written.of(visible, others, columns, steps)] if others else []
                return pl.concat([statistics.filter(pl.col("step").is_in(list(steps))), *parts])
        return self.written.of(visible, slices, columns, steps)

    def _block_table(self, slice_name: str, columns: Sequence[str]) -> BlockTable:
        what = f"merged {slice_name} {' '.join(columns)}"
        if what not in self._block_tables:
            self._block_tables[what] = BlockTable(KeptTable(self.kept, what, BLOCK))
        return self._block_tables[what]

    def exact(self, slice_name: str) -> bool:
        """True if the slice counts every recorded token: no row was kept by chance, no file was set aside."""
        if (made := slice_named(slice_name)) is None:
            return not self.written.sampled(self.visible)
        by_step = (made.name, True) in self._on_demand
        return self._of_rows(made, by_step, None).exact and not any(
            path.startswith("tokens/") for path in self.catalog.set_aside
        )

    def unavailable(self) -> dict[str, str]:
        """Metric -> why it has no value over the whole run."""
        if self.is_scalar_log:
            logged = self.logged.table(self.visible)["metric"].drop_nulls().unique().to_list()
            return why_absent(logged, tuple(GAPS))
        return unavailable(self._merged("all", SCALARS))

    def pair_statistics(
        self,
        pair: Pair,
        slice_name: str,
        *,
        by_step: bool = True,
        progress: OnProgress | None = None,
        steps: Steps | None = None,
    ) -> FromRows:
        """Statistics of a gap between two policies or readings, computed from token rows. steps: only these."""
        made, files = slice_named(slice_name), self.visible.token_files
        chosen = {step: own for step, own in files.items() if pair.has(step) and (steps is None or step in steps)}
        by_step |= made is None  # frames over all steps merge the same table: rows are read once for both
        return self.rows.of(chosen, made, by_step=by_step, progress=progress, pair=pair)

    def pair_frame(
        self,
        pair: Pair,
        by: Sequence[str],
        progress: OnProgress | None,
        steps: Steps | None = None,
        names: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """metric_frame of such a gap: its steps are those of its readings."""
        by_step = not {"step", "attempt"}.isdisjoint(by)
        found = self.pair_statistics(pair, slice_of(by), by_step=by_step, progress=progress, steps=steps)
        return metric_frame(found.frame, by, names)

    def distribution(self, level: Level, gap: str) -> pl.DataFrame:
        """The histogram of log-ratios by step, see distribution_frame."""
        return self.distributions((level,), gap)[level]

    def distributions(self, levels: Sequence[Level], gap: str) -> dict[Level, pl.DataFrame]:
        """The histograms of several levels. Segments that have to be read are opened once for all."""
        visible = self.visible

        def histogram(level: Level, beside: Sequence[Level]) -> pl.DataFrame:
            def fresh(steps: set[int]) -> pl.DataFrame:
                self.written.prefetch(
                    visible, [(("all",), histogram_columns(each)) for each in (level, *beside)], steps
                )
                return self.written.of(visible, ("all",), histogram_columns(level), steps)

            if level not in self._histograms:
                kept = KeptTable(self.kept, f"{level} histograms", WORTH_KEEPING)
                self._histograms[level] = StepTable(kept, KEYS)
            return self._histograms[level].frame(self.written.ingredients(visible), fresh, self._names)

        return {
            level: distribution_frame(histogram(level, levels[place + 1 :]), level, gap)
            for place, level in enumerate(levels)
        }

    def table(self, slice_name: str, columns: Sequence[str]) -> ByStep:
        """Statistics of a written slice by step, with these columns."""
        what = (slice_name, *columns)
        own = self.written.table(self.visible, slice_name, columns, self._statistics.pop(what, None))
        self._statistics[what] = own  # the newest last
        sizes = {name: table.frame.estimated_size() for name, table in self._statistics.items()}
        for name in list(self._statistics)[:-1]:
            if sum(sizes.values()) > MOST_BYTES:
                del self._statistics[name], sizes[name]
        return own

    def _of_rows(self, made: OnDemand, by_step: bool, progress: OnProgress | None) -> FromRows:
        cached = self._on_demand.get((made.name, by_step))
        if cached is not None and cached[0] == self.catalog.version:
            return cached[1]
        statistics = self.rows.of(self.visible.token_files, made, by_step=by_step, progress=progress)
        self._on_demand[made.name, by_step] = (self.catalog.version, statistics)
        return statistics


def columns_of_gap(frame: pl.DataFrame, gap: str) -> list[str]:
    """The columns of a frame of metrics without those of other gaps."""
    return [column for column in frame.columns if "/" not in column or column.startswith(f"{gap}/")]


def within(frame: pl.DataFrame, steps: Steps) -> pl.DataFrame:
    """Rows of these steps."""
    if not steps:
        return frame.clear()
    if not isinstance(steps, range):
        return frame.filter(pl.col("step").is_in(sorted(steps)))
    lowest, highest = min(steps[0], steps[-1]), max(steps[0], steps[-1])
    if abs(steps.step) == 1:
        return frame.filter(pl.col("step").is_between(lowest, highest))
    return frame.filter(pl.col("step").is_in(list(steps)))


def beside(recorded: pl.DataFrame, logged: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Recorded values, and logged ones where no value is recorded."""
    if not len(recorded):
        return logged
    if not by:
        return recorded.with_columns(logged.select(column for column in logged.columns if column not in recorded))
    both = recorded.join(logged, on=list(by), how="full", coalesce=True, suffix=_LOGGED)
    twice = [column for column in logged.columns if f"{column}{_LOGGED}" in both.columns]
    chosen = both.with_columns(pl.coalesce(column, f"{column}{_LOGGED}").alias(column) for column in twice)
    return chosen.drop(f"{column}{_LOGGED}" for column in twice).sort(_order(by))


def _blocks(ingredients: Ingredients) -> list[StepBlock]:
    """All steps in blocks of BLOCK steps, the rest in blocks of a segment's; each with what its rows are made of.

    A step that a growing run commits belongs to a small block: only the open segment of each rank is read for it.
    """
    ordered = sorted(ingredients)
    whole = len(ordered) // BLOCK * BLOCK
    starts = [*range(0, whole, BLOCK), *range(whole, len(ordered), SEGMENT_STEPS), len(ordered)]
    parts = [tuple(ordered[start:end]) for start, end in pairwise(starts)]
    return [(steps, tuple(dict.fromkeys(ingredients[step] for step in steps))) for steps in parts]


def slice_of(by: Sequence[str]) -> str:
    """The slice among these group columns, `all` if there is none. ConfigError if there are several."""
    slices = [name for name in by if name not in ("step", "attempt")]
    if len(slices) > 1:
        raise ConfigError(f"by={tuple(by)!r} names {len(slices)} slices; wanted at most one beside step and attempt")
    return slices[0] if slices else "all"


def _order(by: Sequence[str]) -> list[str]:
    return [*(name for name in by if name in KEYS), *(name for name in by if name not in KEYS)]


def _columns(names: Sequence[str] | None) -> tuple[str, ...]:
    return SCALARS if names is None else statistics_read(names)


def _of_names(frame: pl.DataFrame, by: Sequence[str], names: Sequence[str]) -> pl.DataFrame:
    """The columns of these metrics in a frame of all."""
    wanted = {*names, *(f"{name}_se" for name in names)}
    return frame.select(name for name in frame.columns if name in by or name.partition("/")[2] in wanted)


def _what(by: Sequence[str], names: Sequence[str] | None) -> str:
    return f"metrics by {' '.join(by)} of {'all' if names is None else ' '.join(sorted(names))}"
