"""The Compare page, A against B: runs, seeds or ranges of steps; the differences, their size and certainty, and settings."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import polars as pl

from ratioscope.errors import SourceError
from ratioscope.ingest.analysis.run_comparison import KEYS, METRICS, PromptKey, of_metric
from ratioscope.ingest.jobs.pair_job import PairJob, RunSteps
from ratioscope.metrics.analysis.comparison import paired
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.distribution import LEVELS, Level, whole_histogram
from ratioscope.metrics.grading.limits import limits_of

from ..blocks import Action, Beside, Block, Chart, Heading, Numbers, Paragraph, Waiting
from ..figures.drawing.plotly_objects import go
from ..figures.sides import SideRun, courses, graded_shares, survivals
from ..presentation.comparison_words import compared_metrics, paired_sentence, sentence, table_of, titled
from ..presentation.difference import common_gap
from ..presentation.digits import count
from ..presentation.gap_words import difference_words
from ..presentation.metric_places import in_words, names_at
from ..presentation.theme import THEMES, ThemeName
from .compare_logs import compared_logs
from .compare_sides import (
    HOLM,
    ComparedRun,
    Sides,
    asked_sides,
    differing,
    said_of_sides,
    settings_blocks,
    side_by_side,
    with_gap,
)
from .face import Choice, Face
from .scope import Scope

ALIGNED = ("step", "steps since the first")
SEEDS = "Errors come from the spread between the runs of a side; a side with one run has only its sampling error"
NO_SEEDS = "Errors are clustered by sequence and do not include the variation between seeds: compare several seeds"


def compare(scope: Scope) -> Iterator[Block]:
    gap = scope.gap
    a, b = yield from asked_sides(scope)
    for side in (a, b):
        if side.views and not any(map(side.recorded, side.views)):
            yield Paragraph(f"{side.letter} has none of the chosen steps: {side.words}.", "info")
            return
    if any(shown.run.no_tokens for side in (a, b) for shown in side.views):
        yield from compared_logs((a, b), scope)
        return
    a, b = (yield from with_gap(a, scope)), (yield from with_gap(b, scope))
    if not (a.views and b.views):
        return
    on_paper = bool(scope.face.unasked((gap,)))
    if on_paper:
        with suppress(SourceError):  # nobody can choose another one
            gap = common_gap(a.views[0].run, b.views[0].run, gap, asked=False)
    scope = replace(scope, gap=gap)
    one, other = (
        [view.metrics((), side.steps.chosen(view.steps), gap) for view in side.views if side.recorded(view)]
        for side in (a, b)
    )
    comparisons = compared_metrics(one, other, gap)
    line, settings = settings_blocks(differing(a, b))
    of_gap = (Paragraph(f"gap: {gap}, {difference_words(gap)}", "muted"),) if on_paper else ()
    yield from said_of_sides((a, b), scope, sentence(comparisons, gap), *of_gap, line)
    how = SEEDS if max(len(a.views), len(b.views)) > 1 else NO_SEEDS
    yield Paragraph(f"Each value covers all tokens of the range. {how}. {HOLM}", "muted")
    if not comparisons:
        common = "Choose another gap, or runs that record both its policies."
        yield Paragraph(f"A and B have no metric of {gap} in common. {common}", "info")
        return
    yield from side_by_side("Metrics of A and B", titled(table_of(comparisons)), comparisons)
    yield from _side_courses((a, b), scope)
    weights = _tails((a, b), scope.face, gap)
    yield Beside("both", ((weights,), (_shares((a, b)), *settings)))
    if not on_paper:
        yield from pair_by_pair(a, b, scope)


def _side_courses(sides: Sides, scope: Scope) -> Iterator[Block]:
    """A metric over the steps of both sides, by step or by steps since each side's first step."""
    ask, gap = scope.face.ask, scope.gap
    with scope.face.row("side_courses"):
        names, usual = names_at("chart", gap), ALIGNED[_are_far_apart(sides)]
        name = ask(Choice("course", "metric", names, names[0], in_words, width=340))
        relative = ask(Choice("align", "over", ALIGNED, usual, look="segments")) == ALIGNED[1]
    label, numbers = f"{gap} {name} over the steps of A and of B", partial(_course_numbers, sides, gap, name)
    yield Chart("courses", label, _courses, (sides, gap, name, relative), wide=True, numbers=numbers)


