"""When alerts rang: one lane per signal and gap, a bar from the first step out of bounds to the last, pale where it was not."""

from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl

from ..digits import count
from ..escape import plotly as escaped
from ..theme import LIGHT, MARKS, Theme, faded
from .canvas import canvas, saying
from .marks import add_events
from .over_steps import fit_labels, step_axis
from .scale import Floats

LANE = 30
WIDTH = 0.62
PALE = 0.35
FINEST = 800
"""Stretches out of bounds that are nearer to each other than the axis over this are one to the eye."""
Spans = Sequence[tuple[int, int]]
"""First and last step of each stretch out of bounds."""
BARS = 400
"""More alerts than this: the longest are drawn, and the figure says so."""


def alert_lanes(
    alerts: pl.DataFrame,
    steps: Floats,
    outside: Sequence[Spans],
    *,
    events: pl.DataFrame | None = None,
    theme: Theme = LIGHT,
) -> go.Figure:
    """alerts: see alert_frame; steps: those of the run; outside: of each alert, its stretches out of bounds.

    The customdata of a bar is its words and its row in `alerts`.
    """
    drawn = alerts.with_row_index("row").sort(pl.col("last_step") - pl.col("first_step"), descending=True).head(BARS)
    drawn = drawn.sort("row")
    size = f"N = {count(len(alerts), 'alert')}"
    kept = f"showing the {BARS} longest of {size}" if len(alerts) > BARS else size
    lanes = drawn.select("signal", "gap").unique(maintain_order=True).rows()
    figure = canvas(
        "alerts over the steps",
        (kept, "from the first step out of bounds to the last, pale where it was not; ▶ still open"),
        theme=theme,
        height=116 + LANE * max(2, len(lanes)),
    )
    if drawn.is_empty():
        return saying(figure, "no alert", theme)
    reach = float(steps.max() - steps.min())
    places = {lane: place for place, lane in enumerate(lanes)}
    _add_outside(figure, drawn, outside, places, reach, theme)
    _add_bars(figure, drawn, places, max(1.0, reach / 200), theme)
    figure.update_yaxes(
        range=[len(lanes) - 0.4, -0.9],
        tickvals=list(range(len(lanes))),
        ticktext=[f"{escaped(signal, 40)} <i>{escaped(gap, 20)}</i>" for signal, gap in lanes],
        fixedrange=True,
        showgrid=False,
    )
    figure.update_layout(bargap=0, margin={"b": 34}, barmode="overlay", hovermode="closest")
    add_events(figure, events, theme)
    step_axis(figure, steps)
    fit_labels(figure)
    return figure


def _add_outside(
    figure: go.Figure,
    drawn: pl.DataFrame,
    outside: Sequence[Spans],
    lanes: dict[tuple[str, str], int],
    reach: float,
    theme: Theme,
) -> None:
    """The stretches out of bounds, behind the pale bars."""
    bars = [
        (lanes[row["signal"], row["gap"]], first, last, theme.severity[row["severity"]])
        for row in drawn.iter_rows(named=True)
        for first, last in _joined(outside[row["row"]], reach / FINEST)
    ]
    figure.add_bar(
        orientation="h",
        base=[first - 0.5 for _, first, _, _ in bars],
        x=[last - first + 1.0 for _, first, last, _ in bars],
        y=[lane for lane, _, _, _ in bars],
        width=WIDTH,
        marker={"color": [colour for _, _, _, colour in bars], "line": {"width": 0}},
        hoverinfo="skip",
        name="out of bounds",
    )


def _joined(spans: Spans, apart: float) -> list[tuple[int, int]]:
    """The stretches, those no further apart than this as one."""
    found: list[tuple[int, int]] = []
    for first, last in spans:
        if found and first - found[-1][1] - 1 <= apart:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return found


def _add_bars(
    figure: go.Figure, drawn: pl.DataFrame, lanes: dict[tuple[str, str], int], least: float, theme: Theme
) -> None:
    """Bars are at least `least` wide: a thin one cannot be seen, nor clicked."""
    rows = list(drawn.iter_rows(named=True))
    figure.add_bar(
        orientation="h",
        base=[row["first_step"] - 0.5 for row in rows],
        x=[max(row["last_step"] - row["first_step"] + 1.0, least) for row in rows],
        y=[lanes[row["signal"], row["gap"]] for row in rows],
        width=WIDTH,
        marker={
            "color": [faded(theme.severity[row["severity"]], PALE) for row in rows],
            "line": {"width": 1, "color": theme.background},
        },
        text=[MARKS[row["severity"]] + (" ▶" if row["closed_at"] is None else "") for row in rows],
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        textfont={
            "size": 10,
            "color": [LIGHT.text if row["severity"] == "watch" else theme.background for row in rows],
        },
        customdata=[[_words(row), row["row"]] for row in rows],
        hovertemplate="%{customdata[0]}<extra></extra>",
        name="alerts",
    )


def _words(row: dict[str, object]) -> str:
    steps = (
        f"step {row['first_step']}"
        if row["first_step"] == row["last_step"]
        else f"steps {row['first_step']} to {row['last_step']}"
    )
    end = "still open" if row["closed_at"] is None else f"closed at step {row['closed_at']}"
    told = escaped(str(row["reading"]), 160)
    severity = str(row["severity"])
    head = f"{MARKS[severity]} {severity} · {escaped(str(row['signal']), 40)}"
    return f"{head}<br>{steps}, {end}<br>peak at step {row['peak_step']}: {told}"
