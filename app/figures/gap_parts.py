"""The three gaps as mean log-ratios over the steps: the parts of mismatch and of the update in the total of the loss."""

import math

import numpy as np
import polars as pl

from ..presentation.digits import a_step, plus_minus
from ..presentation.theme import LIGHT, Theme
from .drawing.along import axis_along
from .drawing.bands import BAND, NO_ERROR, edges, shaded
from .drawing.canvas import canvas, saying
from .drawing.floats import floats
from .drawing.marks import add_events, fit
from .drawing.plot import Pen, Plot, Trace, line_trace
from .drawing.plotly_objects import go
from .drawing.scale import suitable
from .drawing.thinning import LineBuckets, thinned_steps
from .lags import FEW, legend_below

STYLES = {
    "total": ("solid", "circle"), "mismatch": ("dash", "diamond"), "drift": ("dashdot", "square"), "residual": ("dot", "x"),
}  # fmt: skip


def gap_parts(parts: pl.DataFrame, *, events: pl.DataFrame | None = None, theme: Theme = LIGHT) -> go.Figure:
    """total, mismatch and drift as mean log-ratios over the steps. parts: as decomposition returns them."""
    title = "total = mismatch + drift <i>mean log-ratios</i>"
    if parts.is_empty():
        words = "not available, because no step has all three gaps; record rollout, old and current log-probs of the same tokens"
        return saying(canvas(title, theme=theme, height=330), words, theme)
    bad = parts.filter(~pl.col("holds"))
    sum_note = (
        ""
        if bad.is_empty()
        else f"■ the parts do not add up on {len(bad):,} of {len(parts):,} steps (dotted: the rest): they cover different tokens"
    )
    steps = parts["step"].cast(pl.Float64).to_numpy()
    drawn = {
        gap: thinned_steps(steps, floats(parts, gap), floats(parts, f"{gap}_se"))
        for gap in STYLES
        if gap != "residual" or not bad.is_empty()
    }
    scale = suitable(np.concatenate([each.mean for each in drawn.values()]))
    band = BAND if any(np.isfinite(each.error).any() for each in drawn.values()) else NO_ERROR
    sizes = a_step(parts["tokens"].drop_nulls().to_list(), "token")
    made = ("averaged over all trained tokens", sizes, drawn["total"].note)
    notes = (sum_note, "nats/token, later − earlier", band, scale.word)
    figure = canvas(title, notes, theme=theme, height=330, lines=2, made=made)
    areas = [area for each in drawn.values() for area in edges(each)]
    zero = np.zeros(1)  # readers compare the parts with zero, if the axis has one
    plot = fit(figure, theme, scale, [zero, *(each.mean for each in drawn.values())], areas)
    figure.add_traces([trace for gap, line in drawn.items() for trace in _traces(plot, gap, line)])
    add_events(figure, events, theme)
    axis_along(figure, steps, "step")
    legend_below(figure, theme)
    return figure


def _traces(plot: Plot, gap: str, drawn: LineBuckets) -> list[Trace]:
    dash, symbol = STYLES[gap]
    colour = plot.theme.gaps.get(gap, plot.theme.severity["act"])
    pen = Pen(colour, gap, 2 if gap == "total" else 1.4, dash, symbol, marked=FEW)
    errors = [None if math.isnan(error) else error for error in drawn.error.tolist()]
    texts = [
        f"{gap} {plus_minus(mean, error)} nats/token" for mean, error in zip(drawn.mean.tolist(), errors, strict=True)
    ]
    return [*shaded(plot, drawn.middle, edges(drawn), colour), line_trace(plot, drawn, pen, texts)]
