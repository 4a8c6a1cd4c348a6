"""The trade of each threshold: the effective sample size that is left against the bias. The chosen threshold is marked."""

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from ratioscope.arrays import Floats

from ..presentation.digits import digits, percent
from ..presentation.theme import LIGHT, Theme
from .drawing.bands import NO_ERROR
from .drawing.canvas import canvas, coloured, saying
from .drawing.overlay import lay_over, ring, words
from .drawing.plotly_objects import go
from .drawing.scale import LOGARITHMIC, padded

DASH = {"truncate": "solid", "mask": "dot", "reject": "dash"}
SYMBOL = {"truncate": "circle", "mask": "square", "reject": "diamond"}
LABELLED = (1.0005, 1.001, 1.01, 1.05, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 100.0)
"""Caps worth a label."""
CLOSE = 0.09
"""Share of both axes within which a second label has no room."""
ABOVE, BELOW = "top center", "bottom left"
"""The place of a label: a falling curve has room to the left and below."""


def threshold_frontier(
    curve: pl.DataFrame,
    chosen: tuple[str, float, float, float] | None,
    *,
    unit: str = "tokens",
    low: float = 0.0,
    theme: Theme = LIGHT,
) -> go.Figure:
    """The curve of `threshold_effect.frontier`: bias to the right, on a log axis, ESS upwards, a point per published cap.

    Caps without effect have no bias and no place. chosen: (rule, cap, bias, ESS) of the chosen threshold.
    """
    bound = f"lower bound {digits(low, 5)}" if low > 0 else "no lower bound"
    names = "  ".join(coloured(f"{_LINES[rule]} {rule}", _colour(rule, theme)) for rule in _rules(curve))
    notes, made = (f"each point is a cap, {bound}",), (f"N = {unit}, {NO_ERROR}",)
    figure = canvas("Bias and ESS of every cap", notes, theme=theme, height=300, lines=2, made=made, key=(names,))
    known = curve.filter(pl.col("bias").is_finite() & (pl.col("bias") > 1e-12) & pl.col("ess_after").is_finite())
    if known.is_empty():
        return saying(figure, "no cap changes a weight here, or every cap removes all of them", theme)
    places = LOGARITHMIC.place(known["bias"].to_numpy())
    shown = padded(float(places.min()), float(places.max()))
    spans = shown[1] - shown[0], float(np.ptp(known["ess_after"].to_numpy())) or 1.0
    for rule in _rules(known):
        _add_rule(figure, known.filter(pl.col("rule") == rule), rule, spans, theme)
    if chosen is not None and all(map(math.isfinite, chosen[2:])):
        # A ring around the chosen threshold; at the end of the axis if its bias lies beyond. It lies over the figure
        # and is no trace of it: Plotly redraws all traces if one has changed, which takes six times as long.
        rule, cap, bias, ess = chosen
        at = min(max(math.log10(bias), shown[0]), shown[1]) if bias > 0 else shown[0]
        fact = f"chosen: {rule} at {digits(cap, 5)}, bias {digits(bias)}, ESS {percent(ess)}"
        place = words("&#160;", theme.text, x=at, y=ess, width=12, hovertext=fact)
        lay_over(figure, [ring(at, ess, theme.text)], [place])
    figure.update_xaxes(title={"text": "bias: mean |v − w|, log axis"}, **LOGARITHMIC.axis(*shown))
    figure.update_yaxes(title={"text": "ESS after"})
    return figure


_LINES = {"truncate": "━", "mask": "┅", "reject": "╌"}


def _rules(curve: pl.DataFrame) -> list[str]:
    return curve["rule"].unique(maintain_order=True).to_list() if len(curve) else []


def _colour(rule: str, theme: Theme) -> str:
    return theme.series[list(DASH).index(rule)]


def _add_rule(figure: go.Figure, rows: pl.DataFrame, rule: str, spans: tuple[float, float], theme: Theme) -> None:
    x, y = LOGARITHMIC.place(rows["bias"].to_numpy()), rows["ess_after"].to_numpy()
    facts = [
        f"{rule} at {digits(row['cap'], 5)}: bias {digits(row['bias'])}, ESS {percent(row['ess_after'])}, "
        f"clipped {percent(row['clipped_share'])}, mean weight {digits(row['mean_weight'])}"
        for row in rows.iter_rows(named=True)
    ]
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines+markers+text",
        line={"color": _colour(rule, theme), "width": 1.4, "dash": DASH[rule]},
        marker={"size": 5, "symbol": SYMBOL[rule], "color": _colour(rule, theme)},
        text=_labels(rows["cap"].to_list(), x / spans[0], y / spans[1]),
        textposition=ABOVE if rule == "truncate" else BELOW,
        textfont={"size": 10, "color": theme.muted},
        name=rule,
        customdata=facts,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _labels(caps: Sequence[float], x: Floats, y: Floats) -> list[str]:
    """The label of each cap, empty where another stands too near. x, y: its place as a share of the axes."""
    labels, taken = list[str](), list[tuple[float, float]]()
    for cap, place in zip(caps, zip(x, y, strict=True), strict=True):
        near = any(max(abs(place[0] - other[0]), abs(place[1] - other[1])) < CLOSE for other in taken)
        is_labelled = any(math.isclose(cap, label) for label in LABELLED) and not near
        labels.append(digits(cap, 5) if is_labelled else "")
        if is_labelled:
            taken.append(place)
    return labels
