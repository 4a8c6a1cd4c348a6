"""Quantiles of the log-ratios over the steps: median, the middle nine tenths, and the extremes."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.metrics.step_holes import holes

from ..presentation.digits import count, digits
from ..presentation.escape import plotly as escaped
from ..presentation.theme import LIGHT, Theme
from .drawing.along import Along, axis_along
from .drawing.bands import shaded
from .drawing.canvas import canvas, saying
from .drawing.floats import floats
from .drawing.lines import AxisType
from .drawing.marks import add_events
from .drawing.overlay import horizontal_line, lay_over
from .drawing.plot import Plot
from .drawing.plotly_objects import go
from .drawing.scale import PLAIN, Scale, padded, signed_log, suitable

QUANTILES = ("min", "p5", "p50", "p95", "max")
BANDS = "line: median, band: p5 to p95, pale: min to max"


def log_ratio_quantiles(
    frame: pl.DataFrame,
    gap: str,
    *,
    x: Floats | None = None,
    axis: AxisType = "auto",
    along: Along = "step",
    events: pl.DataFrame | None = None,
    notes: Sequence[str] = (),
    absent: str | None = None,
    theme: Theme = LIGHT,
) -> go.Figure:
    """frame: as quantiles_over_steps returns it (first, last, count, p5, p50, p95), with min and max of the same steps.

    absent: why there are no rows, if that is known.
    x: places of the rows on the axis; the middle of their steps unless given.
    """
    steps = int(frame["steps"].sum()) if len(frame) else 0
    title = f"Log-ratio quantiles <i>{gap}</i>"
    if not len(frame):
        words = absent or "not available, because no distribution covers these steps and tokens"
        return saying(canvas(title, ["nats", *map(escaped, notes)], theme=theme, height=250, lines=2), words, theme)
    scale = _scale(axis, frame)
    pooled = f"{len(frame):,} columns of {steps:,} steps, their counts added" if steps > len(frame) else ""
    refused = "no log axis: log-ratios have two signs" if axis == "log" else ""
    said = ("nats", *(escaped(note, 160) for note in notes), refused, BANDS, scale.word)
    size = f"N = {count(float(frame['count'].sum()), 'token')}"
    made = ("all trained tokens alike", size, "p5 to p95: to the resolution of the histogram", pooled)
    figure = canvas(title, said, theme=theme, height=250, lines=2, made=made)
    places = ((frame["first"] + frame["last"]) / 2).to_numpy() if x is None else x
    colour = theme.of_gap(gap)
    at = holes(frame["first"].to_numpy(), frame["last"].to_numpy()) + 1
    x, course = np.insert(places, at, np.nan), {name: np.insert(floats(frame, name), at, np.nan) for name in QUANTILES}
    plot = _plot(figure, scale, frame, theme)
    areas = [(course[low], course[high], opacity) for low, high, opacity in (("min", "max", 0.1), ("p5", "p95", 0.22))]
    figure.add_traces(shaded(plot, x, areas, colour))
    figure.add_scatter(
        x=x, y=scale.place(course["p50"]), mode="lines" if len(frame) > 1 else "markers",
        line={"color": colour, "width": 1.6}, customdata=np.insert([_words(row) for row in frame.iter_rows(named=True)], at, ""),
        hovertemplate="%{customdata}<extra></extra>", name="p50",
    )  # fmt: skip
    if plot.shown[0] < 0 < plot.shown[1]:
        lay_over(figure, [horizontal_line(0, theme.muted, width=0.7, dash="dot")])
    add_events(figure, events, theme)
    axis_along(figure, places, along)
    return figure


def _plot(figure: go.Figure, scale: Scale, frame: pl.DataFrame, theme: Theme) -> Plot:
    """The figure with a value axis that all quantiles fit into."""
    edges = np.concatenate([scale.place(frame[name]) for name in ("min", "max", "p5", "p95")])
    edges = edges[np.isfinite(edges)]
    plot = Plot(figure, scale, padded(float(edges.min()), float(edges.max())), theme)
    figure.update_yaxes(**scale.axis(*plot.shown))
    return plot


def _scale(axis: AxisType, frame: pl.DataFrame) -> Scale:
    if axis == "linear":
        return PLAIN
    bulk = frame.select(pl.max_horizontal(pl.col("p5").abs(), pl.col("p95").abs())).to_series()
    ends = frame.select(pl.max_horizontal(pl.col("min").abs(), pl.col("max").abs())).to_series()
    largest = ends.filter(ends.is_finite()).max()
    typical = bulk.median()
    if not isinstance(largest, float) or not isinstance(typical, float):
        return suitable(bulk)
    return signed_log(typical / 2, largest) if axis != "auto" or largest > 5 * typical else PLAIN


def _words(row: dict[str, float]) -> str:
    where = f"steps {row['first']:.0f}–{row['last']:.0f}: " if row["first"] < row["last"] else ""
    middle = f"p50 {digits(row['p50'])} · p5 {digits(row['p5'])} to p95 {digits(row['p95'])}"
    return f"{where}{middle} · min {digits(row['min'])} to max {digits(row['max'])} · {count(row['count'], 'token')}"
