"""The statistics of a run, merged over writers: from segments where they can be believed, else from token rows.

A gap is computed from rows where its two sides were recorded by different processes, and where a writer's segment is missing
or was set aside. `notes` says so.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from ratioscope.metrics.distribution import LEVELS, histogram_columns
from ratioscope.metrics.merge import KEYS, merge
from ratioscope.metrics.numpy_engine import schema
from ratioscope.record import GAPS

from .by_step import ByStep, grown
from .catalog import Sight
from .row_plan import Job, Plan, plan
from .row_statistics import FromRows, RowStatistics
from .segment_tables import Part, SegmentTables

HISTOGRAMS = tuple(name for level in LEVELS for name in histogram_columns(level))
SCALARS = tuple(name for name in schema().names if name not in {*KEYS, *HISTOGRAMS})
"""Statistics that metrics are read from; the tails are among them, histograms are not."""


@dataclass
class RunStatistics:
    """Merged tables by slice. sampled: whether rows kept by a budget's chance stand for steps whose statistics are lost."""

    segments: SegmentTables
    rows: RowStatistics
    notes: tuple[str, ...] = ()
    sampled: bool = False
    _tables: dict[tuple[str, ...], ByStep] = field(default_factory=dict)

    def table(self, sight: Sight, slice_name: str, columns: Sequence[str] = SCALARS) -> ByStep:
        """Rows of a written slice: KEYS and these columns, one row per (attempt, step, gap, key)."""
        wanted = self._plan(sight)
        parts = self.segments.parts(sight.segments, slice_name, columns)
        replaced = [(step, gap) for step, job in wanted.across.items() for gap in sorted(job.gaps)]

        def fresh(steps: set[int]) -> pl.DataFrame:
            found = [part.frame for part in parts if not part.steps.isdisjoint(steps)]
            rows = [_without(_chosen(frame, sight, steps), replaced) for frame in found]
            for jobs in (wanted.own, wanted.across):
                if not steps.isdisjoint(jobs):
                    rows.append(_chosen(self._computed(jobs, slice_name, columns), sight, steps))
            return merge(pl.concat([_empty(columns), *rows]).rechunk(), KEYS)

        key = (slice_name, *columns)
        self._tables[key] = grown(self._tables.get(key), _ingredients(sight, parts, wanted), fresh, KEYS)
        return self._tables[key]

    def _plan(self, sight: Sight) -> Plan:
        """What the segments lack; tells of it in `notes`."""
        wanted = plan(sight.token_files, self.segments.measured(sight.segments, SCALARS))
        self.notes = tuple(
            note
            for jobs, because in ((wanted.own, _LOST), (wanted.across, _SPLIT))
            for note in (_told(jobs, because) if jobs else ())
        )
        return wanted

    def _computed(self, jobs: Mapping[int, Job], slice_name: str, columns: Sequence[str]) -> pl.DataFrame:
        found: FromRows = self.rows.of({step: job.files for step, job in jobs.items()}, None)
        self.sampled |= not found.exact
        pairs = [(step, gap) for step, job in jobs.items() for gap in sorted(job.gaps)]
        own = found.frame.filter(slice=slice_name).select(_in_order(columns))
        return own.join(_pairs(pairs), on=["step", "gap"], how="semi", maintain_order="left")


_LOST = "no statistics of them are on record, or what was on record was set aside"
_SPLIT = "different processes recorded their two sides, parts or facts of the sequences, or merged statistics of them are lost"


def _told(jobs: Mapping[int, Job], because: str) -> tuple[str]:
    gaps = [gap for gap in GAPS if any(gap in job.gaps for job in jobs.values())]
    steps = f"step {min(jobs)}" if len(jobs) == 1 else f"{len(jobs)} steps from {min(jobs)} to {max(jobs)}"
    return (f"{', '.join(gaps)} of {steps}: computed from token rows, because {because}",)


def _ingredients(sight: Sight, parts: Sequence[Part], wanted: Plan) -> dict[int, Hashable]:
    made_of: dict[int, list[Hashable]] = {}
    for part in parts:
        for step in part.steps:
            made_of.setdefault(step, []).append(part.version)
    for jobs in (wanted.own, wanted.across):
        for step, job in jobs.items():
            made_of.setdefault(step, []).append(job)
    limits = tuple(sight.limits.items())
    return {step: (limits, *sources) for step, sources in made_of.items()}


def _chosen(frame: pl.DataFrame, sight: Sight, steps: set[int]) -> pl.DataFrame:
    """Rows of these steps that no later attempt shadows."""
    shown = pl.lit(True)
    for attempt, limit in sight.limits.items():
        if limit is not None:
            shown &= (pl.col("attempt") != attempt) | (pl.col("step") < limit[0])
    return frame.filter(pl.col("step").is_in(list(steps)) & shown)


def _without(frame: pl.DataFrame, pairs: Sequence[tuple[int, str]]) -> pl.DataFrame:
    return frame.join(_pairs(pairs), on=["step", "gap"], how="anti", maintain_order="left") if pairs else frame


def _pairs(pairs: Sequence[tuple[int, str]]) -> pl.DataFrame:
    return pl.DataFrame(pairs, schema={"step": pl.Int64, "gap": pl.String}, orient="row")


def _in_order(columns: Sequence[str]) -> list[str]:
    return [name for name in schema().names if name in {*KEYS, *columns}]


def _empty(columns: Sequence[str]) -> pl.DataFrame:
    frame = pl.from_arrow(schema().empty_table().select(_in_order(columns)))
    assert isinstance(frame, pl.DataFrame)
    return frame
