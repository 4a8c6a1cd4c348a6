"""The statistics of a run, merged over writers: from segments where they can be believed, else from token rows.

A gap is computed from rows where its two sides were recorded by different processes, and where a writer's segment is missing
or was set aside. `notes` says so.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from ratioscope.metrics.distribution import LEVELS, histogram_columns
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.numpy_engine import schema
from ratioscope.metrics.merging import KEYS, merge
from ratioscope.record import GAPS

from ..commits.attempts import Limit
from ..commits.entries import Segment
from ..commits.visible_files import VisibleFiles
from .growing_table import ByStep, Ingredients, grown
from .kept_tables import name_of
from .row_plan import RowJob, RowPlan, row_plan
from .row_statistics import FromRows, RowStatistics
from .segment_tables import MeasuredSteps, SegmentTables, holding
from .statistics_files import SliceColumns

HISTOGRAMS = tuple(name for level in LEVELS for name in histogram_columns(level))
SCALARS = tuple(name for name in schema().names if name not in {*KEYS, *HISTOGRAMS})
"""Statistics that metrics are read from; the tails are among them, histograms are not."""

AHEAD: tuple[SliceColumns, ...] = (("all", SCALARS),)
"""What grades are made of, and so what every reader of a whole run asks for first."""


@dataclass
class RunStatistics:
    """Merged tables by slice."""

    segments: SegmentTables
    rows: RowStatistics
    notes: tuple[str, ...] = ()
    _looked: tuple[VisibleFiles, RowPlan, Ingredients] | None = None

    def table(self, visible: VisibleFiles, slice_name: str, columns: Sequence[str], before: ByStep | None) -> ByStep:
        """Rows of a written slice: KEYS and these columns, one row per (attempt, step, gap, key)."""
        return grown(
            before, self.ingredients(visible), lambda steps: self.of(visible, slice_name, columns, steps), KEYS
        )

    def of(self, visible: VisibleFiles, slice_name: str, columns: Sequence[str], steps: set[int]) -> pl.DataFrame:
        """The rows of these steps in such a table; reads no segment without them."""
        _, plan, _ = self._look(visible)
        replaced = [(step, gap) for step, job in plan.joint.items() for gap in sorted(job.gaps) if step in steps]
        parts = self.segments.parts(holding(visible.segments, steps), slice_name, columns)
        held = frozenset[int]().union(*(part.steps for part in parts))
        limits = {self.segments.version(segment): visible.limit(segment) for segment in visible.segments}
        shown = [_shown(part.rows, limits.get(part.version)) for part in parts]
        recorded = pl.from_arrow(pa.concat_tables([_empty(columns), *shown]))
        assert isinstance(recorded, pl.DataFrame)
        rows = [_without(_chosen(recorded, held, steps), replaced)]
        for jobs in (plan.per_writer, plan.joint):
            if not steps.isdisjoint(jobs):
                rows.append(_chosen(self._computed(jobs, slice_name, columns), frozenset(jobs), steps))
        return merge(pl.concat(rows).rechunk(), KEYS)

    def prefetch(self, visible: VisibleFiles, slices: Sequence[str], columns: Sequence[str], steps: set[int]) -> None:
        """Reads the segments of these steps once for all slices, each of which is then asked for with `of`."""
        asked = [(slice_name, tuple(columns)) for slice_name in slices]
        self.segments.prefetch(holding(visible.segments, steps), asked)

    def ingredients(self, visible: VisibleFiles) -> Ingredients:
        """What the rows of every step are made of."""
        return self._look(visible)[2]

    def gaps(self, visible: VisibleFiles) -> frozenset[str]:
        """Gaps of which some visible step has statistics, or rows that they are computed from."""
        _, plan, _ = self._look(visible)
        jobs = (*plan.per_writer.values(), *plan.joint.values())
        found = {gap for job in jobs for gap in job.gaps}
        for segment, facts in self._facts(visible):
            shown = visible.shown(segment)
            found |= {gap for _, gap, steps in facts if not shown.isdisjoint(steps)}
        return frozenset(found)

    def proofs(self, visible: VisibleFiles) -> dict[Hashable, str]:
        """Ingredients of a step -> their name at any later start; only of those whose every digest was checked."""
        proven = {self.segments.version(segment): self.segments.proof(segment) for segment in visible.segments}
        found: dict[Hashable, str] = {}
        for made_of in set(self.ingredients(visible).values()):
            limits, *sources = made_of if isinstance(made_of, tuple) else (made_of,)
            names = [proven.get(source) if isinstance(source, str) else None for source in sources]
            if all(name is not None for name in names):
                found[made_of] = name_of(limits, *names)
        return found

    def sampled(self, visible: VisibleFiles) -> bool:
        """Whether rows kept by a budget's chance stand for steps whose statistics are lost."""
        _, plan, _ = self._look(visible)
        return any(jobs and not self._from_rows(jobs).exact for jobs in (plan.per_writer, plan.joint))

    def _look(self, visible: VisibleFiles) -> tuple[VisibleFiles, RowPlan, Ingredients]:
        if self._looked is None or self._looked[0] is not visible:
            plan = self._plan(visible)
            self._looked = (visible, plan, _ingredients(visible, self._facts(visible), plan, self.segments))
        return self._looked

    def _facts(self, visible: VisibleFiles) -> list[tuple[Segment, MeasuredSteps]]:
        """The segments that can be believed, and what each measures."""
        facts = self.segments.measured_steps(visible.segments, AHEAD)
        pairs = ((segment, facts.get(self.segments.version(segment))) for segment in visible.segments)
        return [(segment, found) for segment, found in pairs if found is not None]

    def _plan(self, visible: VisibleFiles) -> RowPlan:
        """What the segments lack; tells of it in `notes`."""
        plan = row_plan(visible.token_files, self.segments.gaps_by_writer(visible.segments, AHEAD))
        self.notes = tuple(
            note
            for jobs, because in ((plan.per_writer, _LOST), (plan.joint, _SPLIT))
            for note in (_told(jobs, because) if jobs else ())
        )
        return plan

    def _computed(self, jobs: Mapping[int, RowJob], slice_name: str, columns: Sequence[str]) -> pl.DataFrame:
        pairs = [(step, gap) for step, job in jobs.items() for gap in sorted(job.gaps)]
        own = self._from_rows(jobs).frame.filter(slice=slice_name).select(_in_order(columns))
        return own.join(_pairs(pairs), on=["step", "gap"], how="semi", maintain_order="left")

    def _from_rows(self, jobs: Mapping[int, RowJob]) -> FromRows:
        return self.rows.of({step: job.files for step, job in jobs.items()}, None)


