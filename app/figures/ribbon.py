"""Severity per step: a bar per step, or per bucket of steps with its worst step. Height, colour and word agree.

The bars are a chart of their own, or a strip below the line of another one.
"""

from collections.abc import Callable

import numpy as np
import polars as pl

from ..presentation.digits import count
from ..presentation.theme import LIGHT, MARKS, Theme
from .drawing.along import step_axis
from .drawing.canvas import canvas, saying
from .drawing.hover import in_lines
from .drawing.marks import OF_MARKS, add_events
from .drawing.plot import Trace
from .drawing.plotly_objects import go

BARS = 300
HEIGHTS = {"healthy": 1, "watch": 2, "act": 3}
STRIP = 0.16
"""The share of a chart's height that the bars below a line take, and the room above them."""


def severity_ribbon(
    grades: pl.DataFrame, *, events: pl.DataFrame | None = None, theme: Theme = LIGHT, bars: int = BARS
) -> go.Figure:
    """One bar per step of `grades` (columns step, severity, reading), or per bucket of steps if there are more steps than bars.

    The customdata of a bar is its words and its worst step. events: columns step, event, note, kind.
    """
    rows = worst_of_buckets(grades, bars)
    worst = f"showing {len(rows):,} bars of N = {len(grades):,} steps, the worst step of each"
    note = worst if len(rows) < len(grades) else f"N = {count(len(grades), 'step')}"
    graded = "a bar shows the worst signal of its step, after allowing for sampling error"
    figure = canvas("Severity per step", (graded,), theme=theme, height=164, lines=2, made=(note,))
    if rows.is_empty():
        return saying(figure, "no step is graded: too little of the gap is known", theme)
    widths = _widths(rows)
    figure.add_bar(**_bars(rows, widths, theme), y=[HEIGHTS[severity] for severity in rows["severity"]])
    words = [f"{MARKS[severity]} {severity}" for severity in HEIGHTS]
    figure.update_yaxes(
        range=[0, 3.7], tickvals=list(HEIGHTS.values()), ticktext=words, tickfont={"size": 10}, fixedrange=True
    )
    figure.update_layout(bargap=0, dragmode=False, margin={"b": 34})
    add_events(figure, events, theme)
    step_axis(figure, grades["step"].cast(pl.Float64).to_numpy(), float(max(widths)))
    return figure


def add_severity(
    figure: go.Figure,
    grades: pl.DataFrame,
    theme: Theme,
    in_words: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
) -> None:
    """Adds the bars as a strip at the bottom edge of a chart whose line leaves STRIP of the height free.

    A figure without marks of events gains their axis, which runs from 0 to 1.
    """
    rows = worst_of_buckets(grades, BARS)
    rows = rows if in_words is None else in_words(rows)
    if rows.is_empty():
        return
    tall = [0.8 * STRIP * HEIGHTS[severity] / max(HEIGHTS.values()) for severity in rows["severity"]]
    figure.update_layout(bargap=0, yaxis2=OF_MARKS)
    figure.add_bar(**_bars(rows, _widths(rows), theme), y=tall, yaxis="y2")


def _bars(rows: pl.DataFrame, widths: list[float], theme: Theme) -> Trace:
    return {
        "x": ((rows["first"] + rows["last"]) / 2).to_list(),
        "width": widths,
        "marker": {"color": [theme.severity[severity] for severity in rows["severity"]], "line": {"width": 0}},
        "customdata": [[_words(row), row["step"]] for row in rows.iter_rows(named=True)],
        "hovertemplate": "%{customdata[0]}<extra></extra>",
        "name": "severity",
    }


def worst_of_buckets(grades: pl.DataFrame, bars: int) -> pl.DataFrame:
    """The worst step (the first of equals) of each of at most `bars` buckets of steps in order; `first`, `last` bound it."""
    per_bucket = -(-len(grades) // bars) if len(grades) else 1
    ranked = (
        grades.sort("step")
        .with_row_index("row")
        .with_columns(
            rank=pl.col("severity").cast(pl.String).replace_strict(HEIGHTS, return_dtype=pl.Int8),
            bucket=pl.col("row") // per_bucket,
        )
    )
    return (
        ranked.with_columns(first=pl.col("step").min().over("bucket"), last=pl.col("step").max().over("bucket"))
        .sort("bucket", "rank", "row", descending=[False, True, False])
        .unique("bucket", keep="first", maintain_order=True)
    )


def _widths(rows: pl.DataFrame) -> list[float]:
    """Bars reach from the first to the last step of their bucket and nearly touch; a lone one is never too thin to see."""
    first, last = (rows[name].to_numpy().astype(np.float64) for name in ("first", "last"))
    apart = float(np.min(first[1:] - last[:-1])) if len(rows) > 1 else 1.0
    least = float(last[-1] - first[0]) / 250
    gap = 0.86 if len(rows) <= 60 else 1.0
    return [max(float(width), least) for width in (last - first + apart) * gap]


def _words(row: dict[str, object]) -> str:
    reading = f": {row['reading']}" if row.get("reading") else ""
    return "<br>".join(in_lines(f"step {row['step']} {MARKS[str(row['severity'])]} {row['severity']}{reading}", 200))
