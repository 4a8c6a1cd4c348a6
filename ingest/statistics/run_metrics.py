"""Metrics of a run by step and slice. Each frame is computed once and grows with the run.

Metrics by step and slice. The frames of all written slices are read together: whoever asks for one asks for others next.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import polars as pl

from ratioscope.metrics.distribution import Level, histogram_columns
from ratioscope.metrics.engines.slices import WRITTEN
from ratioscope.metrics.frame import metric_frame, statistics_read, unavailable
from ratioscope.metrics.merging import KEYS
from ratioscope.record import GAPS

from ..commits.catalog import Catalog
from ..commits.visible_files import VisibleFiles, next_visible_files, visible_files
from ..files.progress import OnProgress
from ..rows.readings import Pair
from ..rows.slices import OnDemand, slice_named
from .growing_table import ByStep, Ingredients, StepTable, in_order_of_gaps
from .kept_tables import KeptTable, KeptTables
from .logged_scalars import LoggedScalars, why_absent
from .merged_statistics import MergedStatistics
from .metric_columns import ChosenSteps, beside, column_order, distribution_frame, of_names, slice_of, within
from .row_plan import gaps_on_record
from .row_statistics import FromRows, RowStatistics, RowWork
from .run_statistics import HISTOGRAMS, SCALARS, RunStatistics

MOST_BYTES = 256 << 20
"""Bytes of statistics tables kept in memory. Metric frames do not need them: they read segments themselves."""
WORTH_KEEPING = 64
"""New steps after which the copies of a growing run's frames are written again."""

SLICES = WRITTEN[1:]
STEPS_AT_ONCE = 4096
"""Steps that are read at a time, so that memory does not grow with the run: 25 MB of statistics for two metrics."""


@dataclass
class SlicesByStep:
    """Reads a few metrics of all written slices, and keeps the frames that were not asked for until they are."""

    written: RunStatistics
    _made_of: tuple[VisibleFiles, tuple[str, ...], frozenset[int]] | None = None
    """Visible files, metrics and steps of the frames that wait."""
    _waiting: dict[str, pl.DataFrame] = field(default_factory=dict)
    """Slice -> its frame."""

    def frame(self, visible: VisibleFiles, slice_name: str, names: Sequence[str], steps: set[int]) -> pl.DataFrame:
        """The metrics by step and this slice at these steps."""
        made_of = visible, tuple(names), frozenset(steps)
        if slice_name not in self._waiting or self._made_of != made_of:
            self._waiting, self._made_of = self._read(visible, names, steps), made_of
        return self._waiting.pop(slice_name)

    def _read(self, visible: VisibleFiles, names: Sequence[str], steps: set[int]) -> dict[str, pl.DataFrame]:
        parts: dict[str, list[pl.DataFrame]] = {name: [] for name in SLICES}
        ordered = sorted(steps)
        for start in range(0, max(1, len(ordered)), STEPS_AT_ONCE):
            few = set(ordered[start : start + STEPS_AT_ONCE])
            statistics = self.written.of(visible, SLICES, statistics_read(names), few)
            for name, own in parts.items():
                own.append(metric_frame(statistics, ("step", name), names))
        return {name: _joined(own) for name, own in parts.items()}


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
    merged: MergedStatistics
    """Statistics over all steps."""
    logged: LoggedScalars
    """Numbers that a trainer logged."""
    _visible: tuple[int, VisibleFiles] | None = None
    """(version of the catalog, its visible files)."""
    _gaps: tuple[VisibleFiles, frozenset[str]] | None = None
    _step_tables: dict[str, StepTable] = field(default_factory=dict)
    """Frames of metrics by step."""
    _whole_frames: dict[str, tuple[Ingredients, pl.DataFrame]] = field(default_factory=dict)
    """Frames of metrics over all steps."""
    _statistics: dict[tuple[str, ...], ByStep] = field(default_factory=dict)
    """(slice, columns) -> statistics by step, bounded by MOST_BYTES."""
    _histograms: dict[Level, StepTable] = field(default_factory=dict)
    """Histograms by step."""
    _slices: SlicesByStep = field(init=False)
    """Reads a few metrics of written slices by step."""
    _on_demand: dict[tuple[str, bool], tuple[int, FromRows]] = field(default_factory=dict)
    """(slice on demand, whether by step) -> (version of the catalog, its statistics)."""

    def __post_init__(self) -> None:
        self._slices = SlicesByStep(self.written)

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
            with_rows = {step for step, files in visible.token_files.items() if any(file.rows for file in files)}
            if not recorded.issuperset(GAPS) and set(visible.steps) - with_rows:
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
        steps: ChosenSteps | None = None,
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
        steps: ChosenSteps | None = None,
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
            return of_names(self._by_step(by, None), by, names)
        visible, what = self.visible, _what(by, names)

        def fresh(steps: set[int]) -> pl.DataFrame:
            if names is not None and tuple(by) == ("step", slice_of(by)) and slice_of(by) in SLICES:
                return self._slices.frame(visible, slice_of(by), names, steps)
            if slice_of(by) == "all":
                statistics = self.written.by_step(visible, _columns(names), steps)
            else:
                statistics = self.written.of(visible, (slice_of(by),), _columns(names), steps)
            if tuple(by) == ("step",) and names is None and statistics.estimated_size() <= MOST_BYTES:
                self.merged.offer(visible, steps, statistics)
            return metric_frame(statistics, by, names)

        if what not in self._step_tables:
            self._step_tables[what] = StepTable(KeptTable(self.kept, what, WORTH_KEEPING), column_order(by))
        return self._step_tables[what].frame(self.written.ingredients(visible), fresh, self._names)

    def _names(self) -> dict[Hashable, str]:
        return self.written.lasting_names(self.visible)

    def _whole(self, by: Sequence[str], names: Sequence[str] | None, progress: OnProgress | None) -> pl.DataFrame:
        """Metrics over all steps. It calls `progress` before each block of steps that has to be merged."""
        what, ingredients = _what(by, names), self.written.ingredients(self.visible)
        cached = self._whole_frames.get(what)
        if cached is None or cached[0] is not ingredients:
            if names is not None and _what(by, None) in self._whole_frames:
                return of_names(self._whole(by, None, progress), by, names)
            statistics = self.merged.over_steps(self.visible, slice_of(by), _columns(names), progress)
            cached = self._whole_frames[what] = (ingredients, metric_frame(statistics, by, names))
        return cached[1]

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
        return unavailable(self.merged.over_steps(self.visible, "all", SCALARS))

    def pair_statistics(
        self,
        pair: Pair,
        slice_name: str,
        *,
        by_step: bool = True,
        progress: OnProgress | None = None,
        steps: ChosenSteps | None = None,
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
        steps: ChosenSteps | None = None,
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


def _columns(names: Sequence[str] | None) -> tuple[str, ...]:
    return SCALARS if names is None else statistics_read(names)


def _what(by: Sequence[str], names: Sequence[str] | None) -> str:
    return f"metrics by {' '.join(by)} of {'all' if names is None else ' '.join(sorted(names))}"


def _joined(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The rows of consecutive steps as one frame. A gap may turn up late in a run."""
    if len(parts) == 1:
        return parts[0]
    frame = pl.concat([part for part in parts if len(part)] or parts[:1], how="diagonal_relaxed")
    return frame.select(in_order_of_gaps(frame.columns))
