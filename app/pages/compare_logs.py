"""The page Compare where a side is a scalar log: the numbers that both sides have, as `ratioscope diff` compares them."""

from collections.abc import Iterator
from functools import partial

import polars as pl

from ratioscope.ingest.analysis.logged_comparison import TwoRanges, numbers_by_step
from ratioscope.ingest.run import Run
from ratioscope.metrics.definitions.registry import BY_NAME, is_metric

from ..blocks import Block, Chart, Column, Paragraph
from ..figures.drawing.floats import floats
from ..figures.drawing.lines import Line
from ..figures.drawing.plotly_objects import go
from ..figures.logged_number import logged_over_steps
from ..presentation.comparison_words import table_of
from ..presentation.difference import (
    Difference,
    common_gap,
    headline,
    logged_difference,
    pairs_in_words,
    parting_in_words,
)
from ..presentation.escape import visible
from ..presentation.theme import THEMES, ThemeName
from .compare_sides import COLUMNS, HOLM, Sides, said_of_sides, settings_blocks, side_by_side
from .face import Choice
from .logged_numbers import number_note
from .scope import Scope
from .view import View

ONE_EACH = "Not compared, because a scalar log is compared with one run. Choose one run for A and one for B."
LOOK = COLUMNS | {"metric": Column(width=300, narrow=170), **{letter: Column(narrow=84) for letter in "AB"}}
"""Names of numbers are long, and means over common steps have no errors."""
ONE_VALUE = "one value a step, without its standard error"


def compared_logs(sides: Sides, scope: Scope) -> Iterator[Block]:
    """One run of each side compared by the numbers of each step."""
    a, b = sides
    if len(a.views) != 1 or len(b.views) != 1:
        yield from (Paragraph(ONE_EACH, "info"),) if a.views and b.views else ()
        return
    (one,), (other,) = a.views, b.views
    steps = (a.steps.chosen(one.steps), b.steps.chosen(other.steps))
    compared = one.of(_compared, other, scope.gap, steps)
    line, settings = settings_blocks(None if one.path == other.path else compared.settings)
    yield from said_of_sides(sides, scope, headline(compared), line)
    if compared.metrics:
        yield Paragraph(f"{pairs_in_words(compared)} {HOLM}", "muted")
        yield Paragraph(parting_in_words(compared), "muted")
        yield from side_by_side("Numbers of A and B", table_of(compared.metrics), compared.metrics, LOOK)
        names = [each.metric for each in compared.metrics]
        name = scope.face.ask(Choice("course", "number", names, names[0], visible, width=340))
        label, of = f"{name} over the steps of A and of B", (one, other, name, steps)
        yield Chart("courses", label, _courses, of, wide=True, numbers=partial(_rows, *of))
    yield from settings


def _compared(run: Run, other: View, gap: str, steps: TwoRanges) -> Difference:
    return logged_difference(run, other.run, common_gap(run, other.run, gap, asked=False), steps)


def _courses(a: View, b: View, name: str, steps: TwoRanges, theme: ThemeName) -> go.Figure:
    metric, lines = BY_NAME[name.partition("/")[2]] if is_metric(name) else None, list[Line]()
    for slot, ((side, run), own) in enumerate(_rows(a, b, name, steps).group_by(["side", "run"], maintain_order=True)):
        places, values = floats(own, "step"), floats(own, "value")
        lines.append(Line(f"{side} {run}", slot, places, places, values, floats(own, "error")))
    note = f"{metric.title}, {metric.unit}" if metric else a.of(number_note, name)
    return logged_over_steps(lines, name, note, estimate=ONE_VALUE, theme=THEMES[theme])


def _rows(a: View, b: View, name: str, steps: TwoRanges) -> pl.DataFrame:
    """One row per side and step of a number."""
    parts = ((view.of(numbers_by_step, own)[0][name], view) for view, own in zip((a, b), steps, strict=True))
    sides = [
        rows.sort("step").select(pl.lit(letter).alias("side"), pl.lit(view.name).alias("run"), "step", "value")
        for letter, (rows, view) in zip("AB", parts, strict=True)
    ]
    return pl.concat(sides)
