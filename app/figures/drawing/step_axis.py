"""The axis of a chart over steps."""

from ratioscope.arrays import Floats

from .plotly_objects import go


def step_axis(figure: go.Figure, steps: Floats, width: float = 1.0) -> None:
    """Sets the x axis to the steps, with ticks at whole steps and both ends in full view. width: the width of a mark, in steps.

    Margins stay fixed: numbers of a few digits fit, and Plotly takes twice as long to draw a chart whose margins depend on its
    labels. A chart with names of rows lets margins grow, see `fit_labels`.
    """
    first, last = float(steps.min()), float(steps.max())
    room = max(width / 2, 0.01 * (last - first))
    figure.update_xaxes(
        range=[first - room, last + room],
        tickformat="d",
        dtick=1 if last - first < 8 else None,
        tickprefix="step ",
        showtickprefix="first",
        unifiedhovertitle={"text": "step %{x:d}"},
    )
    figure.update_layout(margin={"autoexpand": False})


def fit_labels(figure: go.Figure) -> None:
    """Lets the margins of a chart over steps grow with the names of rows or the title of an axis."""
    figure.update_layout(margin={"autoexpand": True})