_LOST = "no statistics of them are on record, or what was on record was set aside"
_SPLIT = (
    "different processes recorded their two sides, parts or facts of the sequences, or what is on record of them is of a part of"
    " the rows, or merged and lost"
)


def _told(jobs: Mapping[int, RowJob], because: str) -> tuple[str]:
    gaps = [gap for gap in GAPS if any(gap in job.gaps for job in jobs.values())]
    steps = f"step {min(jobs)}" if len(jobs) == 1 else f"{len(jobs)} steps from {min(jobs)} to {max(jobs)}"
    return (f"{', '.join(gaps)} of {steps}: computed from token rows, because {because}",)


def _ingredients(
    visible: VisibleFiles, facts: Sequence[tuple[Segment, MeasuredSteps]], plan: RowPlan, segments: SegmentTables
) -> Ingredients:
    made_of: dict[int, list[Hashable]] = {}
    for segment, _ in facts:
        version = segments.version(segment)
        for step in segment.steps:
            made_of.setdefault(step, []).append(version)
    for jobs in (plan.per_writer, plan.joint):
        for step, job in jobs.items():
            made_of.setdefault(step, []).append(job)
    limits = (*sorted(visible.limits.attempts.items()), *sorted(visible.limits.writers.items()))
    same: dict[Hashable, Hashable] = {}  # steps of one segment share one value, which is then compared by identity
    return {step: same.setdefault((limits, *sources), (limits, *sources)) for step, sources in made_of.items()}


def _chosen(frame: pl.DataFrame, held: frozenset[int], steps: set[int]) -> pl.DataFrame:
    """Rows of these steps. held: the steps that the frame has rows of."""
    return frame if held <= steps else frame.filter(pl.col("step").is_in(list(held & steps)))


def _shown(rows: pa.Table, limit: Limit | None) -> pa.Table:
    """Rows of a segment that no later start replaces."""
    return rows if limit is None else rows.filter(pc.less(rows["step"], limit.step))


def _without(frame: pl.DataFrame, pairs: Sequence[tuple[int, str]]) -> pl.DataFrame:
    return frame.join(_pairs(pairs), on=["step", "gap"], how="anti", maintain_order="left") if pairs else frame


def _pairs(pairs: Sequence[tuple[int, str]]) -> pl.DataFrame:
    return pl.DataFrame(pairs, schema={"step": pl.Int64, "gap": pl.String}, orient="row")


def _in_order(columns: Sequence[str]) -> list[str]:
    return [name for name in schema().names if name in {*KEYS, *columns}]


def _empty(columns: Sequence[str]) -> pa.Table:
    return schema().empty_table().select(_in_order(columns))
