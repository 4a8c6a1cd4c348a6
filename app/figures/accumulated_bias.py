"""The bias of a gap in the gradient, added up over the steps: a straight slope is a bias, a walk about 0 is noise."""

import polars as pl

from ..presentation.digits import plus_minus, signed
from ..presentation.escape import plotly as escaped
from ..presentation.theme import LIGHT, Theme
from .drawing.along import axis_along
from .drawing.bands import BAND, NO_ERROR, edges, shaded
from .drawing.canvas import canvas, saying
from .drawing.floats import floats
from .drawing.marks import add_events, fit
from .drawing.plot import Pen, line_trace
from .drawing.plotly_objects import go
from .drawing.scale import suitable
from .drawing.thinning import thinned_steps
from .lags import FEW


def accumulated_bias(
    course: pl.DataFrame, gap: str, said: str, *, events: pl.DataFrame | None = None, theme: Theme = LIGHT
) -> go.Figure:
    """course: columns step, value, accumulated, accumulated_se. said: the bias in a sentence, also why there is none."""
    title = f"{gap} bias in the gradient <i>added up over the steps</i>"
    if course.is_empty():
        return saying(canvas(title, theme=theme, height=250), escaped(said, 300), theme)
    steps = floats(course, "step")
    drawn = thinned_steps(steps, floats(course, "accumulated"), floats(course, "accumulated_se"))
    scale = suitable(drawn.mean)
    band = BAND if course["accumulated_se"].drop_nulls().len() else NO_ERROR
    made = (said, "the sum over the steps so far of sum(A (w - 1)) / sum(|A|)", drawn.note)
    figure = canvas(title, ("parts of sum(|A|)", band, scale.word), theme=theme, height=250, lines=2, made=made)
    plot = fit(figure, theme, scale, [drawn.mean, drawn.mean * 0.0], edges(drawn))
    pen = Pen(theme.of_gap(gap), "added up", size=4, marked=FEW)
    errors = [None if error != error else error for error in drawn.error.tolist()]
    texts = [
        f"added up {signed(total) if error is None else plus_minus(total, error)}"
        for total, error in zip(drawn.mean.tolist(), errors, strict=True)
    ]
    figure.add_traces([*shaded(plot, drawn.middle, edges(drawn), pen.colour), line_trace(plot, drawn, pen, texts)])
    add_events(figure, events, theme)
    axis_along(figure, steps, "step", live=theme.live)
    return figure