def _courses(sides: Sides, gap: str, name: str, relative: bool, theme: ThemeName) -> go.Figure:
    metric, events = BY_NAME[name], _events(*sides, relative)
    limits, runs = limits_of(metric, gap), _runs(sides, gap)
    return courses(runs, metric, gap, relative=relative, events=events, limits=limits, theme=THEMES[theme])


def _runs(sides: Sides, gap: str) -> list[SideRun]:
    return [
        SideRun(place, name, shown.metrics(("step",), side.steps.chosen(shown.steps), gap))
        for place, side in enumerate(sides)
        for name, shown in zip(side.names, side.views, strict=True)
        if side.recorded(shown)
    ]


def _are_far_apart(sides: Sides) -> bool:
    """True if the steps between two runs are more than those of both: on one axis each would be a stroke."""
    ends = [(steps[0], steps[-1]) for side in sides for shown in side.views if (steps := side.recorded(shown))]
    between = max((first for first, _ in ends), default=0) - min((last for _, last in ends), default=0)
    return between > sum(last - first + 1 for first, last in ends)


def _events(a: ComparedRun, b: ComparedRun, relative: bool) -> list[tuple[str, pl.DataFrame]]:
    """The events of each side at its steps, with the side's letter; one list if both sides are one run."""
    of_sides = [(side.letter, _events_of(side, relative)) for side in (a, b)]
    if relative or len({shown.path for side in (a, b) for shown in side.views}) > 1:
        return of_sides
    return [
        ("", pl.concat(events for _, events in of_sides).unique(maintain_order=True).sort("step", maintain_order=True))
    ]


def _events_of(side: ComparedRun, relative: bool) -> pl.DataFrame:
    parts = []
    for shown in side.views:
        steps, events = side.recorded(shown), shown.events()
        own = events.filter(pl.col("step").is_between(steps[0], steps[-1])) if steps else events.clear()
        parts.append(own.with_columns(pl.col("step") - (steps[0] if relative and steps else 0), at=pl.col("step")))
    return pl.concat(parts).unique(maintain_order=True).sort("step", maintain_order=True)


def _course_numbers(sides: Sides, gap: str, name: str) -> pl.DataFrame:
    columns = ("step", f"{gap}/{name}", f"{gap}/{name}_se")
    parts = [
        run.frame.select(
            pl.lit("AB"[run.side]).alias("side"), pl.lit(run.name).alias("run"),
            *(column for column in columns if column in run.frame.columns),
        )
        for run in _runs(sides, gap)
    ]  # fmt: skip
    return pl.concat(parts, how="diagonal_relaxed")


def _tails(sides: Sides, face: Face, gap: str) -> Chart:
    """The share of weights beyond each weight, on both sides."""
    level: Level = face.ask(Choice("level", "weights of", LEVELS, LEVELS[0], look="segments"))
    label, numbers = (
        f"Share of {gap} weights beyond each weight, of A and of B",
        partial(_both_tails, sides, gap, level),
    )
    return Chart("survivals", label, _survivals, (sides, gap, level), numbers=numbers)


def _survivals(sides: Sides, gap: str, level: Level, theme: ThemeName) -> go.Figure:
    one, other = (whole_histogram(_distribution(side, level, gap)) for side in sides)
    return survivals((one, other), gap, level, theme=THEMES[theme])


def _both_tails(sides: Sides, gap: str, level: Level) -> pl.DataFrame:
    return pl.concat(_distribution(side, level, gap).with_columns(side=pl.lit(side.letter)) for side in sides)


