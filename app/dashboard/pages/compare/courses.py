"""A metric over the steps of both sides of a comparison, by step or by steps since each side's first step."""

from collections.abc import Sequence
from functools import partial

import polars as pl

from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.limits import limits_of

from ....figures.sides import SideRun, courses
from ....presentation.metric_places import in_words, names_at
from ...panels.charts import appearance, draw
from ...panels.choices import choice, dropdown
from ...panels.layout import control_row
from .sides import ComparedRun

ALIGNED = ("step", "steps since the first")


def side_courses(a: ComparedRun, b: ComparedRun, gap: str) -> None:
    with control_row("side_courses"):
        name = dropdown("metric", names_at("chart", gap), "course", width=340, shown=in_words)
        relative = choice("over", ALIGNED, "align", default=ALIGNED[_are_far_apart(a, b)]) == ALIGNED[1]
    metric = BY_NAME[name]
    runs = [
        SideRun(place, label_of, shown.metrics(("step",), side.steps.chosen(shown.steps), gap))
        for place, side in enumerate((a, b))
        for label_of, shown in zip(side.names, side.views, strict=True)
        if side.recorded(shown)
    ]
    draw(
        courses(
            runs,
            metric,
            gap,
            relative=relative,
            events=_events(a, b, relative),
            limits=limits_of(metric, gap),
            theme=appearance(),
        ),
        "courses",
        f"{gap} {name} over the steps of A and of B",
        numbers=partial(_course_numbers, runs, f"{gap}/{name}"),
    )


def _are_far_apart(a: ComparedRun, b: ComparedRun) -> bool:
    """True if the steps between two runs are more than those of both: on one axis each would be a stroke."""
    ends = [(steps[0], steps[-1]) for side in (a, b) for shown in side.views if (steps := side.recorded(shown))]
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


def _course_numbers(runs: Sequence[SideRun], column: str) -> pl.DataFrame:
    parts = [
        run.frame.select(
            pl.lit("AB"[run.side]).alias("side"), pl.lit(run.name).alias("run"), "step",
            *(name for name in (column, f"{column}_se") if name in run.frame.columns),
        )
        for run in runs
    ]  # fmt: skip
    return pl.concat(parts, how="diagonal_relaxed")
