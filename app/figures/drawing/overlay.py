"""Lines, bands and words over a figure, as plain dictionaries that are added in one call.

Plotly's own add_vline and add_annotation validate the whole figure each time: two dozen events cost a third of a second.
"""

from collections.abc import Iterable
from typing import Any

from .plotly_objects import go

Overlay = dict[str, Any]


def horizontal_line(y: float, colour: str, *, width: float = 1, dash: str = "solid") -> Overlay:
    """A line from side to side."""
    line = {"color": colour, "width": width, "dash": dash}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line, "layer": "above"}


def vertical_line(x: float, colour: str, *, width: float = 1, dash: str = "solid", layer: str = "below") -> Overlay:
    """A line from top to bottom."""
    line = {"color": colour, "width": width, "dash": dash}
    return {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": line, "layer": layer}


def horizontal_band(low: float, high: float, colour: str) -> Overlay:
    """A band from side to side, behind everything."""
    return _rectangle({"xref": "paper", "x0": 0, "x1": 1, "y0": low, "y1": high}, colour)


def vertical_band(first: float, last: float, colour: str) -> Overlay:
    """A band from top to bottom, behind everything."""
    return _rectangle({"yref": "paper", "y0": 0, "y1": 1, "x0": first, "x1": last}, colour)


def ring(x: float, y: float, colour: str) -> Overlay:
    """A ring around a point, of 15 pixels."""
    place = {"xsizemode": "pixel", "ysizemode": "pixel", "xanchor": x, "yanchor": y}
    ends = {"x0": -7.5, "x1": 7.5, "y0": -7.5, "y1": 7.5}
    return {"type": "circle", **place, **ends, "line": {"color": colour, "width": 2}, "layer": "above"}


def words(text: str, colour: str, *, size: int = 11, **place: Any) -> Overlay:
    """Words at a place (Plotly's x, y, xref, xanchor ... of an annotation). The text must come escaped."""
    return {"text": text, "showarrow": False, "font": {"size": size, "color": colour}, **place}


def on_paper(x: float, xanchor: str, y: float, yanchor: str, **shift: float) -> Overlay:
    """A place for words, as shares of the chart's width and height. The anchors are the sides of the words that lie there."""
    return {"x": x, "xref": "paper", "xanchor": xanchor, "y": y, "yref": "paper", "yanchor": yanchor, **shift}


def lay_over(figure: go.Figure, shapes: Iterable[Overlay] = (), texts: Iterable[Overlay] = ()) -> go.Figure:
    """The figure with these shapes and texts besides its own."""
    layout: Any = figure.layout  # plotly makes its attributes at run time
    added = {"shapes": [*shapes], "annotations": [*texts]}
    for name in (name for name, overlays in added.items() if overlays):
        # update_layout takes twice as long
        layout[name] = [*(each.to_plotly_json() for each in layout[name]), *added[name]]
    return figure


def _rectangle(place: Overlay, colour: str) -> Overlay:
    return {"type": "rect", **place, "fillcolor": colour, "line": {"width": 0}, "layer": "below"}
