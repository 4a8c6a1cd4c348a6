"""The plan of a run's statistics: what each step is made of, and what to compute from its rows. It grows with the run.

A reader that follows a run plans only those steps again of which a file has changed: its cost does not grow with the history.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from ..commits.attempts import Cutoffs
from ..commits.entries import Segment
from ..commits.visible_files import VisibleFiles
from .growing_table import Ingredients
from .row_plan import RowJob, RowPlan, row_plan
from .segment_tables import SegmentCoverage, gaps_by_writer

SegmentsByVersion = Mapping[str, Segment]
"""version -> segment."""


@dataclass(frozen=True)
class StatisticsPlan:
    """The plan for some visible files."""

    visible: VisibleFiles
    segments: SegmentsByVersion = field(default_factory=dict)
    """The visible segments that can be read."""
    rows: RowPlan = field(default_factory=lambda: RowPlan({}, {}))
    """Statistics to compute from token rows."""
    ingredients: Ingredients = field(default_factory=dict)
    """The sources of the statistics of each step."""


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
