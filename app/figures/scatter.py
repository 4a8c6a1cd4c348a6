"""One column against another: a point per step or per sequence, coloured by step, with their rank correlation."""

import math

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.metrics.analysis.quantiles import RankCorrelation, rank_correlation

from ..presentation.digits import count, digits
from ..presentation.escape import plotly as escaped
from ..presentation.theme import LIGHT, Theme, faded
from .drawing.canvas import canvas, saying
from .drawing.floats import floats
from .drawing.plotly_objects import go
from .drawing.scale import LOGARITHMIC, PLAIN, Scale, padded

MOST = 5000
"""Most points that are drawn: the first and the last, and even parts between."""


def scatter(
    frame: pl.DataFrame,
    names: tuple[str, str],
    of: str,
    *,
    logarithmic: tuple[bool, bool] = (False, False),
    theme: Theme = LIGHT,
) -> go.Figure:
    """frame: columns x, y, step, key (what a click leads to) and label. names: of x and y. of: what a point is, "step"."""
    x, y = floats(frame, "x"), floats(frame, "y")
    scales = tuple(LOGARITHMIC if each else PLAIN for each in logarithmic)
    places = (scales[0].place(x), scales[1].place(y))
    shown = np.isfinite(places[0]) & np.isfinite(places[1])
    lost = int((~shown).sum())
    kept = np.flatnonzero(shown)
    drawn = kept[np.linspace(0, len(kept) - 1, MOST).round().astype(int)] if len(kept) > MOST else kept
    correlation = rank_correlation(x, y)
    notes = (
        correlation_words(correlation, of),
        f"{count(lost, of)} not drawn" if lost else "",
        f"a point is a {of}, colour: step",
    )
    made = (
        "Spearman's rank correlation" if correlation is not None else "",
        f"its interval takes {of}s for independent"
        if correlation is not None and not math.isnan(correlation.low)
        else "",
        f"not drawn: {of}s without a value, or without a place on a logarithmic axis" if lost else "",
        f"N = {count(len(kept), of)}",
        f"showing {MOST:,} of them" if len(kept) > MOST else "",
    )
    title = f"{escaped(names[1], 60)} against {escaped(names[0], 60)}"
    figure = canvas(title, notes, theme=theme, height=380, lines=2, made=made)
    if not len(kept):
        return saying(figure, f"not available, because no {of} has both values", theme)
    steps = floats(frame, "step")[drawn]
    figure.add_scatter(
        x=places[0][drawn],
        y=places[1][drawn],
        mode="markers",
        marker={"size": 6, "color": steps, "colorscale": [[0, faded(theme.primary, 0.25)], [1, theme.primary]]},
        customdata=[[key, words] for key, words in frame.select("key", "label")[drawn.tolist()].rows()],
        hovertext=_words(frame, names, drawn),
        hoverinfo="text",
        name="points",
    )
    for axis, scale, place, name in zip(("x", "y"), scales, places, names, strict=True):
        figure.update_layout({f"{axis}axis": _axis(scale, place[drawn], name)})
    return figure


def correlation_words(correlation: RankCorrelation | None, of: str) -> str:
    """The correlation with its uncertainty, or why it has none."""
    if correlation is None:
        return "rank correlation: not available, because one side does not vary"
    if math.isnan(correlation.low):
        return f"rank correlation {digits(correlation.value, 2)}, too few {of}s for an interval"
    between = f"{digits(correlation.low, 2)} to {digits(correlation.high, 2)}"
    return f"rank correlation {digits(correlation.value, 2)} (95% interval {between})"


def _axis(scale: Scale, places: Floats, name: str) -> dict[str, object]:
    return {**scale.axis(*padded(float(places.min()), float(places.max()))), "title": {"text": escaped(name, 60)}}


def _words(frame: pl.DataFrame, names: tuple[str, str], drawn: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[str]:
    rows = frame.select("label", "x", "y")[drawn.tolist()].rows()
    first, second = (escaped(name, 60) for name in names)
    return [f"{escaped(label, 60)}<br>{first} {digits(x)}<br>{second} {digits(y)}" for label, x, y in rows]
