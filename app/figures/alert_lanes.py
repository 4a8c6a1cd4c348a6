"""Alerts over the steps: a lane per signal and gap with its problem in words, and a bar as long as each alert, in full colour
where it was out of bounds.
"""

from collections.abc import Sequence

import polars as pl

from ratioscope.arrays import Floats
from ratioscope.metrics.grading.finding import Severity
from ratioscope.metrics.grading.signals import SIGNALS

from ..presentation.digits import count
from ..presentation.escape import plotly as escaped
from ..presentation.theme import LIGHT, MARKS, NARROW, Theme, faded
from .drawing.along import fit_labels, step_axis
from .drawing.canvas import canvas, coloured, saying
from .drawing.hover import in_lines
from .drawing.marks import add_events
from .drawing.overlay import Overlay, lay_over
from .drawing.overlay import words as worded
from .drawing.plotly_objects import go

KEY = "a bar ends when the alert closed; solid: out of bounds; pale: back in bounds, waiting to close; ▶ still open"
LANE = 42
WIDTH = 0.4
WIDE = 110
"""Characters of a line of this chart, which is as wide as the page."""
TITLES = {signal.name: signal.title for signal in SIGNALS}
PALE = 0.35
MARK = 40
"""The axis over this is about the length of a bar's mark."""
FINEST = 800
"""The axis over this is the least visible distance between two stretches out of bounds."""
Lanes = dict[tuple[str, str], int]
"""Signal and gap -> the place of its lane, from the top."""
Spans = Sequence[tuple[int, int, Severity]]
"""First step, last step and grade of each stretch out of bounds."""
BARS = 400
"""The most bars. If there are more alerts, the figure shows the longest, with a note."""


def alert_lanes(
    alerts: pl.DataFrame,
    steps: Floats,
    outside: Sequence[Spans],
    *,
    events: pl.DataFrame | None = None,
    theme: Theme = LIGHT,
) -> go.Figure:
    """alerts: as alert_frame returns them; steps: the steps of the run; outside: the stretches out of bounds of each alert.

    The customdata of a bar is its words and its row in `alerts`.
    """
    drawn = alerts.with_row_index("row").sort(pl.col("last_step") - pl.col("first_step"), descending=True).head(BARS)
    drawn = drawn.sort("row")
    size = f"N = {count(len(alerts), 'alert')}"
    note = f"showing the {BARS} longest of {size}" if len(alerts) > BARS else size
    lanes = drawn.select("signal", "gap").unique(maintain_order=True).rows()
    height = 116 + LANE * max(2, len(lanes))
    figure = canvas("Alerts over the steps", (KEY,), theme=theme, height=height, lines=2, made=(note,))
    if drawn.is_empty():
        return saying(figure, "no alert", theme)
    reach = float(steps.max() - steps.min())
    places = {lane: place for place, lane in enumerate(lanes)}
    bars, spans = _bars_of(drawn, places, reach), [outside[row] for row in drawn["row"]]
    colours = [_on(each, reach, theme) for each in spans]
    _add_pale(figure, drawn, bars, theme)
    _add_outside(figure, _stretches(drawn, spans, places, reach), theme)
    clear = {"color": faded(theme.background, 0), "line": {"width": 0}}
    _add_marks(figure, drawn, {**bars, "marker": clear}, colours)
    figure.update_yaxes(range=[len(lanes) - 0.5, -1.1], showticklabels=False, fixedrange=True, showgrid=False)
    figure.update_layout(bargap=0, margin={"l": 16, "b": 34}, barmode="overlay", hovermode="closest")
    lay_over(figure, texts=[_lane_title(lane, place, theme) for lane, place in places.items()])
    add_events(figure, events, theme)
    step_axis(figure, steps)
    fit_labels(figure)
    return figure


def _lane_title(lane: tuple[str, str], place: int, theme: Theme) -> Overlay:
    """The problem in words above the bars of a lane; behind it, as far as there is room, the gaps and the name for commands."""
    signal, gap = lane
    title = TITLES.get(signal, signal)
    names = [name for name in (gap, signal) if name != title]
    room = theme.columns if theme in NARROW.values() else WIDE
    while names and len(" · ".join((title, *names))) > room:
        names.pop()
    behind = coloured(escaped(" · ".join(("", *names)), 60), theme.muted)
    above: Overlay = {
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": place - WIDTH / 2,
        "yref": "y",
        "yanchor": "bottom",
    }
    return worded(
        f"{escaped(title, 60)}{behind}", theme.text, name="shortened", borderpad=1, bgcolor=theme.background, **above
    )


