"""The three gaps as mean log-ratios over the steps: how much of what the loss sees is mismatch, how much the update."""

import numpy as np
import plotly.graph_objects as go
import polars as pl

from ..digits import digits
from ..theme import LIGHT, Theme
from .canvas import canvas, saying
from .lags import FEW, hide_events_in_legend
from .marks import add_events
from .over_steps import step_axis
from .scale import padded, suitable
from .thinned import thinned

STYLES = {
    "total": ("solid", "circle"), "mismatch": ("dash", "diamond"), "drift": ("dashdot", "square"), "residual": ("dot", "x"),
}  # fmt: skip


def gap_parts(
    parts: pl.DataFrame, *, events: pl.DataFrame | None = None, theme: Theme = LIGHT, height: int = 330
) -> go.Figure:
    """total, mismatch and drift as mean log-ratios over the steps. parts: as decomposition gives them."""
    title = "total = mismatch + drift <i>mean log-ratios</i>"
    if parts.is_empty():
        words = "no step has all three gaps: record rollout, old and current log-probs of the same tokens"
        return saying(canvas(title, theme=theme, height=height), words, theme)
    bad = parts.filter(~pl.col("holds"))
    worst = parts.sort(pl.col("residual").abs(), descending=True).row(0, named=True)
    told = (
        f"the parts add up on all {len(parts):,} steps, to {digits(abs(worst['residual']), 1)}"
        if bad.is_empty()
        else f"■ they do not add up on {len(bad):,} of {len(parts):,} steps (dotted: what is left): not the same tokens"
    )
    notes = ("nats/token, later − earlier", told)
    steps = parts["step"].cast(pl.Float64).to_numpy()
    drawn = {gap: thinned(steps, parts[gap].to_numpy()) for gap in ("total", "mismatch", "drift")}
    if not bad.is_empty():
        drawn["residual"] = thinned(steps, parts["residual"].to_numpy())
    note = drawn["total"].note
    scale = suitable(np.concatenate([each.mean for each in drawn.values()]))
    figure = canvas(title, (*notes, note, scale.word), theme=theme, height=height, lines=2)
    few = len(steps) <= FEW
    for gap, line in drawn.items():
        colour = theme.gaps.get(gap, theme.severity["act"])
        dash, symbol = STYLES[gap]
        figure.add_scatter(
            x=line.middle,
            y=scale.place(line.mean),
            mode="lines+markers" if few else "lines",
            line={"color": colour, "width": 2 if gap == "total" else 1.4, "dash": dash},
            marker={"symbol": symbol, "size": 6, "color": colour},
            name=gap,
            customdata=[
                [first, last, value] for first, last, value in zip(line.first, line.last, line.mean, strict=True)
            ],
            hovertemplate=f"{gap} %{{customdata[2]:.3g}} nats/token<extra></extra>",
        )
    edges = np.concatenate([scale.place(edge) for each in drawn.values() for edge in (each.low, each.high)])
    figure.update_yaxes(**scale.axis(*padded(float(np.nanmin([*edges, 0])), float(np.nanmax([*edges, 0])))))
    figure.update_layout(hovermode="x unified")
    add_events(figure, events, theme)
    hide_events_in_legend(figure)
    step_axis(figure, steps)
    figure.update_layout(
        showlegend=True, legend={"y": -0.16, "yanchor": "top", "x": 0, "xanchor": "left"}, margin={"b": 66}
    )
    return figure
