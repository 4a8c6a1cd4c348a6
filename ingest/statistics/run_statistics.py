"""The statistics of a run, merged over writers: read from segments where possible, else computed from token rows.

Rows are needed where different processes recorded the two sides of a gap, and where a segment is missing or set aside. `notes`
tells the reader.
The plan of a run's statistics: what each step is made of, and what to compute from its rows. It grows with the run.

A reader that follows a run plans only those steps again of which a file has changed: its cost does not grow with the history.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from ratioscope.layout import SEGMENT_STEPS
from ratioscope.metrics.distribution import LEVELS, histogram_columns
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.statistics_table import in_place, schema
from ratioscope.metrics.merging import KEYS, LONE, merge
from ratioscope.record import GAPS

from ..commits.attempts import Cutoff, Cutoffs
from ..commits.entries import Segment
from ..commits.visible_files import VisibleFiles
from .growing_table import ByStep, Ingredients, grown
from .kept_tables import name_of
from .row_plan import RowJob, RowPlan, row_plan
from .row_statistics import FilesByStep, FromRows, RowStatistics
from .segment_tables import SegmentCoverage, SegmentTables, gaps_by_writer, holding
from .statistics_files import SliceColumns, wanted

HISTOGRAMS = tuple(name for level in LEVELS for name in histogram_columns(level))
SCALARS = tuple(name for name in schema().names if name not in {*KEYS, *HISTOGRAMS})
"""Statistics that metrics are read from, including the tails of weights, without the histograms."""

MOST_ROWS = 4096
"""Rows that are merged at a time; a merge takes some 15 KB of memory for each of them."""

FEW_WRITERS = 8
"""Writers of a step up to which all slices are merged at once: the slices of a segment have fifty times the rows of `all`."""

SegmentsByVersion = Mapping[str, Segment]
"""version -> segment."""


@dataclass(frozen=True)
class StatisticsPlan:
    """The plan for some visible files."""

    visible: VisibleFiles
    segments: SegmentsByVersion = field(default_factory=dict)
    """The visible segments that can be read."""
    rows: RowPlan = field(default_factory=lambda: RowPlan({}, {}))
    ingredients: Ingredients = field(default_factory=dict)


@dataclass
class RunStatistics:
    """Statistics of written slices, by step, merged over writers."""

    segments: SegmentTables
    rows: RowStatistics
    notes: tuple[str, ...] = ()
    """Sentences on gaps that were computed from token rows."""
    _planned: StatisticsPlan | None = None
    """The plan for the newest visible files."""

    def table(self, visible: VisibleFiles, slice_name: str, columns: Sequence[str], before: ByStep | None) -> ByStep:
        """Rows of a written slice: KEYS and these columns, one row per (attempt, step, gap, key)."""
        return grown(
            before, self.ingredients(visible), lambda steps: self.of(visible, (slice_name,), columns, steps), KEYS
        )

    def by_step(self, visible: VisibleFiles, columns: Sequence[str], steps: set[int]) -> pl.DataFrame:
        """Rows of slice `all` of these steps, with shapes in the place of tails unless rows of several writers are merged."""
        segments = holding(visible.segments, steps)
        if has_shapes(visible, segments) and all(map(steps.isdisjoint, self.from_rows(visible))):
            frame = self.of(visible, ("all",), in_place(columns), steps)
            if {*LONE} & {*in_place(columns)} <= {*frame.columns}:
                return frame
        return self.of(visible, ("all",), columns, steps)

    def of(self, visible: VisibleFiles, slices: Sequence[str], columns: Sequence[str], steps: set[int]) -> pl.DataFrame:
        """The rows of these steps in such tables of some slices. Segments without these steps are not read.

        They are read and merged by blocks of steps, so that many steps take no more memory than a block and the result; where a
        step has many writers, by slices too.
        """
        writers = len(visible.segments) * SEGMENT_STEPS / max(1, len(visible.steps))
        if len(slices) > 1 and writers > FEW_WRITERS:
            self.prefetch(visible, [((name,), tuple(columns)) for name in slices], steps)
            return pl.concat([self.of(visible, (name,), columns, steps) for name in slices])
        plan = self._plan(visible).rows
        computed = [
            (frozenset(jobs), self._computed(jobs, slices, columns))
            for jobs in (plan.per_writer, plan.joint)
            if not steps.isdisjoint(jobs)
        ]
        blocks = _blocks(steps, writers)
        parts = [self._of(visible, slices, columns, block, computed) for block in blocks]
        self.segments.let_go()
        return parts[0] if len(parts) == 1 else pl.concat(_with_equal_columns(parts)).sort(KEYS, nulls_last=True)

    def _of(
        self,
        visible: VisibleFiles,
        slices: Sequence[str],
        columns: Sequence[str],
        steps: set[int],
        computed: Sequence[tuple[frozenset[int], pl.DataFrame]],
    ) -> pl.DataFrame:
        """The same of one block. computed: (steps, their statistics from token rows), not only of this block."""
        plan = self._plan(visible).rows
        replaced = [(step, gap) for step, job in plan.joint.items() for gap in sorted(job.gaps) if step in steps]
        own = holding(visible.segments, steps)
        parts = self.segments.parts(own, slices, columns)
        present = frozenset[int]().union(*(part.steps for part in parts))
        cutoffs = {self.segments.version(segment): visible.cutoff(segment) for segment in own}
        visible_rows = [_shown(part.rows, cutoffs.get(part.version)) for part in parts]
        empty = pa.Table.from_batches([], wanted(tuple(columns)))  # an `empty_table` imports pandas
        recorded = pl.DataFrame(pa.concat_tables([empty, *visible_rows]))
        rows = [_without(_chosen(recorded, present, steps), replaced)]
        rows += [_chosen(frame, own, steps) for own, frame in computed if not steps.isdisjoint(own)]
        return merge(pl.concat(rows).rechunk(), KEYS)

    def prefetch(self, visible: VisibleFiles, asked: Sequence[SliceColumns], steps: set[int]) -> None:
        """Opens the segments of these steps once for several slices and columns, each of which is then read with `of`."""
        self.segments.prefetch(holding(visible.segments, steps), asked)

    def from_rows(self, visible: VisibleFiles) -> list[FilesByStep]:
        """The work to do on token rows: step -> its files, by the kind of job."""
        plan = self._plan(visible).rows
        return [_files(jobs) for jobs in (plan.per_writer, plan.joint) if jobs]

    def ingredients(self, visible: VisibleFiles) -> Ingredients:
        """step -> what its rows are made of."""
        return self._plan(visible).ingredients

    def gaps(self, visible: VisibleFiles) -> frozenset[str]:
        """Gaps that have statistics at some visible step, on record or computed from rows."""
        plan = self._plan(visible).rows
        jobs = (*plan.per_writer.values(), *plan.joint.values())
        gaps = {gap for job in jobs for gap in job.gaps}
        measured = self.segments.measured_steps(visible.segments, self._first_asked(visible))
        for version, segment in self._plan(visible).segments.items():
            shown = visible.shown(segment)
            gaps |= {gap for _, gap, steps in measured[version] if not shown.isdisjoint(steps)}
        return frozenset(gaps)

    def lasting_names(self, visible: VisibleFiles) -> dict[Hashable, str]:
        """Ingredients of a step -> a name that they have at a later start too. Only where every segment's digest was checked."""
        of_segments = {
            self.segments.version(segment): self.segments.lasting_name(segment) for segment in visible.segments
        }
        lasting: dict[Hashable, str] = {}
        for made_of in set(self.ingredients(visible).values()):
            cutoffs, *sources = made_of if isinstance(made_of, tuple) else (made_of,)
            names = [of_segments.get(source) if isinstance(source, str) else None for source in sources]
            if all(name is not None for name in names):
                lasting[made_of] = name_of(cutoffs, *names)
        return lasting

    def sampled(self, visible: VisibleFiles) -> bool:
        """True if some statistics were computed from rows that a budget kept by chance, so that they are estimates."""
        plan = self._plan(visible).rows
        return any(jobs and not self._from_rows(jobs).exact for jobs in (plan.per_writer, plan.joint))

    def _plan(self, visible: VisibleFiles) -> StatisticsPlan:
        """The plan for these files; sets `notes`."""
        if self._planned is None or self._planned.visible is not visible:
            measured = self.segments.measured_steps(visible.segments, self._first_asked(visible))
            self._planned = statistics_plan(visible, measured, self.segments.version, self._planned)
            jobs = (self._planned.rows.per_writer, _LOST), (self._planned.rows.joint, _SPLIT)
            self.notes = tuple(note for own, because in jobs for note in (_note(own, because) if own else ()))
        return self._planned

    def _first_asked(self, visible: VisibleFiles) -> tuple[SliceColumns, ...]:
        """Columns that grades need, and so the first that every reader of a whole run asks for."""
        fresh = self.segments.unmeasured(visible.segments)
        return ((("all",), in_place(SCALARS) if has_shapes(visible, fresh) else SCALARS),)

    def _computed(self, jobs: Mapping[int, RowJob], slices: Sequence[str], columns: Sequence[str]) -> pl.DataFrame:
        pairs = [(step, gap) for step, job in jobs.items() for gap in sorted(job.gaps)]
        own = self._from_rows(jobs).frame.filter(pl.col("slice").is_in(slices)).select(wanted(tuple(columns)).names)
        return own.join(_pairs(pairs), on=["step", "gap"], how="semi", maintain_order="left")

    def _from_rows(self, jobs: Mapping[int, RowJob]) -> FromRows:
        return self.rows.of(_files(jobs), None)


