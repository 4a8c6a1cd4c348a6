"""The axis of a chart over steps."""

import plotly.graph_objects as go

from .scale import Floats


def step_axis(figure: go.Figure, steps: Floats, width: float = 1.0) -> None:
    """The steps as x axis, ticked at whole steps, with the two ends in full view. width: of what is drawn at a step.

    Margins stay as they were given: numbers of a few digits fit, and Plotly takes twice as long to draw a chart that it has to
    lay out again around its labels. What names its rows lets them grow again, see `fit_labels`.
    """
    first, last = float(steps.min()), float(steps.max())
    room = max(width / 2, 0.01 * (last - first))
    figure.update_xaxes(range=[first - room, last + room], tickformat="d", dtick=1 if last - first < 8 else None)
    figure.update_xaxes(tickprefix="step ", showtickprefix="first")
    figure.update_xaxes(unifiedhovertitle={"text": "step %{x:d}"})
    figure.update_layout(margin={"autoexpand": False})


def fit_labels(figure: go.Figure) -> None:
    """Lets the margins of a chart over steps grow with what stands in them: names, a title of the axis."""
    figure.update_layout(margin={"autoexpand": True})
