"""What is drawn over a chart's data: severity limits with their words, and the events of the run."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import polars as pl

from ratioscope.layout import FIRST_ROWS

from ..escape import plotly as escaped
from ..limit import Limit
from ..theme import Theme, faded
from .overlay import Overlay, across, lay_over, shelf, upright, words
from .scale import Scale

LINES = 24
"""More events than this are marked at the top edge only; that many lines would hide the data."""
SHOWN = 400
"""More events than this share a mark with their neighbours; the hover says how many."""


def within_reach(limits: Sequence[Limit], low: float, high: float, scale: Scale) -> list[Limit]:
    """The limits near enough to the data, in axis positions low to high, that the axis may stretch to show them."""
    room = 1.0 if scale.logarithmic else 1.2 * max(high - low, 1e-12)
    return [limit for limit in limits if low - room <= float(scale.place(limit.at)) <= high + room]


def add_limits(
    figure: go.Figure, limits: Sequence[Limit], scale: Scale, shown: tuple[float, float], theme: Theme
) -> None:
    """A dashed line with its words at the left end, and a breath of its colour on the worse side."""
    low, high = shown
    shapes: list[Overlay] = []
    texts: list[Overlay] = []
    for limit in limits:
        place = float(scale.place(limit.at))
        if not low <= place <= high:
            continue
        colour = theme.severity[limit.severity] if limit.severity else theme.muted
        if limit.severity:
            shapes.append(shelf(*((place, high) if limit.worse == "above" else (low, place)), faded(colour, 0.05)))
        shapes.append(across(place, faded(colour, 0.8), dash="dash"))
        texts.append(_limit_words(limit, place, shown, theme))
    lay_over(figure, shapes, texts)


def _limit_words(limit: Limit, place: float, shown: tuple[float, float], theme: Theme) -> Overlay:
    """The limit's words on its worse side, unless the axis ends there, where events are marked."""
    share = (place - shown[0]) / (shown[1] - shown[0])
    above = share < 0.86 if limit.worse == "above" else share < 0.14
    return words(
        limit.words,
        theme.ink[limit.severity] if limit.severity else theme.muted,
        size=10,
        x=0,
        xref="paper",
        xanchor="left",
        xshift=2,
        y=place,
        yanchor="bottom" if above else "top",
        bgcolor=faded(theme.background, 0.6),
        borderpad=0,
    )


def add_events(figure: go.Figure, events: pl.DataFrame | None, theme: Theme) -> None:
    """A small mark at the top edge where something happened in the run (columns step, event, note); its words on hover."""
    events = None if events is None else events.filter(pl.col("event") != FIRST_ROWS)
    if events is None or events.is_empty():
        return
    marks = _grouped(events)
    figure.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})
    figure.add_trace(
        go.Scatter(
            x=marks["step"].to_list(),
            y=[1.0] * len(marks),
            yaxis="y2",
            mode="markers",
            marker={"symbol": "triangle-down", "size": 6, "color": theme.muted},
            customdata=marks["words"].to_list(),
            hovertemplate="%{customdata}<extra></extra>",
            name="events",
            cliponaxis=False,
        )
    )
    if len(events) <= LINES:
        lay_over(figure, [upright(step, theme.border, dash="dot") for step in marks["step"].to_list()])


def _grouped(events: pl.DataFrame) -> pl.DataFrame:
    """At most SHOWN marks: the first step of a bucket of steps, and the words of its events."""
    known = events.drop_nulls("step").with_columns(
        words=pl.concat_str(pl.col("event"), pl.col("note").fill_null(""), separator=" ").str.strip_chars()
    )
    steps = known["step"].to_numpy()
    width = max(1, int(np.ptp(steps) // SHOWN) + 1) if len(steps) else 1
    rows = known.with_columns(bucket=pl.col("step") // width).group_by("bucket", maintain_order=True)
    marks = rows.agg(pl.col("step").min(), pl.col("words").head(3), count=pl.len()).sort("step")
    shown = [
        "<br>".join(escaped(text, 120) for text in row["words"])
        + (f"<br>and {row['count'] - 3} more" if row["count"] > 3 else "")
        for row in marks.iter_rows(named=True)
    ]
    return marks.select("step").with_columns(words=pl.Series(shown, dtype=pl.String))
