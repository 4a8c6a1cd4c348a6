"""Severity per step: one bar a step (or bucket of steps, the worst of which counts); height, colour and word say the same."""

import numpy as np
import plotly.graph_objects as go
import polars as pl

from ..digits import count
from ..escape import plotly as escaped
from ..theme import LIGHT, MARKS, Theme
from .canvas import canvas, saying
from .over_steps import step_axis

BARS = 300
HEIGHTS = {"healthy": 1, "watch": 2, "act": 3}


def severity_ribbon(grades: pl.DataFrame, *, theme: Theme = LIGHT, height: int = 150, bars: int = BARS) -> go.Figure:
    """One bar per step of `grades` (columns step, severity, reading); a click on a bar gives the worst step in it as x."""
    rows = worst_of_buckets(grades, bars)
    widest = len(rows) < len(grades)
    note = (
        f"showing {len(rows):,} bars of {len(grades):,} steps, the worst step of each"
        if widest
        else count(len(grades), "step")
    )
    figure = canvas("severity per step", (note, "the worst graded signal of a step counts"), theme=theme, height=height)
    if rows.is_empty():
        return saying(figure, "no step is graded yet", theme)
    width = _width(grades, rows)
    figure.add_bar(
        x=rows["step"].to_list(),
        y=[HEIGHTS[severity] for severity in rows["severity"]],
        width=width,
        marker={"color": [theme.severity[severity] for severity in rows["severity"]], "line": {"width": 0}},
        customdata=[_words(row) for row in rows.iter_rows(named=True)],
        hovertemplate="%{customdata}<extra></extra>",
        name="severity",
    )
    words = [f"{MARKS[severity]} {severity}" for severity in HEIGHTS]
    figure.update_yaxes(
        range=[0, 3.2], tickvals=list(HEIGHTS.values()), ticktext=words, tickfont={"size": 10}, fixedrange=True
    )
    figure.update_layout(bargap=0, hovermode="x", dragmode=False, margin={"b": 28})
    step_axis(figure, grades["step"].cast(pl.Float64).to_numpy(), width)
    return figure


def worst_of_buckets(grades: pl.DataFrame, bars: int) -> pl.DataFrame:
    """The worst step (the first of equals) of each of at most `bars` buckets of steps in order."""
    ranked = grades.sort("step").with_columns(rank=pl.col("severity").replace_strict(HEIGHTS, return_dtype=pl.Int8))
    per_bucket = -(-len(grades) // bars) if len(grades) else 1
    return (
        ranked.with_row_index("row")
        .with_columns(bucket=pl.col("row") // per_bucket)
        .sort("bucket", "rank", "row", descending=[False, True, False])
        .unique("bucket", keep="first", maintain_order=True)
    )


def _width(grades: pl.DataFrame, rows: pl.DataFrame) -> float:
    """Bars touch where steps follow each other; one in eight is left free where there are few."""
    steps = grades["step"].to_numpy()
    share = float(np.ptp(steps) + 1) / len(rows)
    return share * (0.86 if len(rows) <= 60 else 1.0)


def _words(row: dict[str, object]) -> str:
    reading = f": {escaped(str(row['reading']), 160)}" if row.get("reading") else ""
    return f"step {row['step']} {MARKS[str(row['severity'])]} {row['severity']}{reading}"
