"""The Compare page, A against B: runs, seeds or ranges of steps; the differences, their size and certainty, and settings."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import polars as pl

from ratioscope.errors import SourceError
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.distribution import LEVELS, Level, whole_histogram
from ratioscope.metrics.grading.limits import limits_of

from ..blocks import Actions, Beside, Block, Chart, Column, Heading, Numbers, Paragraph, Table
from ..figures.drawing.plotly_objects import go
from ..figures.sides import SideRun, courses, graded_shares, survivals
from ..presentation.comparison_words import (
    compared_metrics,
    few_settings,
    numbers_of,
    sentence,
    settings_table,
    table_of,
    titled,
)
from ..presentation.difference import common_gap
from ..presentation.digits import count
from ..presentation.escape import visible
from ..presentation.gap_words import difference_words
from ..presentation.metric_places import in_words, names_at
from ..presentation.run_names import told_apart
from ..presentation.theme import THEMES, ThemeName
from .compare_pairs import pair_by_pair
from .compare_sides import ComparedRun, asked_sides, with_gap
from .face import Choice, Face
from .pinning import pin_action, said_of_pin
from .scope import Scope

ALIGNED = ("step", "steps since the first")
Sides = tuple[ComparedRun, ComparedRun]
LINE = 300
"""Most characters of the line that names settings."""
COLUMNS = {
    "metric": Column(width=230, narrow=112, shorter={"Effective sample size": "ESS", "Chi-squared": "χ²"}),
    **{letter: Column(narrow=134) for letter in "AB"},  # a narrow window shows both sides whole, with their errors
    "z": Column(help="the difference in its standard errors"),
}
SETTINGS = {
    "setting": Column(width=320, narrow=170),
    **{letter: Column(width=160, narrow=110) for letter in "AB"},
}
"""The name of a setting is a path of several words. A narrow window shows both values too."""
CELL = 24
"""Characters of a value in the table of settings. Downloads have all of them."""
SEEDS = "Errors come from the spread between the runs of a side; a side with one run has only its sampling error"
NO_SEEDS = "Errors are clustered by sequence and do not include the variation between seeds: compare several seeds"
HOLM = "“differs”: significant at 5% after Holm's correction over all rows."
ONE_RUN = "A and B come from the same run. The charts of the other pages mark a resume with other settings."
NO_SETTING = (
    "No setting on record differs: code, trainer, versions, configuration and machine are the same in run.json, or were not"
    " recorded."
)


def compare(scope: Scope) -> Iterator[Block]:
    gap = scope.gap
    a, b = yield from asked_sides(scope)
    for side in (a, b):
        if side.views and not any(map(side.recorded, side.views)):
            yield Paragraph(f"{side.letter} has none of the chosen steps: {side.words}.", "info")
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
    yield Paragraph(sentence(comparisons, gap), "answer")
    yield Paragraph(f"A: {a.words}", "muted")
    yield Paragraph(f"B: {b.words}", "muted")
    if on_paper:
        yield Paragraph(f"gap: {gap}, {difference_words(gap)}", "muted")
    line, settings = _settings(a, b)
    yield Paragraph(visible(line, LINE), "muted")
    if len(a.names) == 1 and (pin := pin_action(scope, a.names[0])):
        yield Actions("pin", (pin,))
        yield from said_of_pin(scope.face)
    yield from _cautions(a, b)
    if not comparisons:
        common = "Choose another gap, or runs that record both its policies."
        yield Paragraph(f"A and B have no metric of {gap} in common. {common}", "info")
        return
    tallest = None if len(comparisons) < 14 else 460
    yield Table("Metrics of A and B", titled(table_of(comparisons)), columns=COLUMNS, tallest=tallest)
    yield Numbers("compared_numbers", partial(numbers_of, comparisons), "as plain numbers")
    yield from _side_courses((a, b), scope)
    weights = _tails((a, b), scope.face, gap)
    yield Beside("both", ((weights,), (_shares((a, b)), *settings)))
    if not on_paper:
        yield from pair_by_pair(a, b, scope)


def _cautions(a: ComparedRun, b: ComparedRun) -> Iterator[Block]:
    """Notes on the meaning of the errors, and on differences that make the comparison unfair."""
    shared = sum(
        len(set(a.recorded(one)) & set(b.recorded(other)))
        for one in a.views
        for other in b.views
        if one.path == other.path
    )
    if shared:
        independent = "Errors assume independent sides, so z is too small."
        yield Paragraph(f"A and B share {count(shared, 'step')}. {independent}", "warning")
    how = SEEDS if max(len(a.views), len(b.views)) > 1 else NO_SEEDS
    yield Paragraph(f"Each value covers all tokens of the range. {how}. {HOLM}", "muted")


def _settings(a: ComparedRun, b: ComparedRun) -> tuple[str, Sequence[Block]]:
    """(the first of the settings that differ, or why there is none; the table of all, unless the line has each of them)."""
    if {shown.path for shown in a.views} == {shown.path for shown in b.views}:
        return ONE_RUN, ()
    differing = settings_table(*([shown.run.info for shown in side.views] for side in (a, b)))
    if differing.is_empty():
        return NO_SETTING, ()
    line = f"Settings that differ: {few_settings(differing.rows())}"
    if len(line) <= LINE and all(f"{key} {one} → {other}" in line for key, one, other in differing.rows()):
        return line, ()
    tallest = None if len(differing) < 20 else 460
    short = pl.DataFrame([told_apart(row, CELL) for row in differing.select("A", "B").rows()], ("A", "B"), orient="row")
    whole = differing.select(pl.col("A", "B").name.suffix(" whole"))
    frame = pl.concat([differing.select("setting"), short, whole], how="horizontal")
    table = Table("Settings that differ", frame, columns=SETTINGS, only=[*SETTINGS], tallest=tallest)
    return line, (Heading(f"All {count(len(differing), 'setting')} that differ"), table)


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