_LOST = "no statistics of them are on record, or their files were set aside"
_SPLIT = (
    "different processes recorded their two sides, parts or facts of the sequences, or the statistics on record cover only a"
    " part of the rows, or were lost after a merge"
)


def has_shapes(visible: VisibleFiles, segments: Sequence[Segment]) -> bool:
    """True if files with the shapes of tails repeat most of the segments, and no two segments have rows of one step."""
    shown = [visible.shown(segment) for segment in segments]
    repeated = sum(segment.overall is not None for segment in segments)
    return 2 * repeated > len(segments) and sum(map(len, shown)) == len(frozenset[int]().union(*shown))


def _with_equal_columns(parts: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """The parts without the shapes that one of them lacks, because rows of it were merged."""
    lacking = {name for name in LONE if any(name not in part.columns for part in parts)}
    return [part.drop(lacking, strict=False) for part in parts]


def _files(jobs: Mapping[int, RowJob]) -> FilesByStep:
    return {step: job.files for step, job in jobs.items()}


def _note(jobs: Mapping[int, RowJob], because: str) -> tuple[str]:
    gaps = [gap for gap in GAPS if any(gap in job.gaps for job in jobs.values())]
    steps = f"step {min(jobs)}" if len(jobs) == 1 else f"{len(jobs)} steps from {min(jobs)} to {max(jobs)}"
    return (f"{', '.join(gaps)} of {steps}: computed from token rows, because {because}",)


def _blocks(steps: set[int], writers: float) -> list[set[int]]:
    """The steps in blocks of whole segments, with about so many rows of `all` as MOST_ROWS. writers: of a step."""
    size = max(1, int(MOST_ROWS / max(1.0, writers)) // SEGMENT_STEPS) * SEGMENT_STEPS
    ordered = sorted(steps)
    return [set(ordered[start : start + size]) for start in range(0, len(ordered), size)] or [set()]


def _chosen(frame: pl.DataFrame, present: frozenset[int], steps: set[int]) -> pl.DataFrame:
    """Rows of these steps. present: the steps of all rows in the frame."""
    return frame if present <= steps else frame.filter(pl.col("step").is_in(list(present & steps)))


def _shown(rows: pa.Table, cutoff: Cutoff | None) -> pa.Table:
    """Rows of a segment without those that a later start replaces."""
    return rows if cutoff is None else rows.filter(pc.less(rows["step"], cutoff.step))


def _without(frame: pl.DataFrame, pairs: Sequence[tuple[int, str]]) -> pl.DataFrame:
    return frame.join(_pairs(pairs), on=["step", "gap"], how="anti", maintain_order="left") if pairs else frame


def _pairs(pairs: Sequence[tuple[int, str]]) -> pl.DataFrame:
    return pl.DataFrame(pairs, schema={"step": pl.Int64, "gap": pl.String}, orient="row")


def statistics_plan(
    visible: VisibleFiles,
    measured: Mapping[str, SegmentCoverage],
    version: Callable[[Segment], str],
    before: StatisticsPlan | None,
) -> StatisticsPlan:
    """The plan for these files. measured: version of a segment -> what it measured. before: an earlier plan."""
    if before is None or before.visible.cutoffs != visible.cutoffs:
        before = StatisticsPlan(VisibleFiles((), {}, (), (), visible.cutoffs))
    segments = {name: segment for segment in visible.segments if (name := version(segment)) in measured}
    changed = _changed_steps(before, visible, segments)
    own = {name: segment for name, segment in segments.items() if not segment.steps.isdisjoint(changed)}
    files = {step: visible.token_files[step] for step in sorted(changed & visible.token_files.keys())}
    fresh = row_plan(files, gaps_by_writer((measured[name] for name in own), changed))
    rows = RowPlan(
        _grown(before.rows.per_writer, changed, fresh.per_writer), _grown(before.rows.joint, changed, fresh.joint)
    )
    made_of = _ingredients(visible.cutoffs, own, fresh, changed)
    kept = {step: sources for step, sources in before.ingredients.items() if step not in changed}
    return StatisticsPlan(visible, segments, rows, kept | made_of)


def _changed_steps(before: StatisticsPlan, visible: VisibleFiles, segments: SegmentsByVersion) -> set[int]:
    """Steps of which a segment or a token file has come, gone or changed."""
    apart = before.segments.keys() ^ segments.keys()
    of_segments = ((before.segments.get(name) or segments[name]).steps for name in apart)
    files, earlier = visible.token_files, before.visible.token_files
    of_files = {step for step, own in files.items() if own is not (known := earlier.get(step)) and own != known}
    return of_files.union(earlier.keys() - files.keys(), *of_segments)


def _grown(before: Mapping[int, RowJob], changed: set[int], fresh: Mapping[int, RowJob]) -> dict[int, RowJob]:
    jobs = {**{step: job for step, job in before.items() if step not in changed}, **fresh}
    return {step: jobs[step] for step in sorted(jobs)}


def _ingredients(cutoffs: Cutoffs, segments: SegmentsByVersion, rows: RowPlan, steps: set[int]) -> dict[int, Hashable]:
    made_of: dict[int, list[Hashable]] = {}
    for version, segment in segments.items():
        for step in segment.steps & steps:
            made_of.setdefault(step, []).append(version)
    for jobs in (rows.per_writer, rows.joint):
        for step, job in jobs.items():
            made_of.setdefault(step, []).append(job)
    of_run = (*sorted(cutoffs.attempts.items()), *sorted(cutoffs.writers.items()))
    same: dict[Hashable, Hashable] = {}  # steps of one segment share one value, which is then compared by identity
    return {step: same.setdefault((of_run, *sources), (of_run, *sources)) for step, sources in made_of.items()}