def _bars_of(drawn: pl.DataFrame, lanes: Lanes, reach: float) -> Overlay:
    """The places of the alerts' bars."""
    lasted = (drawn["last_step"] - drawn["first_step"]).to_list()
    return {
        "orientation": "h",
        "base": [first - 0.5 for first in drawn["first_step"]],
        "x": [max(steps + 1.0, _least(reach)) for steps in lasted],
        "y": [lanes[lane] for lane in drawn.select("signal", "gap").rows()],
        "width": WIDTH,
    }


def _add_pale(figure: go.Figure, drawn: pl.DataFrame, bars: Overlay, theme: Theme) -> None:
    """Adds a faint bar as long as each alert."""
    colours = [faded(theme.severity[severity], PALE) for severity in drawn["severity"]]
    figure.add_bar(
        **bars,
        marker={"color": colours, "line": {"width": 1, "color": theme.background}},
        hoverinfo="skip",
        name="lasted",
    )


def _stretches(
    drawn: pl.DataFrame, outside: Sequence[Spans], lanes: Lanes, reach: float
) -> list[tuple[int, float, float, Severity]]:
    """Lane, first step, length and grade of the stretches out of bounds; the whole alert if it is too short to show its parts."""
    bars: list[tuple[int, float, float, Severity]] = []
    for row, own in zip(drawn.iter_rows(named=True), outside, strict=True):
        lane, spans = lanes[row["signal"], row["gap"]], _joined(own, reach / FINEST)
        length = row["last_step"] - row["first_step"] + 1.0
        if spans and length < _least(reach):
            bars.append((lane, row["first_step"], _least(reach), max(grade for _, _, grade in spans)))
        else:
            bars += [(lane, first, max(last - first + 1.0, reach / FINEST), grade) for first, last, grade in spans]
    return bars


def _add_outside(figure: go.Figure, bars: Sequence[tuple[int, float, float, Severity]], theme: Theme) -> None:
    figure.add_bar(
        orientation="h",
        base=[first - 0.5 for _, first, _, _ in bars],
        x=[length for _, _, length, _ in bars],
        y=[lane for lane, _, _, _ in bars],
        width=WIDTH,
        marker={"color": [theme.severity[grade.label] for _, _, _, grade in bars], "line": {"width": 0}},
        hoverinfo="skip",
        name="out of bounds",
    )


def _least(reach: float) -> float:
    """The least length of a bar, in steps: a reader can neither see nor click a shorter bar."""
    return max(1.0, reach / 200)


def _joined(spans: Spans, apart: float) -> list[tuple[int, int, Severity]]:
    """The stretches; two no further apart than this become one if they have one grade or the first is too short to be visible."""
    joined: list[tuple[int, int, Severity]] = []
    for first, last, grade in spans:
        begun, ended, known = joined[-1] if joined else (first, first, grade)
        if joined and first - ended - 1 <= apart and (known == grade or ended - begun < apart - 1):
            joined[-1] = begun, last, max(known, grade)
        else:
            joined.append((first, last, grade))
    return joined


def _add_marks(figure: go.Figure, drawn: pl.DataFrame, bars: Overlay, colours: Sequence[str]) -> None:
    """Adds the bars that take clicks: transparent, as long as the alerts, with their marks in these colours."""
    rows = list(drawn.iter_rows(named=True))
    figure.add_bar(
        **bars,
        text=[MARKS[row["severity"]] + (" ▶" if row["closed_at"] is None else "") for row in rows],
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        textfont={"size": 10, "color": list(colours)},
        customdata=[[_words(row), row["row"]] for row in rows],
        hovertemplate="%{customdata[0]}<extra></extra>",
        name="alerts",
    )


def _on(spans: Spans, reach: float, theme: Theme) -> str:
    """The colour of the mark at the start of a bar: for a mark on the first stretch, or on the faint bar if that is too short."""
    if not spans or spans[0][1] - spans[0][0] + 1 < reach / MARK:
        return theme.text
    return LIGHT.text if spans[0][2] == Severity.WATCH else theme.background


def _words(row: dict[str, object]) -> str:
    first, last = row["first_step"], row["last_step"]
    steps = f"step {first}" if first == last else f"steps {first} to {last}"
    end = "still open" if row["closed_at"] is None else f"closed at step {row['closed_at']}"
    severity = str(row["severity"])
    head = f"{MARKS[severity]} {severity} · {TITLES.get(str(row['signal']), row['signal'])}"
    peak = f"peak at step {row['peak_step']}: {row['reading']}"
    return "<br>".join(line for part in (head, f"{steps}, {end}", peak) for line in in_lines(part, 200))