def _distribution(side: ComparedRun, level: Level, gap: str) -> pl.DataFrame:
    """The distributions of all runs of the side, over its steps."""
    return pl.concat(
        shown.distribution(level, gap).filter(pl.col("step").is_in(side.recorded(shown))) for shown in side.views
    )


def _shares(sides: Sides) -> Chart:
    """The shares of the steps of each side that are healthy, watch and act."""
    label = "Number of steps of A and of B that are healthy, watch and act"
    return Chart("shares", label, _grades, (sides,), numbers=partial(_both_grades, sides))


def _grades(sides: Sides, theme: ThemeName) -> go.Figure:
    return graded_shares([_graded(side) for side in sides], theme=THEMES[theme])


def _both_grades(sides: Sides) -> pl.DataFrame:
    return pl.DataFrame([{"side": side.letter, **_graded(side)} for side in sides])


def _graded(side: ComparedRun) -> dict[str, int]:
    numbers = {"healthy": 0, "watch": 0, "act": 0}
    for shown in side.views:
        own = shown.grades().filter(pl.col("step").is_in(side.recorded(shown)))
        for word, steps in own["severity"].cast(pl.String).value_counts().rows():
            numbers[word] += steps
    return numbers


LOGS: dict[PromptKey, str] = {
    "prompt_text": "log prompt_texts",
    "group_id": "log group_ids",
    "sequence_id": "log sequence_ids",
}


def pair_by_pair(a: ComparedRun, b: ComparedRun, scope: Scope) -> Iterator[Block]:
    """Compares partners of both sides, if prompts match, by a job on token rows that the reader starts."""
    face, jobs, gap = scope.face, scope.view.source.jobs, scope.gap
    yield Heading("Pair by pair")
    keys: list[PromptKey] = [*KEYS]
    with face.row("pairs"):
        key: PromptKey = face.ask(Choice("pair_by", "partners have", keys, keys[0], width=200))
        metric = face.ask(Choice("pair_metric", "measured by", METRICS, METRICS[0], in_words, width=300))
        sides = [(side.letter, side.typed, tuple(shown.path for shown in side.views)) for side in (a, b)]
        name = repr(("pairs", key, gap, sides))  # a growing run is read up to its newest step at the start of the job
        job = jobs.pairs(name)
        recorded = [tuple(side.recorded(shown)) for side in (a, b) for shown in side.views]
        is_done = job is not None and job.progress.state == "done"
        if job is None or not (job.progress.at_work or (is_done and job.work.steps == recorded)):
            words = f"read {'again ' if is_done else ''}{count(sum(map(len, recorded)), 'step')} of token rows"
            parts = [
                RunSteps(side.letter, shown.run, side.steps.of(shown.steps)) for side in (a, b) for shown in side.views
            ]
            yield Action("pair", words, partial(jobs.read_pairs, name, parts, key, gap))
    about = "Sequences of both runs are paired, which removes the variation between prompts."
    yield Paragraph(f"{about} Partners have {KEYS[key]}.", "muted")
    if job is None:
        return
    if job.progress.at_work:
        yield Waiting("pairs_wait", "reading", lambda: False, job=name)
    elif is_done:
        yield from _result(job, metric, key)
    else:
        why = f"failed: {job.progress.reason}" if job.progress.reason else "was cancelled"
        yield Paragraph(f"The last reading {why}.", "absent")


def _result(job: PairJob, metric: str, key: PromptKey) -> Iterator[Block]:
    one, other = (of_metric(job.work.table(letter), metric) for letter in "AB")
    pairs = paired(one, other)
    yield Paragraph(paired_sentence(pairs, metric, key), "lead")
    if not pairs.pairs:
        keep = f"To pair by {key}, {LOGS[key]} with Collector.log in both runs, and keep the token rows."
        yield Paragraph(keep, "muted")
    yield Numbers("pair_numbers", partial(_joined, one, other), "numbers of the pairs")


def _joined(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    a, b = one.rename({"value": "A"}), other.rename({"value": "B"})
    return a.join(b, on="key").with_columns((pl.col("B") - pl.col("A")).alias("B − A"))
