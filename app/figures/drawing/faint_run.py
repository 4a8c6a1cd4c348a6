"""Another run behind the lines of a chart over steps: faint, dashed, without a band of its own."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from ratioscope.arrays import Floats

from ...presentation.digits import digits
from ...presentation.escape import plotly as escaped
from ...presentation.run_names import shortened
from ...presentation.theme import Theme, faded
from .canvas import coloured
from .lines import Line
from .plot import Pen, Plot, Trace, line_trace
from .thinning import LineBuckets, thinned_steps

NAME_ROOM = 32
"""The most characters of the name of another run."""


@dataclass(frozen=True)
class FaintRun:
    """Another run that a chart shows faintly behind its own."""

    name: str
    frame: pl.DataFrame
    """A metric frame with one row per step."""


def within(steps: Floats, other: Line, points: int) -> LineBuckets | None:
    """The other run at the steps from the first to the last of these; None if it has no finite value there."""
    there = (other.steps >= steps.min()) & (other.steps <= steps.max())
    values = other.values[there]
    if not np.isfinite(values).any():
        return None
    return other.bounded(thinned_steps(other.steps[there], values, other.errors[there], points))


def beside_words(beside: FaintRun | None, other: LineBuckets | None, theme: Theme) -> str:
    """Note for the chart: the name of the other run, with the look of its line."""
    if beside is None:
        return ""
    name = escaped(shortened(beside.name, NAME_ROOM))
    return f"{coloured('┄┄', theme.muted)} {name}" if other is not None else f"{name} has no value at these steps"


def faint(plot: Plot, other: LineBuckets, name: str) -> Trace:
    """The line of another run, without marks and without its own band."""
    shown = escaped(shortened(name, NAME_ROOM))
    pen = Pen(faded(plot.theme.muted, 0.75), shown, 1.2, "dash")
    return line_trace(plot, other, pen, [f"{shown}: {digits(mean)}" for mean in other.mean.tolist()])
